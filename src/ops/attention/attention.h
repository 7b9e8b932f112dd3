// Attention: softmax(scores) v per head, with masks, biases, soft caps and sinks, and its gradient.
//
//   Values o = b.emit(op::attention.def,
//                     AttentionAttrs{.num_heads = 8, .mask = MaskKind::causal}, Values{q, k, v});
//   AttentionAttrs a{.num_heads = 8, .num_kv_heads = 2, .mask = MaskKind::sliding_window,
//                    .window = 128, .softcap = 50, .has_sinks = true};
//   o = b.emit(op::attention.def, a, Values{q, k, v, sinks});
//
// Query i stands at a = i + max(S_k - S_q, 0). A score is made in this order:
//
//   s = scale * q_i . k_j;   s = c * tanh(s / c) (softcap);   s += bias;   masked: s = -1e9
//
// A key is masked when the positions say so (causal: j > a; sliding_window: also j < a - window),
// when the operand `mask` does (false, or below 0.5), or when a bias brings s to -1e9 or less. So a
// row whose keys are all masked averages all keys, and no bias makes NaN. Sinks are one more logit
// per head in the denominator of the softmax, without a value.
//
// Optional operands follow q, k, v (for the backward op: d_out) in this order, each announced by
// its attribute:
//   mask   has_mask   any real dtype or bool; [B, S_k], [B, S_q, S_k] or broadcastable to
//                     [B, H, S_q, S_k]
//   bias   has_bias   dtype of q or f32; broadcastable to [B, H, S_q, S_k]
//   sinks  has_sinks  dtype of q or f32; [H] or [B, H]
//
// Layouts, by rank: 2 [S, heads * D], 3 [B, S, heads * D] (head h at columns h * D ..), 4 [B, H, S,
// D] when q's second dim is num_heads, else [B, S, H, D]. What rank 4 means is settled when a node
// is built (`layout`), so that a symbol bound later cannot change it.
//
// Raises "attention-shape", "attention-heads", "attention-mask" (window, softcap), "dtype-mixed",
// "attention-operands".
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

enum class MaskKind : uint8_t { none, causal, sliding_window };
inline std::span<const std::string_view> enum_names(MaskKind) {
  static constexpr std::string_view names[] = {"none", "causal", "sliding_window"};
  return names;
}
enum class AttentionLayout : uint8_t { automatic, head_major, seq_major };
inline std::span<const std::string_view> enum_names(AttentionLayout) {
  static constexpr std::string_view names[] = {"automatic", "head_major", "seq_major"};
  return names;
}
// num_kv_heads 0 means num_heads (and becomes it when a node is built); scale none means
// 1/sqrt(head_dim).
struct AttentionAttrs {
  int64_t num_heads = 1, num_kv_heads = 0;
  MaskKind mask = MaskKind::none;
  int64_t window = 0;
  std::optional<double> scale = std::nullopt, softcap = std::nullopt;
  bool has_mask = false, has_bias = false, has_sinks = false;
  AttentionLayout layout = AttentionLayout::automatic;
  static constexpr auto fields() {
    return Fields<&AttentionAttrs::num_heads, &AttentionAttrs::num_kv_heads, &AttentionAttrs::mask,
                  &AttentionAttrs::window, &AttentionAttrs::scale, &AttentionAttrs::softcap,
                  &AttentionAttrs::has_mask, &AttentionAttrs::has_bias, &AttentionAttrs::has_sinks,
                  &AttentionAttrs::layout>();
  }
};
struct AttentionBackwardAttrs : AttentionAttrs {
  bool bias_gradient = false;
  static constexpr auto fields() {
    return join(AttentionAttrs::fields(), Fields<&AttentionBackwardAttrs::bias_gradient>());
  }
};
enum class AttentionOperand : uint8_t { query, key, value };
inline std::span<const std::string_view> enum_names(AttentionOperand) {
  static constexpr std::string_view names[] = {"query", "key", "value"};
  return names;
}
struct AttentionGradientAttrs : AttentionAttrs {
  AttentionOperand wrt = AttentionOperand::query;
  static constexpr auto fields() {
    return join(AttentionAttrs::fields(), Fields<&AttentionGradientAttrs::wrt>());
  }
};

namespace op {
// q, k, v, [mask], [bias], [sinks] -> out (type of q), logsumexp of each row [B, num_heads, S_q]
// with the sink, f32 (f64 for f64). k and v have num_kv_heads heads; query head h reads head h /
// (num_heads / num_kv_heads).
extern const Op<AttentionAttrs> attention;
// q, k, v, out, logsumexp, d_out, [mask], [bias] -> dq, dk, dv, and with bias_gradient the gradient
// of the bias before broadcasting ([B, H, S_q, S_k], dtype of the logsumexp): the gradient through
// `out` alone. Sinks take part through the logsumexp; their gradient needs no scores and is not
// made here, so has_sinks is an error. A row with a logsumexp of -5e8 or less has no visible key.
extern const Op<AttentionBackwardAttrs> attention_backward;
// q, k, v, d_out, [mask], [bias], [sinks] -> the gradient of one of q, k, v.
extern const Op<AttentionGradientAttrs> attention_gradient;
}  // namespace op

// The attributes that attention, attention_backward and attention_gradient share.
const AttentionAttrs& attention_attrs(const Node& n);

// The sizes in an attention problem, whatever the layout. Raises as the op (named in the message)
// does when q, k, v do not fit.
struct AttentionDims {
  Dim batch, queries, keys;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  double scale = 0;
};
AttentionDims attention_dims(const AttentionAttrs& attrs, const Type& q, const Type& k,
                             const Type& v, std::string_view op = "attention");

}  // namespace rlx
