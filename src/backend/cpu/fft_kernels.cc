// Native kernels: Fourier transforms.
#include <cmath>

#include "rlx/backend/cpu/kernel_list.h"
#include "rlx/backend/cpu/kernels/signal/fft.h"
#include "rlx/ops/signal/fft.h"

namespace rlx::cpu {
namespace {

// A phase of a transform; the next one, if there is any, is its rest.
class FftKernel final : public BlockKernel {
 public:
  FftKernel(std::string_view name, std::shared_ptr<const FftPlan> plan, int phase)
      : name_(name), plan_(std::move(plan)), phase_(phase) {
    if (phase_ + 1 == plan_->phases()) return;
    rest_.results = {0};
    rest_.partials = {{DType::U8, {static_cast<int64_t>(plan_->between_bytes(phase_))}}};
    rest_.kernel = std::make_shared<FftKernel>(name, plan_, phase_ + 1);
  }
  std::string name() const override { return name_; }
  int64_t blocks() const override { return plan_->blocks(phase_); }
  size_t scratch_bytes() const override { return plan_->scratch_bytes(); }
  int64_t work() const override { return static_cast<int64_t>(flops() / 4); }
  double flops() const override { return plan_->flops() / plan_->phases(); }
  const Rest* rest() const override { return rest_.kernel ? &rest_ : nullptr; }
  void run(const StepMemory& m, int64_t begin, int64_t end) const override {
    plan_->run(phase_, m.operands[0], m.operands[1], m.scratch, begin, end);
  }

 private:
  std::string name_;
  std::shared_ptr<const FftPlan> plan_;
  int phase_;
  Rest rest_;
};

// Of the lines along `axis` of x; sizes of the other axes are those of the result too.
std::shared_ptr<const StepKernel> make_plan(std::string_view name, FftProblem p, const View& x,
                                            int64_t axis, Isa isa) {
  p.outer = product_of(x.dims, 0, static_cast<size_t>(axis));
  p.inner = product_of(x.dims, static_cast<size_t>(axis) + 1, x.dims.size());
  return std::make_shared<FftKernel>(name, std::make_shared<const FftPlan>(p, isa), 0);
}

std::shared_ptr<const StepKernel> make_fft(Isa isa, const Node& n, std::span<const View> in,
                                           std::span<const View>) {
  const auto& [inverse, norm, axis] = n.get<FftAttrs>();
  FftProblem p{
      .dtype = in[0].dtype, .n = in[0].dims[static_cast<size_t>(axis)], .inverse = inverse};
  if (p.dtype != DType::C64) p.n /= 2;
  p.scale = fft_scale(norm, inverse, p.n);
  return make_plan("fft", p, in[0], axis, isa);
}

std::shared_ptr<const StepKernel> make_rfft(Isa isa, const Node& n, std::span<const View> in,
                                            std::span<const View>) {
  const auto& [norm, axis] = n.get<RfftAttrs>();
  FftProblem p{.n = in[0].dims[static_cast<size_t>(axis)], .real = FftReal::to_bins};
  p.scale = fft_scale(norm, false, p.n);
  return make_plan("rfft", p, in[0], axis, isa);
}

std::shared_ptr<const StepKernel> make_irfft(Isa isa, const Node& n, std::span<const View> in,
                                             std::span<const View> out) {
  const auto& [length, norm, axis] = n.get<IrfftAttrs>();
  FftProblem p{
      .n = out[0].dims[static_cast<size_t>(axis)], .inverse = true, .real = FftReal::from_bins};
  p.scale = fft_scale(norm, true, p.n);
  return make_plan("irfft", p, in[0], axis, isa);
}

Decision even(const Dim& n) {
  const auto size = n.static_value();
  if (size && *size % 2 == 0) return Decision::yes();
  return Decision::no("real lines of an odd length are transformed as complex ones");
}
Decision even_signal(const Node& n, const Graph& g) {
  return even(g.type(n.in[0]).shape[static_cast<size_t>(n.get<RfftAttrs>().axis)]);
}
Decision even_result(const Node& n, const Graph&) {
  return even(n.type().shape[static_cast<size_t>(n.get<IrfftAttrs>().axis)]);
}

constexpr KernelRow kFftKernels[] = {{&op::fft, "fft", always, dense_only, make_fft},
                                     {&op::rfft, "rfft", even_signal, dense_only, make_rfft},
                                     {&op::irfft, "irfft", even_result, dense_only, make_irfft}};

}  // namespace

std::span<const KernelRow> fft_kernels() { return kFftKernels; }

}  // namespace rlx::cpu
