// Loops over lines with 64-byte vectors.
#include "rlx/backend/cpu/kernels/lines/lines_impl.h"

namespace rlx::cpu {

template LineFns line_fns_of<64>();

}  // namespace rlx::cpu
