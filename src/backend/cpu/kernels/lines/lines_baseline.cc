// Loops over lines with 16-byte vectors.
#include "rlx/backend/cpu/kernels/lines/lines_impl.h"

namespace rlx::cpu {

template LineFns line_fns_of<16>();

}  // namespace rlx::cpu
