// The user's ops and kernels (see also ops/custom.h).
//
//   register_op(triple.def);
//   register_cpu_kernel(triple.def, [](const Node&, std::span<const HostView> in, std::span<const HostView> out) {
//     ...
//   });
//
// Kernels of the user come before the built-in ones and before the decomposition. Register before
// compiling; graphs compiled earlier keep what they have. Raises "kernel" for an empty function and
// "no-backend" where there is no CPU backend.
#pragma once

#include "rlx/lower/host_kernel.h"
#include "rlx/ops/custom.h"

namespace rlx {

void register_cpu_kernel(const OpDef& op, HostKernel kernel);

}  // namespace rlx
