#include "rlx/backend/cpu/kernels/lines.h"

#include "rlx/backend/cpu/kernels/isa.h"

namespace rlx::cpu {

LineFns line_fns(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::Avx512) return line_fns_of<64>();
  if (isa == Isa::Avx2) return line_fns_of<32>();
#endif
  return line_fns_of<16>();
}

}  // namespace rlx::cpu
