// The blocks of HIR (a linear layer, SwiGLU, a decoder layer, ...): composites with a stage tag.
//
//   Value y = op::hir_linear(b, {x, w, bias}, {.activation = Activation::gelu, .has_bias = true});
//   Graph mir = run_pass(g, pass::lower_blocks);          // or HirModule::lower_to_mir
//
// A block has no type rule of its own: its type is that of its definition on operands of these types. It can stand
// wherever an op can; lowering replaces it. stages/hir.h has builders under the specification's names.
//
// Raises "wrong-input-count" when the attributes ask for another number of operands, "conv-shape",
// "attention-heads", "quant-operands", "sequence-shape", and what the ops of the definition raise.
#pragma once

#include "rlx/ops/attention/attention_mask.h"
#include "rlx/ops/elementwise/activations.h"
#include "rlx/quant/format.h"

namespace rlx {

// How linear layers with bias, SwiGLU and residual norms are lowered: to primitives that fusion and
// derivatives see, or to one fused op at once. Other blocks are the same under both.
enum class FusionPolicy : uint8_t { fusable, direct };
inline std::span<const std::string_view> enum_names(FusionPolicy) {
  static constexpr std::string_view names[] = {"fusable", "direct"};
  return names;
}

namespace hir {
struct Linear {
  std::optional<Activation> activation = std::nullopt;
  bool has_bias = false;
  static constexpr auto fields() { return Fields<&Linear::activation, &Linear::has_bias>(); }
};
struct LinearFused {
  std::optional<Activation> activation = std::nullopt;
  static constexpr auto fields() { return Fields<&LinearFused::activation>(); }
};
struct SharedLinearPair {  // slot 0 is the first product, any other the second
  int64_t slot = 0;
  static constexpr auto fields() { return Fields<&SharedLinearPair::slot>(); }
};
using SwiGLU = NoAttrs;
struct RmsNorm {
  double eps = 1e-5;
  static constexpr auto fields() { return Fields<&RmsNorm::eps>(); }
};
using ResidualRmsNorm = RmsNorm;
struct Attention {
  int64_t num_heads = 1, head_dim = 1;
  AttentionMask mask;
  static constexpr auto fields() {
    return Fields<&Attention::num_heads, &Attention::head_dim, &Attention::mask>();
  }
};
struct DepthwiseConv1dCausal {
  int64_t kernel_size = 1;
  static constexpr auto fields() { return Fields<&DepthwiseConv1dCausal::kernel_size>(); }
};
struct DequantMatMul {
  QuantScheme scheme;
  static constexpr auto fields() { return Fields<&DequantMatMul::scheme>(); }
};
struct GatedDeltaNet {
  int64_t state_size = 1;
  bool carry_state = false;
  static constexpr auto fields() {
    return Fields<&GatedDeltaNet::state_size, &GatedDeltaNet::carry_state>();
  }
};
struct RoPE {
  int64_t head_dim = 1, n_rot = 1;
  static constexpr auto fields() { return Fields<&RoPE::head_dim, &RoPE::n_rot>(); }
};
struct LlamaDecoderBlock {
  int64_t num_heads = 1, head_dim = 1, num_kv_heads = 1;
  double eps = 1e-5;
  AttentionMask mask = AttentionMask::causal();
  static constexpr auto fields() {
    return Fields<&LlamaDecoderBlock::num_heads, &LlamaDecoderBlock::head_dim,
                  &LlamaDecoderBlock::num_kv_heads, &LlamaDecoderBlock::eps,
                  &LlamaDecoderBlock::mask>();
  }
};
struct Qwen35MtpHead {  // n_embd, n_ff and mtp_vocab are for readers
  int64_t num_heads = 1, num_kv_heads = 1, head_dim = 1, n_rot = 1, n_embd = 1, n_ff = 1,
          mtp_vocab = 1;
  double eps = 1e-6;
  static constexpr auto fields() {
    return Fields<&Qwen35MtpHead::num_heads, &Qwen35MtpHead::num_kv_heads, &Qwen35MtpHead::head_dim,
                  &Qwen35MtpHead::n_rot, &Qwen35MtpHead::n_embd, &Qwen35MtpHead::n_ff,
                  &Qwen35MtpHead::mtp_vocab, &Qwen35MtpHead::eps>();
  }
};
}  // namespace hir

namespace op {
extern const Op<hir::Linear> hir_linear;
extern const Op<hir::LinearFused> hir_linear_fused;
extern const Op<hir::SharedLinearPair> hir_shared_linear_pair;
extern const Op<hir::SwiGLU> hir_swiglu_ffn;
extern const Op<hir::RmsNorm> hir_residual_rms_norm, hir_rms_norm;
extern const Op<hir::Attention> hir_attention;
extern const Op<hir::DepthwiseConv1dCausal> hir_depthwise_conv1d_causal;
extern const Op<hir::DequantMatMul> hir_dequant_matmul;
extern const Op<hir::GatedDeltaNet> hir_gated_delta_net;  // -> o, the last state
extern const Op<hir::RoPE> hir_rope;
extern const Op<hir::LlamaDecoderBlock> hir_llama_decoder_block;
extern const Op<hir::Qwen35MtpHead> hir_qwen35_mtp_head;
}  // namespace op

extern const Family kHirBlocks;

// Whether any node, in bodies too, is a block.
bool has_blocks(const Graph& g);
// Appends what a block is made of under a policy; returns its results.
Values expand_block(Builder& b, const Node& n, Operands in, FusionPolicy policy);
// How many operands a block with these attributes takes.
size_t block_operands(const OpDef& op, const Attrs& attrs);
// What dumps show: "linear+bias+gelu".
std::string block_text(const OpDef& op, const Attrs& attrs);
// What nodes made of it are labelled, where the author said nothing: "swiglu_ffn".
std::string block_label(const OpDef& op, const Attrs& attrs);

}  // namespace rlx
