// Recurrences with 16-byte vectors.
#include "rlx/backend/cpu/kernels/sequence/state_space_impl.h"

namespace rlx::cpu {

template StateSpaceFns state_space_fns<float, 16>();
template StateSpaceFns state_space_fns<double, 16>();
template StateSpaceFns state_space_fns<f16_t, 16>();
template StateSpaceFns state_space_fns<bf16_t, 16>();

}  // namespace rlx::cpu
