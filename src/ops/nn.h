// Neural-network composites.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

struct SoftmaxAttrs {
  int64_t axis = -1;
  static constexpr auto fields() { return std::tuple{field("axis", &SoftmaxAttrs::axis)}; }
};
struct NormAttrs {
  int64_t axis = -1;
  double eps = 1e-5;
  static constexpr auto fields() { return std::tuple{field("axis", &NormAttrs::axis), field("eps", &NormAttrs::eps)}; }
};
struct RopeAttrs {  // n_rot 0 means head_dim
  int64_t head_dim = 0, n_rot = 0;
  static constexpr auto fields() {
    return std::tuple{field("head_dim", &RopeAttrs::head_dim), field("n_rot", &RopeAttrs::n_rot)};
  }
};
enum class MaskKind : uint8_t { none, causal };
inline std::span<const std::string_view> enum_names(MaskKind) {
  static constexpr std::string_view names[] = {"none", "causal"};
  return names;
}
struct AttentionAttrs {  // num_kv_heads 0 means num_heads; scale none means 1/sqrt(head_dim)
  int64_t num_heads = 1, num_kv_heads = 0;
  MaskKind mask = MaskKind::none;
  std::optional<double> scale;
  static constexpr auto fields() {
    return std::tuple{field("num_heads", &AttentionAttrs::num_heads), field("num_kv_heads", &AttentionAttrs::num_kv_heads),
                      field("mask", &AttentionAttrs::mask), field("scale", &AttentionAttrs::scale)};
  }
};

namespace op {
extern const Op<> gelu, gelu_tanh, silu;
extern const Op<SoftmaxAttrs> softmax, log_softmax;
extern const Op<NormAttrs> layer_norm, rms_norm;  // x, gamma, beta
extern const Op<> softmax_cross_entropy;          // logits [.., C], labels [..] (integer or f32-encoded) -> losses [..]
extern const Op<RopeAttrs> rope;                  // x, cos, sin
// q, k, v -> out (shape of q), logsumexp of each score row [B, num_heads, S_q] f32 (f64 for f64).
extern const Op<AttentionAttrs> attention;
// q, k, v, out, logsumexp, d_out -> dq, dk, dv
extern const Op<AttentionAttrs> attention_backward;
}  // namespace op

extern const Family kNn;

}  // namespace rlx
