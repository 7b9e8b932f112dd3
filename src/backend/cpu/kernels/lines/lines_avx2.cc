// Loops over lines with 32-byte vectors.
#include "rlx/backend/cpu/kernels/lines/lines_impl.h"

namespace rlx::cpu {

template LineFns line_fns_of<32>();

}  // namespace rlx::cpu
