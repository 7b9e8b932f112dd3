#include "rlx/backend/built_in/built_in.h"

#include "rlx/backend/reference/backend.h"
#ifdef RLX_CPU
#include "rlx/backend/cpu/backend.h"
#include "rlx/backend/cpu/kernels/isa.h"
#endif

namespace rlx {

std::vector<std::shared_ptr<const Backend>> built_in_backends() {
  std::vector<std::shared_ptr<const Backend>> all;
#ifdef RLX_CPU
  if (cpu::isa_supported(cpu::Isa::Avx2)) all.push_back(cpu::make_cpu_backend());
#endif
  all.push_back(reference::make_reference_backend());
  return all;
}

}  // namespace rlx
