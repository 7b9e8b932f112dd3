// Native kernels: convolution, pooling and resampling.
#include "rlx/backend/cpu/kernel_list.h"

namespace rlx::cpu {

std::span<const KernelRow> conv_kernels() { return {}; }

}  // namespace rlx::cpu
