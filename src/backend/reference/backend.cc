#include "rlx/backend/reference/backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "rlx/base/clock.h"
#include "rlx/device/executable.h"
#include "rlx/device/host_stream.h"
#include "rlx/lower/target.h"
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

bool is_leaf(const Node& n) { return n.op->kind == Kind::leaf; }

// What the walk keeps at most at once, and the rest of what is known of it.
CompileInfo describe(const Bound& bound) {
  const Graph& g = *bound.graph;
  CompileInfo info = bound.info;
  const std::vector<int32_t> last = last_readers(g);
  std::vector<int64_t> freed(g.nodes.size(), 0);  // by the node after which it is
  int64_t live = 0;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (!is_leaf(g.nodes[i])) {
      int64_t bytes = 0;
      for (const Type& t : g.nodes[i].out) bytes += t.bytes();
      ++info.kernels;
      live += bytes;
      info.unshared_bytes += bytes;
      if (last[i] < g.size()) freed[static_cast<size_t>(last[i])] += bytes;
    }
    info.planned_bytes = std::max(info.planned_bytes, live);
    live -= freed[i];
  }
  info.kernels_before_fusion = info.kernels;
  info.interpreted = true;
  info.recognition_report = "the reference backend recognises nothing\n";
  info.fusion_report = "the reference backend fuses nothing\n";
  return info;
}

class ReferenceExecutable final : public Executable {
 public:
  explicit ReferenceExecutable(std::shared_ptr<const Compiled> c)
      : c_(std::move(c)), info_(c_->info) {
    for (Value v : signature().params()) {
      const Type& t = signature().type(v);
      params_.push_back(t.shape.is_static() ? Tensor(t.dtype, t.shape.sizes()) : Tensor());
      param_of_.emplace(signature().node(v).get<LeafAttrs>().name, param_of_.size());
    }
    in_place_.resize(params_.size());
    info_.interpreted = true;
    if (c_->bound) enter(c_->bound);
  }

  const Graph& signature() const override { return c_->signature; }
  const CompileInfo& info() const override { return info_; }
  const Bound* bound() const override { return bound_.get(); }
  void bind(const DimBinding& sizes) override {
    if (!bound_ || bound_->sizes != sizes) enter(c_->bind(sizes));
  }
  // Parameters that are not bound are replaced, never written, so clones may share them.
  std::unique_ptr<Executable> clone() const override {
    auto copy = std::make_unique<ReferenceExecutable>(*this);
    for (size_t i = 0; i < params_.size(); ++i)
      if (in_place_[i]) copy->upload_param(i, params_[i].raw(), params_[i].elements());
    return copy;
  }
  // Bytes, as many as are given: what they are the program knows when its sizes are bound.
  void upload_param(size_t i, const void* data, int64_t bytes) override {
    params_[i] = Tensor::from_bytes(DType::U8, {bytes}, data, static_cast<size_t>(bytes));
    in_place_[i] = false;
  }
  void share_param(size_t i, MemoryBlock value, int64_t bytes) override {
    params_[i] = Tensor::over(DType::U8, {bytes}, std::move(value));
    in_place_[i] = false;
  }
  void bind_param(size_t i, MemoryBlock value, int64_t bytes) override {
    share_param(i, std::move(value), bytes);
    in_place_[i] = true;
  }
  MemoryBlock param(size_t i) const override { return params_[i].storage(); }
  bool is_updated(size_t) const override { return false; }  // in place
  bool is_donated(size_t i) const override { return c_->is_donated(i); }
  Stream& stream() const override { return stream_; }
  const std::shared_ptr<const Backend>& shared_backend() const override { return c_->backend; }

  void run(const std::byte* const* inputs, std::byte* const* outputs,
           const RunOptions& options) override {
    Tensors leaves;
    auto param = params_.begin();
    for (const Node& n : graph().nodes) {
      const Type& t = n.type();
      if (n.op == &op::param)
        leaves.push_back(Tensor::over(t.dtype, t.shape.sizes(), (param++)->storage()));
      else if (n.op == &op::input)
        leaves.push_back(Tensor::from_bytes(t.dtype, t.shape.sizes(), *inputs++,
                                            static_cast<size_t>(t.bytes())));
    }
    const auto begin = Clock::now();
    auto start = begin;
    if (options.trace) *options.trace = {begin, {}, 0};
    const Evaluated result = evaluate(
        graph(), leaves,
        [&](int32_t i, const Tensors& results) {
          if (options.check_nan) check_nan(i, results);
          if (options.profile) times_[static_cast<size_t>(i)] = seconds_since(start);
          if (options.trace && !is_leaf(graph().nodes[static_cast<size_t>(i)])) {
            const double from = std::chrono::duration<double>(start - begin).count();
            options.trace->spans.push_back({label(static_cast<size_t>(i)), "reference", from,
                                            seconds_since(begin) - from, 0, 0});
          }
          start = Clock::now();
        },
        [&] {
          if (options.cancel && options.cancel->load(std::memory_order_relaxed))
            fail(ErrorKind::user, "cancelled", "the run was cancelled");
        });
    for (const Tensor& t : result.outputs) {
      if (t.bytes() > 0) std::memcpy(*outputs, t.raw(), t.bytes());
      ++outputs;
    }
    write_updates(result.updates);
  }

  int64_t resident_bytes() const override {
    int64_t bytes = c_->kept_bytes() + static_cast<int64_t>(sizeof(*this));
    for (const Tensor& t : params_) bytes += static_cast<int64_t>(t.bytes());
    return bytes;
  }

  std::vector<StepTime> times() const override {
    std::vector<StepTime> out;
    for (size_t i = 0; i < times_.size(); ++i)
      if (!is_leaf(signature().nodes[i])) out.push_back({label(i), "reference", times_[i]});
    return out;
  }

 private:
  // A new value may be another parameter's memory: all are copied before one is written.
  void write_updates(const NamedTensors& updates) {
    const bool any_bound = std::find(in_place_.begin(), in_place_.end(), true) != in_place_.end();
    std::vector<std::pair<size_t, Tensor>> values;
    for (const auto& [name, value] : updates)
      values.emplace_back(
          param_of_.at(name),
          any_bound ? Tensor::from_bytes(value.dtype(), value.sizes(), value.raw(), value.bytes())
                    : value);
    for (auto& [i, value] : values)
      if (!in_place_[i])
        params_[i] = std::move(value);
      else if (value.bytes() > 0)
        std::memcpy(params_[i].storage().get(), value.raw(), value.bytes());
  }
  void enter(std::shared_ptr<const Bound> bound) {
    bound_ = std::move(bound);
    info_ = describe(*bound_);
    times_.assign(graph().nodes.size(), 0);
  }
  const Graph& graph() const { return *bound_->graph; }
  std::string label(size_t i) const {
    return fmt::format("%{} {}", i, signature().nodes[i].op->name);
  }
  void check_nan(int32_t i, const Tensors& results) const {
    const auto node = static_cast<size_t>(i);
    for (const Tensor& t : results)
      if (has_nan(t))
        throw Error(ErrorKind::user, "nan",
                    fmt::format("{} made a NaN", graph().nodes[node].op->name))
            .at(label(node));
  }

  std::shared_ptr<const Compiled> c_;
  std::shared_ptr<const Bound> bound_;
  CompileInfo info_;
  Tensors params_;
  std::vector<bool> in_place_;  // bound
  std::map<std::string, size_t> param_of_;
  std::vector<double> times_;
  mutable HostStream stream_;
};

class ReferenceBackend final : public Backend {
 public:
  Device device() const override { return {"reference", 0}; }
  Device memory() const override { return {"cpu", 0}; }
  std::unique_ptr<Target> make_target(const CompileOptions&) const override { return nullptr; }
  std::unique_ptr<Executable> load(std::shared_ptr<const Compiled> compiled) const override {
    return std::make_unique<ReferenceExecutable>(std::move(compiled));
  }
  MemoryBlock allocate(int64_t bytes) const override { return allocate_on_host(bytes); }
  std::byte* map(std::byte* address) const override { return address; }
  std::unique_ptr<Stream> make_stream(int) const override { return std::make_unique<HostStream>(); }
  int dlpack_kind() const override { return 1; }  // the CPU's
};

}  // namespace

std::shared_ptr<const Backend> make_reference_backend() {
  return std::make_shared<ReferenceBackend>();
}

}  // namespace rlx::reference
