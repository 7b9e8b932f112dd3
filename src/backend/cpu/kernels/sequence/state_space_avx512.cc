// Recurrences with 64-byte vectors.
#include "rlx/backend/cpu/kernels/sequence/state_space_impl.h"

namespace rlx::cpu {

template StateSpaceFns state_space_fns<float, 64>();
template StateSpaceFns state_space_fns<double, 64>();
template StateSpaceFns state_space_fns<f16_t, 64>();
template StateSpaceFns state_space_fns<bf16_t, 64>();

}  // namespace rlx::cpu
