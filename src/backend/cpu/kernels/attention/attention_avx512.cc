// Attention with 64-byte vectors.
#include "rlx/backend/cpu/kernels/attention/attention_impl.h"

namespace rlx::cpu {

template AttentionFns attention_fns<float, 64>(bool);
template AttentionFns attention_fns<double, 64>(bool);
template AttentionFns attention_fns<f16_t, 64>(bool);
template AttentionFns attention_fns<bf16_t, 64>(bool);

}  // namespace rlx::cpu
