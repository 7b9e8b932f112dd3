// Attention with 32-byte vectors.
#include "rlx/backend/cpu/kernels/attention/attention_impl.h"

namespace rlx::cpu {

template AttentionFns attention_fns<float, 32>(bool);
template AttentionFns attention_fns<double, 32>(bool);
template AttentionFns attention_fns<f16_t, 32>(bool);
template AttentionFns attention_fns<bf16_t, 32>(bool);

}  // namespace rlx::cpu
