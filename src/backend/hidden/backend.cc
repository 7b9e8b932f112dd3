#include "rlx/backend/hidden/backend.h"

#include "rlx/backend/cpu/backend.h"
#include "rlx/backend/hidden/stream.h"
#include "rlx/lower/target.h"

namespace rlx::hidden {

namespace {

constexpr int kDlpackExtension = 12;

// The CPU's kernels under another name: LIR of the one is not the other's.
class HiddenTarget final : public Target {
 public:
  explicit HiddenTarget(std::unique_ptr<Target> cpu) : cpu_(std::move(cpu)) {}
  std::string_view name() const override { return "hidden"; }
  Decision accepts(const Node& n, const Graph& g) const override { return cpu_->accepts(n, g); }
  Choice choice(const Node& n, const Graph& g) const override { return cpu_->choice(n, g); }
  Decision takes_view(const Node& n, const Graph& g, size_t i, const View& v) const override {
    return cpu_->takes_view(n, g, i, v);
  }
  std::shared_ptr<const StepKernel> make(const Node& n, const Graph& g, std::span<const View> in,
                                         std::span<const View> out) override {
    return cpu_->make(n, g, in, out);
  }
  std::shared_ptr<const StepKernel> make_copy(const View& from, const View& to) override {
    return cpu_->make_copy(from, to);
  }
  std::shared_ptr<const KernelForm> form(const Node& region, std::span<const Layout> in,
                                         std::span<const Layout> out) override {
    return cpu_->form(region, in, out);
  }
  void finish() override { cpu_->finish(); }
  RegionSchedule schedule() const override { return cpu_->schedule(); }
  void arrange(Program& p) const override { cpu_->arrange(p); }
  bool goes_first(const OpDef& op) const override { return cpu_->goes_first(op); }
  bool has_kernel(const OpDef& op) const override { return cpu_->has_kernel(op); }
  int generated() const override { return cpu_->generated(); }
  int cached() const override { return cpu_->cached(); }
  int64_t code_bytes() const override { return cpu_->code_bytes(); }
  int64_t form_bytes() const override { return cpu_->form_bytes(); }

 private:
  std::unique_ptr<Target> cpu_;
};

class HiddenBackend final : public Backend {
 public:
  explicit HiddenBackend(int ordinal) : ordinal_(ordinal) {}
  Device device() const override { return {"hidden", ordinal_}; }
  std::unique_ptr<Target> make_target(const CompileOptions& options) const override {
    return std::make_unique<HiddenTarget>(cpu_->make_target(options));
  }
  MemoryBlock allocate(int64_t bytes) const override { return memory_->allocate(bytes); }
  std::byte* map(std::byte*) const override { return nullptr; }
  std::unique_ptr<Stream> make_stream(int threads) const override {
    return make_hidden_stream(memory_, cpu_->make_stream(threads));
  }
  void register_kernel(const OpDef& op, HostKernel kernel) const override {
    cpu_->register_kernel(op, std::move(kernel));
  }
  int dlpack_kind() const override { return kDlpackExtension; }

 private:
  int ordinal_;
  std::shared_ptr<const Backend> cpu_ = cpu::make_cpu_backend();
  std::shared_ptr<HiddenMemory> memory_ = std::make_shared<HiddenMemory>();
};

}  // namespace

std::shared_ptr<const Backend> make_hidden_backend(int ordinal) {
  return std::make_shared<HiddenBackend>(ordinal);
}

}  // namespace rlx::hidden
