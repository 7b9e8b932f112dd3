// Attention with 16-byte vectors.
#include "rlx/backend/cpu/kernels/attention/attention_impl.h"

namespace rlx::cpu {

template AttentionFns attention_fns<float, 16>(bool);
template AttentionFns attention_fns<double, 16>(bool);
template AttentionFns attention_fns<f16_t, 16>(bool);
template AttentionFns attention_fns<bf16_t, 16>(bool);

}  // namespace rlx::cpu
