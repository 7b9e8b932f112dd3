#include "rlx/stages/hir.h"

#include "rlx/ir/verify.h"
#include "rlx/passes/passes.h"
#include "rlx/stages/inspect.h"
#include "rlx/stages/module.h"

namespace rlx {

std::string to_string(HirNodeId id) {
  return id.result == 0 ? fmt::format("h{}", id.index) : fmt::format("h{}:{}", id.index, id.result);
}
std::string hir_ids(const Values& values) {
  std::vector<std::string> parts;
  for (Value v : values) parts.push_back(to_string(HirNodeId{v.node, v.index}));
  return fmt::format("{}", fmt::join(parts, ", "));
}
std::string_view name(FusionPolicy policy) {
  return policy == FusionPolicy::direct ? "Direct" : "Fusable";
}

std::string_view kind_of(const HirNode& n) {
  if (n.op->block) return n.op->block->kind;
  return n.op->kind == Kind::leaf ? n.op->reference : "Mir";
}

std::string hir_text(const HirNode& n) {
  if (n.op->block) return block_text(*n.op, n.attrs);
  if (n.op == &op::constant) return fmt::format("constant({} bytes)", n.type().bytes());
  const std::string text = op_text(*n.op, n.attrs);
  return n.op->kind == Kind::leaf ? text : fmt::format("mir({})", text);
}

std::string label_of(const HirNode& n) {
  if (!n.origin.label.empty() || !n.op->block) return n.origin.label.str();
  return block_label(*n.op, n.attrs);
}

std::string expected_inputs(const HirOp& op) {
  return op.def->block ? std::to_string(block_operands(*op.def, op.attrs)) : std::string();
}

// ---- blocks

HirNodeId HirBlocks::linear(HirNodeId x, HirNodeId w, const MaybeId& bias,
                            std::optional<Activation> act, const Declared& out_shape) {
  Ids in{x, w};
  if (bias) in.push_back(*bias);
  return push({op::hir_linear, {act, bias.has_value()}}, in, out_shape);
}
HirNodeId HirBlocks::linear_fused(HirNodeId x, HirNodeId w, HirNodeId bias,
                                  std::optional<Activation> act, const Declared& out_shape) {
  return push({op::hir_linear_fused, {act}}, {x, w, bias}, out_shape);
}
std::pair<HirNodeId, HirNodeId> HirBlocks::shared_linear_pair(HirNodeId x, HirNodeId w_first,
                                                              HirNodeId w_second,
                                                              const Declared& out_shape) {
  const Ids in{x, w_first, w_second};
  const HirNodeId first = push({op::hir_shared_linear_pair, {0}}, in, out_shape);
  return {first, push({op::hir_shared_linear_pair, {1}}, in, out_shape)};
}
HirNodeId HirBlocks::swiglu_ffn(HirNodeId x, HirNodeId up_w, HirNodeId gate_w, HirNodeId down_w,
                                const Declared& out_shape) {
  return push(op::hir_swiglu_ffn, {x, up_w, gate_w, down_w}, out_shape);
}
HirNodeId HirBlocks::residual_rms_norm(HirNodeId x, HirNodeId residual, HirNodeId gamma,
                                       HirNodeId beta, double eps, const Declared& out_shape) {
  return push({op::hir_residual_rms_norm, {eps}}, {x, residual, gamma, beta}, out_shape);
}
HirNodeId HirBlocks::attention(HirNodeId q, HirNodeId k, HirNodeId v, const MaybeId& mask,
                               int64_t num_heads, int64_t head_dim, const AttentionMask& mask_kind,
                               const Declared& out_shape) {
  Ids in{q, k, v};
  if (mask) in.push_back(*mask);
  return push({op::hir_attention, {num_heads, head_dim, mask_kind}}, in, out_shape);
}
HirNodeId HirBlocks::depthwise_conv1d_causal(HirNodeId x, HirNodeId weight, HirNodeId left_pad,
                                             int64_t kernel_size, const Declared& out_shape) {
  return push({op::hir_depthwise_conv1d_causal, {kernel_size}}, {x, weight, left_pad}, out_shape);
}
HirNodeId HirBlocks::dequant_matmul(HirNodeId x, HirNodeId w, const MaybeId& scale,
                                    const MaybeId& zp, const QuantScheme& scheme,
                                    const Declared& out_shape) {
  const bool apart = !scheme.is_gguf();
  user_check(scale.has_value() == apart && zp.has_value() == apart, "quant-operands",
             "dequant_matmul: {} {} a scale and a zero point", scheme.to_string(),
             apart ? "needs" : "holds its scales and takes no");
  return push({op::hir_dequant_matmul, {scheme}}, apart ? Ids{x, w, *scale, *zp} : Ids{x, w},
              out_shape);
}
HirNodeId HirBlocks::gated_delta_net(HirNodeId q, HirNodeId k, HirNodeId v, HirNodeId g,
                                     HirNodeId beta, int64_t state_size,
                                     const Declared& out_shape) {
  return push({op::hir_gated_delta_net, {state_size, false}}, {q, k, v, g, beta}, out_shape);
}
HirNodeId HirBlocks::gated_delta_net_carry(HirNodeId q, HirNodeId k, HirNodeId v, HirNodeId g,
                                           HirNodeId beta, HirNodeId state, int64_t state_size,
                                           const Declared& out_shape) {
  return push({op::hir_gated_delta_net, {state_size, true}}, {q, k, v, g, beta, state}, out_shape);
}
HirNodeId HirBlocks::rope(HirNodeId x, HirNodeId cos, HirNodeId sin, int64_t head_dim,
                          int64_t n_rot, const Declared& out_shape) {
  return push({op::hir_rope, {head_dim, n_rot}}, {x, cos, sin}, out_shape);
}
HirNodeId HirBlocks::rms_norm(HirNodeId x, HirNodeId gamma, HirNodeId beta, double eps,
                              const Declared& out_shape) {
  return push({op::hir_rms_norm, {eps}}, {x, gamma, beta}, out_shape);
}

// ---- modules

Value HirModule::value(HirNodeId id) const {
  const auto nodes = g_.nodes();
  user_check(id.index >= 0 && id.index < static_cast<int32_t>(nodes.size()) && id.result >= 0 &&
                 id.result < static_cast<int32_t>(nodes[static_cast<size_t>(id.index)].out.size()),
             "hir-node", "{} is not a node of module \"{}\"", rlx::to_string(id), name());
  return {id.index, id.result};
}
const HirNode& HirModule::node(HirNodeId id) const { return graph().node(value(id)); }
HirNode& HirModule::node_mut(HirNodeId id) { return g_.node_mut(value(id)); }
const Type& HirModule::shape(HirNodeId id) const { return graph().type(value(id)); }

HirModule::Ids HirModule::outputs() const {
  Ids out;
  for (Value v : graph().outputs) out.push_back({v.node, v.index});
  return out;
}
void HirModule::set_outputs(const Ids& ids) {
  Values out;
  for (HirNodeId id : ids) out.push_back(value(id));
  g_.set_outputs(std::move(out));
}
void HirModule::update(const std::string& leaf_name, HirNodeId id) {
  g_.builder().update(leaf_name, value(id));
}

HirNodeId HirModule::named(const std::string& node_name, FunctionRef<HirNodeId(HirModule&)> build) {
  const HirNodeId id = build(*this);
  node_mut(id).origin.label = node_name;
  return id;
}

HirNodeId HirModule::push(const HirOp& op, const Ids& inputs, const Declared& declared) {
  Values in;
  for (HirNodeId id : inputs) in.push_back(value(id));
  if (const Block* block = op.def->block) {
    user_check(inputs.size() == block_operands(*op.def, op.attrs), "wrong-input-count",
               "{}: expected {} inputs, got {}", block->kind, expected_inputs(op), inputs.size());
    // Fused ops, which this module may lower to, must take the operands, too.
    Builder scratch("block");
    Values on;
    for (HirNodeId id : inputs)
      on.push_back(scratch.input(fmt::format("x{}", on.size()), shape(id)));
    if (block->fused) expand_block(scratch, {op.def, op.attrs, on, {}, {}}, on, fusion_policy);
  }
  return {g_.append_node(op, in, declared).node};
}

HirNodeId HirModule::input(const std::string& leaf_name, const Type& shape) {
  return {g_.input(leaf_name, shape).node};
}
HirNodeId HirModule::input_batch_seq(const std::string& leaf_name, const std::string& batch_symbol,
                                     const std::string& seq_symbol, int64_t hidden, DType dtype) {
  return input(leaf_name, {dtype, {Dim::symbol(batch_symbol), Dim::symbol(seq_symbol), hidden}});
}
HirNodeId HirModule::param(const std::string& leaf_name, const Type& shape) {
  return {g_.param(leaf_name, shape).node};
}
HirNodeId HirModule::transformer_block(const Ids& inputs, const hir::LlamaDecoderBlock& block,
                                       const Declared& out_shape) {
  return named("transformer_block",
               [&](HirModule& m) { return m.llama_decoder_block(inputs, block, out_shape); });
}

HirModule HirModule::wrap_mir_graph(Graph g) {
  for (Node& n : g.nodes) n.origin = {};
  return HirModule(std::move(g));
}

MirModule HirModule::lower_to_mir() const {
  Graph g = graph();
  for (int32_t i = 0; i < g.size(); ++i) {
    Node& n = g.node(i);
    for (Value v : n.in)
      user_check(v.node >= 0 && v.node < i, "hir-node", "{}: {} does not come before it",
                 rlx::to_string(HirNodeId{i}), rlx::to_string(HirNodeId{v.node}));
    if (n.op == &op::input || n.op == &op::param || n.op->block) continue;
    if (n.origin.label.empty() && n.op != &op::constant) n.origin.label = "mir";
    if (n.origin.pass.empty()) n.origin.pass = "hir:" + rlx::to_string(HirNodeId{i});
  }
  verify(g);
  PassOptions options;
  options.arguments["fusion"] = enum_names(fusion_policy)[static_cast<size_t>(fusion_policy)];
  g = run_pass(std::move(g), pass::lower_blocks, options);
  verify(g);
  return g;
}

MirModule HirModule::lower_for_autodiff() const {
  HirModule copy = *this;
  return copy.with_fusion_policy(kAutodiffPolicy).lower_to_mir();
}

std::string HirModule::inspect() const { return inspect_hir(*this); }

std::string HirModule::to_string() const {
  std::string out = fmt::format("hir @{} {{\n", name());
  for (int32_t i = 0; i < graph().size(); ++i) {
    const HirNode& n = nodes()[static_cast<size_t>(i)];
    const std::string in = n.in.empty() ? "" : "(" + hir_ids(n.in) + ")";
    out += fmt::format("  h{} = {}{} : {}\n", i, hir_text(n), in, fmt::join(n.out, ", "));
  }
  if (!graph().outputs.empty()) out += fmt::format("  return {}\n", hir_ids(graph().outputs));
  return out + "}\n";
}

}  // namespace rlx
