// Splats with 32-byte vectors.
#include "rlx/backend/cpu/kernels/splat/splat_impl.h"

namespace rlx::cpu {

template SplatFns splat_fns<float, 32>();
template SplatFns splat_fns<double, 32>();

}  // namespace rlx::cpu
