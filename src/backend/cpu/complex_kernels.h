// Elementwise ops and reductions on c64, which are not generated: loops in complex<double>, rounded
// once.
#pragma once

#include "rlx/backend/cpu/target.h"

namespace rlx::cpu {

std::span<const KernelRow> complex_kernel_list();

}  // namespace rlx::cpu
