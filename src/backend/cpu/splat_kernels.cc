// Native kernels: Gaussian splats.
#include "rlx/backend/cpu/kernel_list.h"

namespace rlx::cpu {

std::span<const KernelRow> splat_kernels() { return {}; }

}  // namespace rlx::cpu
