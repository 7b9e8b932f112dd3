// Native kernels: Fourier transforms.
#include "rlx/backend/cpu/kernel_list.h"

namespace rlx::cpu {

std::span<const KernelRow> fft_kernels() { return {}; }

}  // namespace rlx::cpu
