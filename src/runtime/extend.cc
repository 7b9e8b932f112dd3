#include "rlx/runtime/extend.h"

#include "rlx/runtime/runtime.h"

namespace rlx {

void register_kernel(const std::string& kind, const OpDef& op, HostKernel kernel) {
  within_memory([&] { backend_for({kind, 0})->register_kernel(op, std::move(kernel)); });
}

}  // namespace rlx
