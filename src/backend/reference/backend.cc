#include "rlx/backend/reference/backend.h"

#include <cmath>

#include "rlx/base/clock.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/evaluate.h"

namespace rlx::reference {

namespace {

bool has_nan(const Tensor& t) {
  if (!is_differentiable(t.dtype())) return false;
  for (int64_t i = 0; i < t.elements(); ++i) {
    const Complex v = t.get_complex(i);
    if (std::isnan(v.real()) || std::isnan(v.imag())) return true;
  }
  return false;
}

// What clones share.
struct Compiled {
  Graph graph;
  Values inputs, params;
  std::vector<size_t> update_of;           // per update: which parameter
  std::vector<std::vector<int32_t>> dies;  // per node: the nodes whose last reader it is
  CompileInfo info;
  int64_t constant_bytes = 0;
};

std::vector<std::vector<int32_t>> dying_nodes(const Graph& g) {
  std::vector<int32_t> last(g.nodes.size());
  for (int32_t i = 0; i < g.size(); ++i) {
    last[static_cast<size_t>(i)] = i;
    for (Value v : g.nodes[static_cast<size_t>(i)].in) last[static_cast<size_t>(v.node)] = i;
  }
  for (Value v : g.outputs) last[static_cast<size_t>(v.node)] = -1;
  for (const Update& u : g.updates) last[static_cast<size_t>(u.value.node)] = -1;
  std::vector<std::vector<int32_t>> dies(g.nodes.size());
  for (int32_t i = 0; i < g.size(); ++i)
    if (last[static_cast<size_t>(i)] >= 0)
      dies[static_cast<size_t>(last[static_cast<size_t>(i)])].push_back(i);
  return dies;
}

bool is_leaf(const Node& n) { return n.op->kind == Kind::leaf; }

CompileInfo describe(const Compiled& c) {
  CompileInfo info;
  info.nodes = c.graph.size();
  int64_t live = 0;
  auto bytes = [&](int32_t i) {
    int64_t sum = 0;
    for (const Type& t : c.graph.nodes[static_cast<size_t>(i)].out) sum += t.bytes();
    return sum;
  };
  for (int32_t i = 0; i < c.graph.size(); ++i) {
    if (!is_leaf(c.graph.nodes[static_cast<size_t>(i)])) {
      ++info.kernels;
      live += bytes(i);
      info.unshared_bytes += bytes(i);
    }
    info.planned_bytes = std::max(info.planned_bytes, live);
    for (int32_t dead : c.dies[static_cast<size_t>(i)])
      if (!is_leaf(c.graph.nodes[static_cast<size_t>(dead)])) live -= bytes(dead);
  }
  info.kernels_before_fusion = info.kernels;
  for (Value v : c.params) info.param_bytes += c.graph.type(v).bytes();
  info.fusion_report = "the reference backend fuses nothing\n";
  return info;
}

class ReferenceExecutable final : public Executable {
 public:
  explicit ReferenceExecutable(std::shared_ptr<const Compiled> c) : c_(std::move(c)) {
    for (Value v : c_->params) {
      const Type& t = c_->graph.type(v);
      params_.emplace_back(t.dtype, t.shape.sizes());
    }
    times_.resize(c_->graph.nodes.size(), 0);
  }

  const Graph& signature() const override { return c_->graph; }
  const CompileInfo& info() const override { return c_->info; }
  // Parameters are replaced, never written, so clones may share all of them.
  std::unique_ptr<Executable> clone() const override {
    return std::make_unique<ReferenceExecutable>(*this);
  }
  void set_param(size_t i, const void* data) override {
    params_[i] =
        Tensor::from_bytes(params_[i].dtype(), params_[i].sizes(), data, params_[i].bytes());
  }
  const void* param(size_t i) const override { return params_[i].raw(); }

  void run(const void* const* inputs, void* const* outputs, const RunOptions& options) override {
    const Graph& g = c_->graph;
    std::vector<Tensors> values(g.nodes.size());
    for (size_t k = 0; k < c_->inputs.size(); ++k) {
      const Type& t = g.type(c_->inputs[k]);
      values[static_cast<size_t>(c_->inputs[k].node)] = {
          Tensor::from_bytes(t.dtype, t.shape.sizes(), inputs[k], static_cast<size_t>(t.bytes()))};
    }
    for (size_t k = 0; k < c_->params.size(); ++k)
      values[static_cast<size_t>(c_->params[k].node)] = {params_[k]};
    for (size_t i = 0; i < g.nodes.size(); ++i) run_node(i, values, options);

    auto at = [&](Value v) -> const Tensor& {
      return values[static_cast<size_t>(v.node)][static_cast<size_t>(v.index)];
    };
    for (size_t k = 0; k < g.outputs.size(); ++k) {
      const Tensor& t = at(g.outputs[k]);
      if (t.bytes() > 0) std::memcpy(outputs[k], t.raw(), t.bytes());
    }
    for (size_t k = 0; k < g.updates.size(); ++k)
      params_[c_->update_of[k]] = at(g.updates[k].value);
  }

  int64_t resident_bytes() const override {
    int64_t bytes = c_->constant_bytes;
    for (const Tensor& t : params_) bytes += static_cast<int64_t>(t.bytes());
    return bytes;
  }

  std::vector<StepTime> times() const override {
    std::vector<StepTime> out;
    for (size_t i = 0; i < times_.size(); ++i) {
      const Node& n = c_->graph.nodes[i];
      if (!is_leaf(n))
        out.push_back({fmt::format("%{} {}", i, n.op->name), "reference", times_[i]});
    }
    return out;
  }

 private:
  void run_node(size_t i, std::vector<Tensors>& values, const RunOptions& options) {
    const Node& n = c_->graph.nodes[i];
    if (n.op == &op::input || n.op == &op::param) return;
    auto poll = [&] {
      if (options.cancel && options.cancel->load(std::memory_order_relaxed))
        fail(ErrorKind::user, "cancelled", "the run was cancelled");
    };
    poll();
    const std::string where = fmt::format("%{} {}", i, n.op->name);
    const auto start = Clock::now();
    Tensors in;
    for (Value v : n.in)
      in.push_back(values[static_cast<size_t>(v.node)][static_cast<size_t>(v.index)]);
    try {
      values[i] = evaluate_node(n, in, poll);
    } catch (const Error& e) {
      throw e.where().empty() ? e.at(where) : e;
    }
    if (options.profile) times_[i] = seconds_since(start);
    if (options.check_nan)
      for (const Tensor& t : values[i])
        if (has_nan(t))
          throw Error(ErrorKind::user, "nan", fmt::format("{} made a NaN", n.op->name)).at(where);
    for (int32_t dead : c_->dies[i]) values[static_cast<size_t>(dead)].clear();
  }

  std::shared_ptr<const Compiled> c_;
  Tensors params_;
  std::vector<double> times_;
};

class ReferenceBackend final : public Backend {
 public:
  std::string_view name() const override { return "reference"; }

  std::unique_ptr<Executable> compile(const Graph& g,
                                      const CompileOptions& options) const override {
    const auto start = Clock::now();
    auto c = std::make_shared<Compiled>();
    c->graph = options.dims.empty() ? g : bind(g, options.dims);
    const auto symbols = c->graph.symbols();
    user_check(symbols.empty(), "unbound-dim", "compile: the size of dim ?{} is not known",
               symbols.empty() ? "" : symbols[0]);
    c->inputs = c->graph.inputs();
    c->params = c->graph.params();
    for (const Update& u : c->graph.updates)
      for (size_t k = 0; k < c->params.size(); ++k)
        if (c->graph.node(c->params[k]).get<LeafAttrs>().name == u.param) c->update_of.push_back(k);
    check(c->update_of.size() == c->graph.updates.size(), "an update names no parameter");
    c->dies = dying_nodes(c->graph);
    c->info = describe(*c);
    for (const Node& n : c->graph.nodes)
      if (n.op == &op::constant) c->constant_bytes += n.type().bytes();
    c->info.seconds = seconds_since(start);
    return std::make_unique<ReferenceExecutable>(std::move(c));
  }
};

}  // namespace

std::shared_ptr<const Backend> make_reference_backend() {
  return std::make_shared<ReferenceBackend>();
}

}  // namespace rlx::reference
