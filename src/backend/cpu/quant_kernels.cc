// Native kernels: products with packed weights and int8.
#include "rlx/backend/cpu/kernel_list.h"

namespace rlx::cpu {

std::span<const KernelRow> quant_kernels() { return {}; }

}  // namespace rlx::cpu
