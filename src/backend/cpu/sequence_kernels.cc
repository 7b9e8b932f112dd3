// Native kernels: recurrences over time.
#include "rlx/backend/cpu/kernel_list.h"

namespace rlx::cpu {

std::span<const KernelRow> sequence_kernels() { return {}; }

}  // namespace rlx::cpu
