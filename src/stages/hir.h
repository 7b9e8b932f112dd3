// HIR: programs made of blocks (linear, SwiGLU, a decoder layer, ...), lowered to ops over tensors.
//
//   HirModule m("layer");
//   HirNodeId x = m.input("x", {DType::F32, {2, 128, 64}}), w = m.param("w", {DType::F32, {64, 64}});
//   HirNodeId y = m.named("proj", [&](HirModule& h) { return h.linear(x, w, {}, Activation::gelu); });
//   m.set_outputs({y});
//   MirModule mir = m.lower_to_mir();           // nodes carry the label "proj" and the id h2
//
// A module is a graph: blocks are ops of the table (ops/blocks/hir_blocks.h), any other op may stand between them. A block's
// type is that of its definition; a shape given by the caller is checked against it when the node is made
// (Error(user, "declared-shape")). Wrong operands raise what the ops raise, a wrong number of them
// "wrong-input-count", ids of nothing "hir-node"; a failed call leaves the module as it was.
#pragma once

#include "rlx/ops/blocks/hir_blocks.h"
#include "rlx/stages/builders/graph_builder.h"

namespace rlx {

// A node, or one of its results.
struct HirNodeId {
  int32_t index = -1, result = 0;
  auto operator<=>(const HirNodeId&) const = default;
};
std::string to_string(HirNodeId id);        // h3, h3:1
std::string hir_ids(const Values& values);  // h0, h3:1

inline constexpr FusionPolicy kAutodiffPolicy = FusionPolicy::fusable;
std::string_view name(FusionPolicy policy);  // "Fusable", "Direct"

using HirNode = Node;
using HirOp = AnyOp;
// What HIR says about a node: a block as its entry states it, a leaf, or any other op ("mir").
std::string_view kind_of(const HirNode& n);    // "SwiGLU", "Input", "Mir"
std::string hir_text(const HirNode& n);        // "linear+bias+gelu", "mir(matmul)"
std::string label_of(const HirNode& n);        // the author's, or the block's; "" for others
std::string expected_inputs(const HirOp& op);  // "4"; "" when not counted

// The block builders, in terms of one function.
class HirBlocks {
 public:
  HirBlocks() = default;
  HirBlocks(const HirBlocks&) = default;
  HirBlocks(HirBlocks&&) = default;
  HirBlocks& operator=(const HirBlocks&) = default;
  HirBlocks& operator=(HirBlocks&&) = default;
  virtual ~HirBlocks() = default;

  using Ids = std::vector<HirNodeId>;
  using MaybeId = std::optional<HirNodeId>;

  // Any op on nodes; what the builders below call.
  virtual HirNodeId push(const HirOp& op, const Ids& inputs, const Declared& declared = {}) = 0;

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
  // The last state is result 1.
  HirNodeId gated_delta_net(HirNodeId q, HirNodeId k, HirNodeId v, HirNodeId g, HirNodeId beta,
                            int64_t state_size, const Declared& out_shape = {});
  HirNodeId gated_delta_net_carry(HirNodeId q, HirNodeId k, HirNodeId v, HirNodeId g,
                                  HirNodeId beta, HirNodeId state, int64_t state_size,
                                  const Declared& out_shape = {});
  HirNodeId rope(HirNodeId x, HirNodeId cos, HirNodeId sin, int64_t head_dim, int64_t n_rot,
                 const Declared& out_shape = {});
  HirNodeId rms_norm(HirNodeId x, HirNodeId gamma, HirNodeId beta, double eps,
                     const Declared& out_shape = {});
};

class HirModule final : public HirBlocks {
 public:
  FusionPolicy fusion_policy = FusionPolicy::direct;

  explicit HirModule(std::string module_name) : g_(std::move(module_name)) {}
  // Blocks and ops as they stand in the graph. Its policy is `fusable`: a graph's blocks are what their entries say.
  static HirModule from_graph(Graph g) {
    return HirModule(std::move(g)).with_fusion_policy(FusionPolicy::fusable);
  }
  // The same without labels and provenance, and with the policy of new modules.
  static HirModule wrap_mir_graph(Graph g);

  HirModule& with_fusion_policy(FusionPolicy policy) {
    fusion_policy = policy;
    return *this;
  }
  const std::string& name() const { return graph().name; }
  size_t len() const { return g_.len(); }
  bool is_empty() const { return g_.is_empty(); }
  const Graph& graph() const { return g_.graph(); }
  std::span<const HirNode> nodes() const { return g_.nodes(); }
  const HirNode& node(HirNodeId id) const;
  HirNode& node_mut(HirNodeId id);
  const Type& shape(HirNodeId id) const;
  Ids outputs() const;
  void set_outputs(const Ids& ids);
  // After a run the parameter has this value.
  void update(const std::string& leaf_name, HirNodeId value);
  // Names the node that `build` returns.
  HirNodeId named(const std::string& node_name, FunctionRef<HirNodeId(HirModule&)> build);

  HirNodeId push(const HirOp& op, const Ids& inputs, const Declared& declared = {}) override;
  HirNodeId input(const std::string& leaf_name, const Type& shape);
  HirNodeId input_batch_seq(const std::string& leaf_name, const std::string& batch_symbol,
                            const std::string& seq_symbol, int64_t hidden, DType dtype);
  HirNodeId param(const std::string& leaf_name, const Type& shape);
  HirNodeId constant(Tensor value) { return push({op::constant, {std::move(value)}}, {}); }
  HirNodeId llama_decoder_block(const Ids& inputs, const hir::LlamaDecoderBlock& block,
                                const Declared& out_shape = {}) {
    return push({op::hir_llama_decoder_block, block}, inputs, out_shape);
  }
  // The same block under the name "transformer_block".
  HirNodeId transformer_block(const Ids& inputs, const hir::LlamaDecoderBlock& block,
                              const Declared& out_shape = {});
  HirNodeId qwen35_mtp_head(const Ids& inputs, const hir::Qwen35MtpHead& block,
                            const Declared& out_shape = {}) {
    return push({op::hir_qwen35_mtp_head, block}, inputs, out_shape);
  }
  HirNodeId mir(const AnyOp& op, const Ids& inputs, const Declared& shape = {}) {
    return push(op, inputs, shape);
  }

  MirModule lower_to_mir() const;
  MirModule lower_for_autodiff() const;  // with the policy `fusable`
  std::string inspect() const;
  std::string to_string() const;

  friend bool operator==(const HirModule& a, const HirModule& b) {
    return a.fusion_policy == b.fusion_policy && a.graph() == b.graph();
  }

 private:
  explicit HirModule(Graph g) : g_(std::move(g)) {}
  Value value(HirNodeId id) const;  // raises "hir-node"
  GraphBuilder g_;
};

}  // namespace rlx
