#include "rlx/backend/cpu/kernels/lines/lines.h"

#include "rlx/backend/cpu/kernels/isa.h"

namespace rlx::cpu {

LineFns line_fns(Isa isa) {
  return for_isa(isa, [](auto width) { return line_fns_of<width>(); });
}

}  // namespace rlx::cpu
