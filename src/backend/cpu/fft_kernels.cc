// Native kernels: Fourier transforms.
#include <cmath>

#include "rlx/backend/cpu/kernel_list.h"
#include "rlx/backend/cpu/kernels/signal/fft.h"
#include "rlx/ops/signal/fft.h"

namespace rlx::cpu {
namespace {

std::shared_ptr<const StepKernel> make_fft(Isa isa, const Node& n, std::span<const View> in,
                                           std::span<const View>) {
  const auto& [inverse, norm, axis] = n.get<FftAttrs>();
  const View& x = in[0];
  FftProblem p{.dtype = x.dtype, .inverse = inverse};
  for (size_t d = 0; d < x.dims.size(); ++d) {
    int64_t& size = d < static_cast<size_t>(axis)   ? p.outer
                    : d > static_cast<size_t>(axis) ? p.inner
                                                    : p.n;
    size *= x.dims[d];
  }
  if (x.dtype != DType::C64) p.n /= 2;
  p.scale = fft_scale(norm, inverse, p.n);
  auto plan = std::make_shared<const FftPlan>(p, isa);
  return function_kernel("fft", {.blocks = plan->blocks(),
                                 .work = static_cast<int64_t>(plan->flops() / 4),
                                 .scratch = plan->scratch_bytes(),
                                 .flops = plan->flops(),
                                 .run = [plan](const StepMemory& m, int64_t begin, int64_t end) {
                                   plan->run(m.operands[0], m.operands[1], m.scratch, begin, end);
                                 }});
}

constexpr KernelRow kFftKernels[] = {{&op::fft, "fft", always, dense_only, make_fft}};

}  // namespace

std::span<const KernelRow> fft_kernels() { return kFftKernels; }

}  // namespace rlx::cpu
