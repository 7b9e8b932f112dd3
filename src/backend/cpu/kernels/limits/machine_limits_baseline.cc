// The peak of multiply-adds with 16-byte vectors.
#include "rlx/backend/cpu/kernels/limits/machine_limits_impl.h"

namespace rlx::cpu {

template float fma_loop<16>(int64_t rounds, float seed);

}  // namespace rlx::cpu
