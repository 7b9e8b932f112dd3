// The peak of multiply-adds with 32-byte vectors.
#include "rlx/backend/cpu/kernels/limits/machine_limits_impl.h"

namespace rlx::cpu {

template float fma_loop<32>(int64_t rounds, float seed);

}  // namespace rlx::cpu
