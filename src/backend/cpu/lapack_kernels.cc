// Native kernels: dense linear algebra by LAPACK.
#include "rlx/backend/cpu/kernel_list.h"

namespace rlx::cpu {

std::span<const KernelRow> lapack_kernels() { return {}; }

}  // namespace rlx::cpu
