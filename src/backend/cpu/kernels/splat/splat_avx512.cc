// Splats with 64-byte vectors.
#include "rlx/backend/cpu/kernels/splat/splat_impl.h"

namespace rlx::cpu {

template SplatFns splat_fns<float, 64>();
template SplatFns splat_fns<double, 64>();

}  // namespace rlx::cpu
