// Matrix-product tiles with 16-byte vectors.
#include "rlx/backend/cpu/kernels/matmul/matmul_impl.h"

namespace rlx::cpu {

#define RLX_INSTANTIATE(S, O) template MatmulTileFns matmul_tile_fns<S, O, 16>();
RLX_MATMUL_PAIRS(RLX_INSTANTIATE)
#undef RLX_INSTANTIATE

}  // namespace rlx::cpu
