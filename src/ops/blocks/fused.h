// The fused blocks of the specification, defined by their parts: one node for what a model's file
// calls one thing. Backends may match the node or see the parts.
//
//   Value h = op::fused_matmul_bias_act(b, x, w, bias, {.activation = "gelu"});
//   Value y = op::fused_swiglu(b, packed, {.gate_first = true});
//
// An activation is the name of an op with one operand that keeps its type, or "" for none. The
// small ops compute f16 and bf16 in f32 and round once; the blocks round where their parts end.
// Raises "fused-shape", "fused-operands", "activation", "dtype-mixed" and "dtype" (of a mask that is
// neither real nor bool), and what the parts raise.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

// The attributes of an op of one operand that is known by its name alone, as activations are.
Attrs default_attrs(const OpDef& op, const Type& operand);

struct FusedMatmulAttrs {
  std::string activation;
  static constexpr auto fields() { return Fields<&FusedMatmulAttrs::activation>(); }
};
struct FusedResidualAttrs {
  bool has_bias = false;
  double eps = 1e-5;
  static constexpr auto fields() {
    return Fields<&FusedResidualAttrs::has_bias, &FusedResidualAttrs::eps>();
  }
};
struct FusedSwigluAttrs {
  std::optional<DType> cast_to = std::nullopt;
  bool gate_first = false;
  static constexpr auto fields() {
    return Fields<&FusedSwigluAttrs::cast_to, &FusedSwigluAttrs::gate_first>();
  }
};
struct FusedAttentionBlockAttrs {  // head_dim 0 means the width of hidden over num_heads
  int64_t num_heads = 1, head_dim = 0;
  bool has_bias = false, has_rope = false;
  static constexpr auto fields() {
    return Fields<&FusedAttentionBlockAttrs::num_heads, &FusedAttentionBlockAttrs::head_dim,
                  &FusedAttentionBlockAttrs::has_bias, &FusedAttentionBlockAttrs::has_rope>();
  }
};
struct FusedTransformerLayerAttrs {
  int64_t num_heads = 1, head_dim = 0;
  double eps1 = 1e-5, eps2 = 1e-5;
  std::string activation = "gelu";
  bool has_bias = false;
  static constexpr auto fields() {
    return Fields<&FusedTransformerLayerAttrs::num_heads, &FusedTransformerLayerAttrs::head_dim,
                  &FusedTransformerLayerAttrs::eps1, &FusedTransformerLayerAttrs::eps2,
                  &FusedTransformerLayerAttrs::activation, &FusedTransformerLayerAttrs::has_bias>();
  }
};

namespace op {
extern const Op<FusedMatmulAttrs> fused_matmul_bias_act;  // x, w, bias [N]
// x, residual, [bias [D]], gamma [D], beta [D]
extern const Op<FusedResidualAttrs> fused_residual_ln, fused_residual_rms_norm;
extern const Op<FusedSwigluAttrs> fused_swiglu;  // [.., 2 N] -> [.., N]
// hidden [B, S, hs], qkv_w [hs, 3 hs], out_w [hs, hs], mask [B, S], [qkv_b [3 hs], out_b [hs]],
// [cos, sin [S, head_dim / 2]]
extern const Op<FusedAttentionBlockAttrs> fused_attention_block;
// hidden, qkv_w, [qkv_b], out_w, [out_b], ln1_g, ln1_b, fc1_w, [fc1_b], fc2_w, [fc2_b], ln2_g,
// ln2_b, mask
extern const Op<FusedTransformerLayerAttrs> fused_transformer_layer;
}  // namespace op

extern const Family kFused;

}  // namespace rlx
