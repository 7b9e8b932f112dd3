// The user's ops and kernels (see also ops/custom.h).
//
//   register_op(triple.def);
//   register_cpu_kernel(triple.def, [](const Node&, std::span<const HostView> in, std::span<const HostView> out) {
//     ...
//   });
//
// Kernels of the user come before the built-in ones, before fusion and before the decomposition, for
// every op that runs as a kernel. At any time, from any thread: graphs compiled from then on use it,
// those compiled earlier keep what they have. A kernel is not called for results without elements.
// Raises "kernel" for an empty function and for ops that never run as a kernel (leaves, views, copies,
// control flow).
#pragma once

#include "rlx/lower/host_kernel.h"
#include "rlx/ops/custom.h"

namespace rlx {

// For the device of this kind; Error(unsupported, "device") where there is none, "kernel" where it takes no such
// kernels.
void register_kernel(const std::string& kind, const OpDef& op, HostKernel kernel);

// Under its established name.
inline void register_cpu_kernel(const OpDef& op, HostKernel kernel) {
  register_kernel("cpu", op, std::move(kernel));
}

}  // namespace rlx
