#include "rlx/runtime/extend.h"

#include "rlx/base/error.h"
#ifdef RLX_CPU
#include "rlx/backend/cpu/backend.h"
#endif

namespace rlx {

void register_cpu_kernel(const OpDef& op, HostKernel kernel) {
#ifdef RLX_CPU
  within_memory([&] { cpu::register_kernel(op, std::move(kernel)); });
#else
  (void)kernel;
  fail(ErrorKind::unsupported, "no-backend", "{}: this build has no CPU backend", op.name);
#endif
}

}  // namespace rlx
