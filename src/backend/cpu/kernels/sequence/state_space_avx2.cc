// Recurrences with 32-byte vectors.
#include "rlx/backend/cpu/kernels/sequence/state_space_impl.h"

namespace rlx::cpu {

template StateSpaceFns state_space_fns<float, 32>();
template StateSpaceFns state_space_fns<double, 32>();
template StateSpaceFns state_space_fns<f16_t, 32>();
template StateSpaceFns state_space_fns<bf16_t, 32>();

}  // namespace rlx::cpu
