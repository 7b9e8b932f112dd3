// Neural-network composites: each is defined by its decomposition into primitives.
//
//   Value p = op::softmax(b, scores, {.axis = -1});
//   Value y = op::layer_norm(b, x, gamma, beta, {.axis = -1, .eps = 1e-5});
//   Values o = b.emit(op::attention.def,
//                     AttentionAttrs{.num_heads = 8, .mask = MaskKind::causal}, Values{q, k, v});
//
// f16 and bf16 are computed in f32 and rounded once. Wrong operands raise Error(user) with the
// codes "norm-shape", "norm-eps", "labels", "rope-shape", "rope-heads", "attention-shape",
// "attention-heads", "dtype-mixed", "axis-range"; a label outside [0, C) raises "index-range" when
// the program runs.
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
  static constexpr auto fields() {
    return std::tuple{field("axis", &NormAttrs::axis), field("eps", &NormAttrs::eps)};
  }
};
struct RopeAttrs {  // n_rot 0 means head_dim (and becomes it when a node is built)
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
// num_kv_heads 0 means num_heads (and becomes it when a node is built); scale none means
// 1/sqrt(head_dim).
struct AttentionAttrs {
  int64_t num_heads = 1, num_kv_heads = 0;
  MaskKind mask = MaskKind::none;
  std::optional<double> scale = std::nullopt;
  static constexpr auto fields() {
    return std::tuple{field("num_heads", &AttentionAttrs::num_heads),
                      field("num_kv_heads", &AttentionAttrs::num_kv_heads),
                      field("mask", &AttentionAttrs::mask), field("scale", &AttentionAttrs::scale)};
  }
};

namespace op {
extern const Op<> gelu, gelu_tanh, silu;
extern const Op<SoftmaxAttrs> softmax, log_softmax;
extern const Op<NormAttrs> layer_norm,
    rms_norm;  // x, gamma [D], beta [D]; D is the size of the axis
extern const Op<>
    softmax_cross_entropy;  // logits [.., C], labels [..] (integer or f32-encoded) -> losses [..]
extern const Op<RopeAttrs> rope;  // x [.., S, heads * head_dim], cos [P, >= n_rot/2], sin; P >= S

// q, k, v -> out (type of q), logsumexp of each score row [B, num_heads, S_q], f32 (f64 for f64).
// Layouts, by rank: 2 [S, heads * D], 3 [B, S, heads * D] (head h at columns h * D ..), 4 [B,
// heads, S, D] (always head-major). k and v have num_kv_heads heads; query head h reads head h /
// (num_heads / num_kv_heads). With the causal mask query i sees the keys j <= i + max(S_k - S_q,
// 0); masked scores are -1e9.
extern const Op<AttentionAttrs> attention;
// q, k, v, out, logsumexp, d_out -> dq, dk, dv: the gradient through `out` alone; `out`, `logsumexp` as attention gives.
extern const Op<AttentionAttrs> attention_backward;
}  // namespace op

// The sizes in an attention problem, whatever the layout. Raises as the op does when q, k, v do not
// fit.
struct AttentionDims {
  Dim batch, queries, keys;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  double scale = 0;
};
AttentionDims attention_dims(const AttentionAttrs& attrs, const Type& q, const Type& k,
                             const Type& v);

extern const Family kNn;

}  // namespace rlx
