// Splats with 16-byte vectors.
#include "rlx/backend/cpu/kernels/splat/splat_impl.h"

namespace rlx::cpu {

template SplatFns splat_fns<float, 16>();
template SplatFns splat_fns<double, 16>();

}  // namespace rlx::cpu
