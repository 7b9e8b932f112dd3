// The CPU backend: generated kernels through LLVM, native kernels for what is not elementwise.
#pragma once

#include "rlx/lower/backend.h"

namespace rlx::cpu {

// Raises Error(unsupported, "cpu") on a machine without AVX2.
std::shared_ptr<const Backend> make_cpu_backend();

}  // namespace rlx::cpu
