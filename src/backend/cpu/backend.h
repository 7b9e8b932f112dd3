// The CPU backend: generated kernels through LLVM, native kernels for what is not elementwise.
#pragma once

#include "rlx/device/backend.h"

namespace rlx::cpu {

// Raises Error(unsupported, "cpu") on a machine without AVX2.
std::shared_ptr<const Backend> make_cpu_backend();

// A kernel of the user's, before all others of the op.
void register_kernel(const OpDef& op, HostKernel kernel);

}  // namespace rlx::cpu
