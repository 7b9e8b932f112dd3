// HIR: programs made of blocks (linear, SwiGLU, a decoder layer, ...), lowered to a Graph.
//
//   HirModule m("layer");
//   HirNodeId x = m.input("x", {DType::F32, {2, 128, 64}}), w = m.param("w", {DType::F32, {64, 64}});
//   HirNodeId y = m.named("proj", [&](HirModule& h) { return h.linear(x, w, {}, Activation::gelu); });
//   m.set_outputs({y});
//   MirModule mir = m.lower_to_mir();           // nodes carry the label "proj" and the id h2
//
// Nodes stand in the order they were made; operands come before their readers. A block's type is that
// of what it lowers to; a shape given by the caller is checked against it when the node is made
// (Error(user, "declared-shape")). Wrong operands raise what the ops raise, a wrong number of them
// "wrong-input-count", ids of nothing "hir-node"; a failed call leaves the module as it was.
//
// The fusion policy decides how linear layers with bias, SwiGLU and residual norms are lowered:
// `direct` to one fused op, `fusable` to primitives that fusion (and derivatives) see. Other blocks
// are the same under both.
#pragma once

#include <variant>

#include "rlx/stages/graph_builder.h"

namespace rlx {

struct HirNodeId {
  int32_t index = -1;
  auto operator<=>(const HirNodeId&) const = default;
};
std::string to_string(HirNodeId id);  // h3

enum class FusionPolicy : uint8_t { fusable, direct };
inline constexpr FusionPolicy kAutodiffPolicy = FusionPolicy::fusable;
std::string_view name(FusionPolicy policy);  // "Fusable", "Direct"

// The blocks and their operands; fields are listed once for text and JSON.
namespace hir {
struct Input {
  std::string name;
  static constexpr auto fields() { return Fields<&Input::name>(); }
  bool operator==(const Input&) const = default;
};
struct Param {
  std::string name;
  static constexpr auto fields() { return Fields<&Param::name>(); }
  bool operator==(const Param&) const = default;
};
struct Constant {
  Tensor value;
  static constexpr auto fields() { return Fields<&Constant::value>(); }
  bool operator==(const Constant& o) const { return Codec<Tensor>::equal(value, o.value); }
};
struct Linear {  // x, w, [bias]
  std::optional<Activation> activation;
  bool has_bias = false;
  static constexpr auto fields() { return Fields<&Linear::activation, &Linear::has_bias>(); }
  bool operator==(const Linear&) const = default;
};
struct LinearFused {  // x, w, bias
  std::optional<Activation> activation;
  static constexpr auto fields() { return Fields<&LinearFused::activation>(); }
  bool operator==(const LinearFused&) const = default;
};
struct SharedLinearPair {  // x, w_first, w_second; slot 0 is the first product
  int64_t slot = 0;
  static constexpr auto fields() { return Fields<&SharedLinearPair::slot>(); }
  bool operator==(const SharedLinearPair&) const = default;
};
struct SwiGLU {  // x, up_w, gate_w, down_w
  static constexpr auto fields() { return Fields<>(); }
  bool operator==(const SwiGLU&) const = default;
};
struct ResidualRmsNorm {  // x, residual, gamma, beta
  double eps = 1e-5;
  static constexpr auto fields() { return Fields<&ResidualRmsNorm::eps>(); }
  bool operator==(const ResidualRmsNorm&) const = default;
};
struct Attention {  // q, k, v, [mask]
  int64_t num_heads = 1, head_dim = 1;
  AttentionMask mask;
  static constexpr auto fields() {
    return Fields<&Attention::num_heads, &Attention::head_dim, &Attention::mask>();
  }
  bool operator==(const Attention&) const = default;
};
struct DepthwiseConv1dCausal {  // input [B, S, C], weight [C, 1, 1, K], left_pad [B, K - 1, C]
  int64_t kernel_size = 1;
  static constexpr auto fields() { return Fields<&DepthwiseConv1dCausal::kernel_size>(); }
  bool operator==(const DepthwiseConv1dCausal&) const = default;
};
struct DequantMatMul {  // x, packed_w; or x, w_q, scale, zp
  QuantScheme scheme;
  static constexpr auto fields() { return Fields<&DequantMatMul::scheme>(); }
  bool operator==(const DequantMatMul&) const = default;
};
struct GatedDeltaNet {  // q, k, v, g, beta, [state]
  int64_t state_size = 1;
  bool carry_state = false;
  static constexpr auto fields() {
    return Fields<&GatedDeltaNet::state_size, &GatedDeltaNet::carry_state>();
  }
  bool operator==(const GatedDeltaNet&) const = default;
};
struct RoPE {  // x, cos, sin
  int64_t head_dim = 1, n_rot = 1;
  static constexpr auto fields() { return Fields<&RoPE::head_dim, &RoPE::n_rot>(); }
  bool operator==(const RoPE&) const = default;
};
struct RmsNorm {  // x, gamma, beta
  double eps = 1e-5;
  static constexpr auto fields() { return Fields<&RmsNorm::eps>(); }
  bool operator==(const RmsNorm&) const = default;
};
// x, ln1_g, ln1_b, q_w, k_w, v_w, o_w, ln2_g, ln2_b, gate_w, up_w, down_w, cos, sin, [mask]
struct LlamaDecoderBlock {
  int64_t num_heads = 1, head_dim = 1, num_kv_heads = 1;
  double eps = 1e-5;
  AttentionMask mask = AttentionMask::causal();
  static constexpr auto fields() {
    return Fields<&LlamaDecoderBlock::num_heads, &LlamaDecoderBlock::head_dim,
                  &LlamaDecoderBlock::num_kv_heads, &LlamaDecoderBlock::eps,
                  &LlamaDecoderBlock::mask>();
  }
  bool operator==(const LlamaDecoderBlock&) const = default;
};
// h_pre_norm [B, S, E], input_ids [B, S], cos, sin, last_token_idx [B], embed_w, hnorm_{w,b},
// enorm_{w,b}, eh_w [2 E, E], attn_norm_{w,b}, q_gate_w [E, heads * 2 * head_dim], k_w, v_w,
// q_norm_{w,b}, k_norm_{w,b}, o_w, post_norm_{w,b}, gate_w, up_w, down_w, head_norm_{w,b}, lm_head_w
struct Qwen35MtpHead {
  int64_t num_heads = 1, num_kv_heads = 1, head_dim = 1, n_rot = 1, n_embd = 1, n_ff = 1,
          mtp_vocab = 1;
  double eps = 1e-6;
  static constexpr auto fields() {
    return Fields<&Qwen35MtpHead::num_heads, &Qwen35MtpHead::num_kv_heads, &Qwen35MtpHead::head_dim,
                  &Qwen35MtpHead::n_rot, &Qwen35MtpHead::n_embd, &Qwen35MtpHead::n_ff,
                  &Qwen35MtpHead::mtp_vocab, &Qwen35MtpHead::eps>();
  }
  bool operator==(const Qwen35MtpHead&) const = default;
};
struct Mir {  // one op as it is
  AnyOp op;
  bool operator==(const Mir&) const = default;
};
}  // namespace hir

using HirOp =
    std::variant<hir::Input, hir::Param, hir::Constant, hir::Linear, hir::LinearFused,
                 hir::SharedLinearPair, hir::SwiGLU, hir::ResidualRmsNorm, hir::Attention,
                 hir::DepthwiseConv1dCausal, hir::DequantMatMul, hir::GatedDeltaNet, hir::RoPE,
                 hir::RmsNorm, hir::LlamaDecoderBlock, hir::Qwen35MtpHead, hir::Mir>;
std::string_view kind_of(const HirOp& op);     // "SwiGLU"
std::string to_string(const HirOp& op);        // "linear+bias+gelu"
std::string default_label(const HirOp& op);    // "swiglu_ffn"; "" for leaves
std::string expected_inputs(const HirOp& op);  // "4"; "" when not counted

struct HirNode {
  HirNodeId id;
  HirOp op;
  std::vector<HirNodeId> inputs;
  Type shape;
  std::string name;  // the author's, or the block's label; empty for leaves and `mir`
  bool operator==(const HirNode&) const = default;
};

class HirModule {
 public:
  using Ids = std::vector<HirNodeId>;
  using MaybeId = std::optional<HirNodeId>;

  std::string name;
  Ids outputs;
  FusionPolicy fusion_policy = FusionPolicy::direct;

  explicit HirModule(std::string module_name) : name(std::move(module_name)) {}
  // One `mir` node per node of the graph, leaves included; names and provenance are dropped.
  // Graphs with updates or with readers of a second result raise "hir-results".
  static HirModule wrap_mir_graph(const Graph& g);

  HirModule& with_fusion_policy(FusionPolicy policy) {
    fusion_policy = policy;
    return *this;
  }
  size_t len() const { return nodes_.size(); }
  bool is_empty() const { return nodes_.empty(); }
  std::span<const HirNode> nodes() const { return nodes_; }
  const HirNode& node(HirNodeId id) const;
  HirNode& node_mut(HirNodeId id);
  const Type& shape(HirNodeId id) const { return node(id).shape; }
  void set_outputs(Ids ids);
  // Names the node that `build` returns.
  HirNodeId named(const std::string& node_name, FunctionRef<HirNodeId(HirModule&)> build);

  HirNodeId input(const std::string& leaf_name, const Type& shape);
  HirNodeId input_batch_seq(const std::string& leaf_name, const std::string& batch_symbol,
                            const std::string& seq_symbol, int64_t hidden, DType dtype);
  HirNodeId param(const std::string& leaf_name, const Type& shape);
  HirNodeId constant(Tensor value);
  HirNodeId linear(HirNodeId x, HirNodeId w, const MaybeId& bias = {},
                   std::optional<Activation> act = {}, const Declared& out_shape = {});
  HirNodeId linear_fused(HirNodeId x, HirNodeId w, HirNodeId bias,
                         std::optional<Activation> act = {}, const Declared& out_shape = {});
  std::pair<HirNodeId, HirNodeId> shared_linear_pair(HirNodeId x, HirNodeId w_first,
                                                     HirNodeId w_second,
                                                     const Declared& out_shape = {});
  HirNodeId swiglu_ffn(HirNodeId x, HirNodeId up_w, HirNodeId gate_w, HirNodeId down_w,
                       const Declared& out_shape = {});
  HirNodeId residual_rms_norm(HirNodeId x, HirNodeId residual, HirNodeId gamma, HirNodeId beta,
                              double eps, const Declared& out_shape = {});
  HirNodeId attention(HirNodeId q, HirNodeId k, HirNodeId v, const MaybeId& mask, int64_t num_heads,
                      int64_t head_dim, const AttentionMask& mask_kind,
                      const Declared& out_shape = {});
  HirNodeId depthwise_conv1d_causal(HirNodeId x, HirNodeId weight, HirNodeId left_pad,
                                    int64_t kernel_size, const Declared& out_shape = {});
  // Scale and zero point for schemes that keep them apart; raises "quant-operands" without.
  HirNodeId dequant_matmul(HirNodeId x, HirNodeId w, const MaybeId& scale, const MaybeId& zp,
                           const QuantScheme& scheme, const Declared& out_shape = {});
  HirNodeId gated_delta_net(HirNodeId q, HirNodeId k, HirNodeId v, HirNodeId g, HirNodeId beta,
                            int64_t state_size, const Declared& out_shape = {});
  HirNodeId gated_delta_net_carry(HirNodeId q, HirNodeId k, HirNodeId v, HirNodeId g,
                                  HirNodeId beta, HirNodeId state, int64_t state_size,
                                  const Declared& out_shape = {});
  HirNodeId rope(HirNodeId x, HirNodeId cos, HirNodeId sin, int64_t head_dim, int64_t n_rot,
                 const Declared& out_shape = {});
  HirNodeId rms_norm(HirNodeId x, HirNodeId gamma, HirNodeId beta, double eps,
                     const Declared& out_shape = {});
  HirNodeId llama_decoder_block(const Ids& inputs, const hir::LlamaDecoderBlock& block,
                                const Declared& out_shape = {});
  // The same block under the name "transformer_block".
  HirNodeId transformer_block(const Ids& inputs, const hir::LlamaDecoderBlock& block,
                              const Declared& out_shape = {});
  HirNodeId qwen35_mtp_head(const Ids& inputs, const hir::Qwen35MtpHead& block,
                            const Declared& out_shape = {});
  HirNodeId mir(const AnyOp& op, const Ids& inputs, const Declared& shape = {});
  // Any node; what the builders above call.
  HirNodeId push(HirOp op, const Ids& inputs, const Declared& declared = {});

  MirModule lower_to_mir() const;
  MirModule lower_for_autodiff() const;  // with the policy `fusable`
  std::string inspect() const;
  std::string to_string() const;

  bool operator==(const HirModule&) const = default;

 private:
  std::vector<HirNode> nodes_;
};

// Appends what a block lowers to; `pairs` remembers the products of shared pairs by operands.
struct HirLowering {
  FusionPolicy policy = FusionPolicy::direct;
  std::map<Values, NodePair> pairs = {};
  NodeId lower(GraphBuilder& g, const HirOp& op, const Values& in, const Type& leaf_shape);
};

}  // namespace rlx
