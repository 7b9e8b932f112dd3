#include "rlx/backend/reference/reference.h"

#include <chrono>
#include <cmath>
#include <cstring>

#include "rlx/ir/verify.h"
#include "rlx/ops/evaluate.h"

namespace rlx {

namespace {

using Clock = std::chrono::steady_clock;

bool has_nan(const Tensor& t) {
  if (!is_differentiable(t.dtype())) return false;
  for (int64_t i = 0; i < t.elements(); ++i) {
    const Complex x = t.get_complex(i);
    if (std::isnan(x.real()) || std::isnan(x.imag())) return true;
  }
  return false;
}

Tensor copy_of(const Type& type, const void* data) {
  Tensor t(type.dtype, type.shape.sizes());
  if (t.bytes()) std::memcpy(t.mutable_raw(), data, t.bytes());
  return t;
}

class ReferenceExecutable : public Executable {
 public:
  explicit ReferenceExecutable(Graph g) : graph_(std::make_shared<const Graph>(std::move(g))) {
    info_.nodes = info_.kernels_before_fusion = info_.kernels = graph_->size();
    for (Value v : graph_->params()) {
      const Type& type = graph_->type(v);
      params_.emplace_back(type.dtype, type.shape.sizes());
      info_.param_bytes += type.bytes();
    }
  }

  const Graph& signature() const override { return *graph_; }
  const CompileInfo& info() const override { return info_; }
  void set_param(size_t index, const void* data) override {
    params_[index] = copy_of(graph_->type(graph_->params()[index]), data);
  }
  const void* param(size_t index) const override { return params_[index].raw(); }
  std::unique_ptr<Executable> clone() const override {
    return std::make_unique<ReferenceExecutable>(*this);
  }
  std::vector<StepTime> times() const override { return times_; }

  void run(const void* const* inputs, void* const* outputs, const RunOptions& options) override {
    times_.clear();
    Clock::time_point start = Clock::now();
    const Evaluated result = evaluate(*graph_, leaves(inputs), [&](int32_t i, const Tensors& out) {
      const Node& n = graph_->nodes[static_cast<size_t>(i)];
      if (options.cancel && options.cancel->load(std::memory_order_relaxed))
        fail(ErrorKind::user, "cancelled", "the run was cancelled");
      if (options.check_nan)
        for (const Tensor& t : out)
          if (has_nan(t))
            throw Error(ErrorKind::user, "nan", fmt::format("{} made a NaN", n.op->name))
                .at(fmt::format("%{} {} {}", i, n.op->name, n.origin.label));
      if (!options.profile) return;
      const Clock::time_point now = Clock::now();
      const double seconds = std::chrono::duration<double>(now - start).count();
      times_.push_back({n.origin.label, std::string(n.op->name), seconds, 0});
      start = now;
    });
    for (size_t i = 0; i < result.outputs.size(); ++i)
      if (result.outputs[i].bytes())
        std::memcpy(outputs[i], result.outputs[i].raw(), result.outputs[i].bytes());
    size_t index = 0;
    for (Value v : graph_->params()) {
      const auto it = result.updates.find(graph_->node(v).get<LeafAttrs>().name);
      if (it != result.updates.end()) params_[index] = it->second;
      ++index;
    }
  }

 private:
  // Inputs and parameters in the order of their nodes.
  Tensors leaves(const void* const* inputs) const {
    Tensors out;
    size_t input = 0, param = 0;
    for (const Node& n : graph_->nodes) {
      if (n.op == &op::input) out.push_back(copy_of(n.type(), inputs[input++]));
      if (n.op == &op::param) out.push_back(params_[param++]);
    }
    return out;
  }

  std::shared_ptr<const Graph> graph_;
  CompileInfo info_;
  Tensors params_;
  std::vector<StepTime> times_;
};

class ReferenceBackend : public Backend {
 public:
  std::string_view name() const override { return "reference"; }

  std::unique_ptr<Executable> compile(const Graph& g,
                                      const CompileOptions& options) const override {
    verify(g);
    Graph bound = options.dims.empty() ? g : bind(g, options.dims);
    for (const std::string& symbol : bound.symbols())
      fail(ErrorKind::user, "unbound-dim", "compile: no size is given for ?{}", symbol);
    return std::make_unique<ReferenceExecutable>(std::move(bound));
  }
};

}  // namespace

std::shared_ptr<const Backend> make_reference_backend() {
  return std::make_shared<const ReferenceBackend>();
}

}  // namespace rlx
