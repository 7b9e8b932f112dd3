// Attention, its gradient, rotary embeddings.
#include "rlx/ops/nn/nn.h"
#include "rlx/ops/sequence/sequence.h"
#include "rlx/stages/builders/graph_builder.h"

namespace rlx {
NodeId GraphBuilder::attend(const Values& qkv, const MaybeNode& mask, int64_t num_heads,
                            int64_t head_dim, const AttentionMask& kind, const Declared& shape,
                            std::optional<double> scale, std::optional<double> softcap) {
  user_check(mask.has_value() == kind.has_operand(), "attention-operands",
             "attention: the mask kind {} {} an operand", kind.to_string(),
             kind.has_operand() ? "needs" : "takes no");
  Values in = qkv;
  if (mask) in.push_back(*mask);
  const AttentionAttrs a =
      attention_attributes(this->shape(qkv[0]), this->shape(qkv[1]), this->shape(qkv[2]), num_heads,
                           head_dim, kind, scale, softcap);
  return emit(op::attention.def, a, in, shape);
}

NodeId GraphBuilder::attention(NodeId q, NodeId k, NodeId v, NodeId mask, int64_t num_heads,
                               int64_t head_dim, const Declared& shape) {
  return attention_opts(q, k, v, mask, num_heads, head_dim, shape, {}, {});
}

NodeId GraphBuilder::attention_opts(NodeId q, NodeId k, NodeId v, NodeId mask, int64_t num_heads,
                                    int64_t head_dim, const Declared& shape,
                                    std::optional<double> score_scale,
                                    std::optional<double> attn_logit_softcap) {
  return attend({q, k, v}, mask, num_heads, head_dim, AttentionMask::custom(), shape, score_scale,
                attn_logit_softcap);
}

NodeId GraphBuilder::attention_kind(NodeId q, NodeId k, NodeId v, int64_t num_heads,
                                    int64_t head_dim, const AttentionMask& mask_kind,
                                    const Declared& shape) {
  return attention_kind_opts(q, k, v, num_heads, head_dim, mask_kind, shape, {}, {});
}

NodeId GraphBuilder::attention_kind_opts(NodeId q, NodeId k, NodeId v, int64_t num_heads,
                                         int64_t head_dim, const AttentionMask& mask_kind,
                                         const Declared& shape, std::optional<double> score_scale,
                                         std::optional<double> softcap) {
  return attend({q, k, v}, {}, num_heads, head_dim, mask_kind, shape, score_scale, softcap);
}

NodeId GraphBuilder::attention_bias(NodeId q, NodeId k, NodeId v, NodeId bias, int64_t num_heads,
                                    int64_t head_dim, const Declared& shape) {
  return attend({q, k, v}, bias, num_heads, head_dim, AttentionMask::bias(), shape, {}, {});
}

NodeId GraphBuilder::attention_backward(AttentionOperand wrt, NodeId q, NodeId k, NodeId v,
                                        NodeId dy, int64_t num_heads, int64_t head_dim,
                                        const AttentionMask& mask_kind, const MaybeNode& mask,
                                        std::optional<double> score_scale,
                                        std::optional<double> attn_logit_softcap) {
  user_check(mask.has_value() == mask_kind.has_operand(), "attention-operands",
             "attention_backward: the mask kind {} {} an operand", mask_kind.to_string(),
             mask_kind.has_operand() ? "needs" : "takes no");
  AttentionGradientAttrs a;
  static_cast<AttentionAttrs&>(a) =
      attention_attributes(shape(q), shape(k), shape(v), num_heads, head_dim, mask_kind,
                           score_scale, attn_logit_softcap);
  a.wrt = wrt;
  Values in{q, k, v, dy};
  if (mask) in.push_back(*mask);
  return emit(op::attention_gradient.def, a, in);
}

std::tuple<NodeId, NodeId, NodeId> GraphBuilder::attention_backward_all(
    NodeId q, NodeId k, NodeId v, NodeId dy, int64_t num_heads, int64_t head_dim,
    const AttentionMask& mask_kind, const MaybeNode& mask) {
  const auto gradient = [&](AttentionOperand wrt) {
    return attention_backward(wrt, q, k, v, dy, num_heads, head_dim, mask_kind, mask);
  };
  const NodeId dq = gradient(AttentionOperand::query), dk = gradient(AttentionOperand::key);
  return {dq, dk, gradient(AttentionOperand::value)};
}

NodeId GraphBuilder::axial_rope2d(NodeId x, int64_t end_x, int64_t end_y, int64_t head_dim,
                                  int64_t num_heads, double theta, int64_t repeat_factor) {
  return emit(
      op::axial_rope2d.def,
      AxialRopeAttrs{end_x, end_y, head_dim, num_heads, theta, std::max<int64_t>(repeat_factor, 1)},
      {x});
}

NodeId GraphBuilder::rope_n(NodeId x, NodeId cos, NodeId sin, int64_t head_dim, int64_t n_rot) {
  return emit(op::rope.def, RopeAttrs{.head_dim = head_dim, .n_rot = n_rot}, {x, cos, sin});
}

}  // namespace rlx
