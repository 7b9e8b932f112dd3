#include "rlx/stages/hir.h"

#include "rlx/stages/inspect.h"
#include "rlx/stages/module.h"

namespace rlx {
namespace {

std::string activation_name(Activation a) {
  return std::string(enum_names(a)[static_cast<size_t>(a)]);
}

// What is said about each kind of block, in the order of HirOp.
struct BlockWords {
  std::string_view kind, label;
};
constexpr BlockWords kWords[] = {
    {"Input", ""},
    {"Param", ""},
    {"Constant", ""},
    {"Linear", "linear"},
    {"LinearFused", "linear_fused"},
    {"SharedLinearPair", "shared_linear_pair"},
    {"SwiGLU", "swiglu_ffn"},
    {"ResidualRmsNorm", "residual_rms_norm"},
    {"Attention", "attention"},
    {"DepthwiseConv1dCausal", "depthwise_conv1d_causal"},
    {"DequantMatMul", "dequant_matmul"},
    {"GatedDeltaNet", "gated_delta_net"},
    {"RoPE", "rope"},
    {"RmsNorm", "rms_norm"},
    {"LlamaDecoderBlock", "llama_decoder_block"},
    {"Qwen35MtpHead", "qwen35_mtp_head"},
    {"Mir", "mir"},
};
static_assert(std::size(kWords) == std::variant_size_v<HirOp>);

struct Text {
  std::string operator()(const hir::Input& o) const { return "input(" + quote(o.name) + ")"; }
  std::string operator()(const hir::Param& o) const { return "param(" + quote(o.name) + ")"; }
  std::string operator()(const hir::Constant& o) const {
    return fmt::format("constant({} bytes)", o.value.type().bytes());
  }
  std::string operator()(const hir::Linear& o) const {
    return fmt::format("linear{}{}", o.has_bias ? "+bias" : "",
                       o.activation ? "+" + activation_name(*o.activation) : "");
  }
  std::string operator()(const hir::LinearFused& o) const {
    return o.activation ? fmt::format("linear_fused({})", activation_name(*o.activation))
                        : "linear_fused";
  }
  std::string operator()(const hir::SharedLinearPair& o) const {
    return fmt::format("shared_linear_pair(out={})", o.slot);
  }
  std::string operator()(const hir::SwiGLU&) const { return "swiglu_ffn"; }
  std::string operator()(const hir::ResidualRmsNorm& o) const {
    return fmt::format("residual_rms_norm(eps={})", o.eps);
  }
  std::string operator()(const hir::Attention& o) const {
    return fmt::format("attention(heads={}, dim={}, mask={})", o.num_heads, o.head_dim,
                       o.mask.to_string());
  }
  std::string operator()(const hir::DepthwiseConv1dCausal& o) const {
    return fmt::format("depthwise_conv1d_causal(k={})", o.kernel_size);
  }
  std::string operator()(const hir::DequantMatMul& o) const {
    return fmt::format("dequant_matmul({})", o.scheme.to_string());
  }
  std::string operator()(const hir::GatedDeltaNet& o) const {
    return fmt::format("gated_delta_net(n={}{})", o.state_size, o.carry_state ? ",carry" : "");
  }
  std::string operator()(const hir::RoPE& o) const {
    return fmt::format("rope(d={}, n_rot={})", o.head_dim, o.n_rot);
  }
  std::string operator()(const hir::RmsNorm& o) const {
    return fmt::format("rms_norm(eps={})", o.eps);
  }
  std::string operator()(const hir::LlamaDecoderBlock& o) const {
    return fmt::format("llama_decoder_block(heads={}, dim={}, kv={}, eps={}, mask={})", o.num_heads,
                       o.head_dim, o.num_kv_heads, o.eps, o.mask.to_string());
  }
  std::string operator()(const hir::Qwen35MtpHead& o) const {
    return fmt::format("qwen35_mtp_head(heads={}, dim={}, vocab={})", o.num_heads, o.head_dim,
                       o.mtp_vocab);
  }
  std::string operator()(const hir::Mir& o) const {
    return fmt::format("mir({})", op_text(*o.op.def, o.op.attrs));
  }
};

// How many operands a block takes; none for those that are not counted here.
struct Arity {
  using Count = std::optional<size_t>;
  Count operator()(const hir::Linear& o) const { return o.has_bias ? 3 : 2; }
  Count operator()(const hir::LinearFused&) const { return 3; }
  Count operator()(const hir::SharedLinearPair&) const { return 3; }
  Count operator()(const hir::SwiGLU&) const { return 4; }
  Count operator()(const hir::ResidualRmsNorm&) const { return 4; }
  Count operator()(const hir::Attention& o) const { return o.mask.has_operand() ? 4 : 3; }
  Count operator()(const hir::DepthwiseConv1dCausal&) const { return 3; }
  Count operator()(const hir::DequantMatMul& o) const { return o.scheme.is_gguf() ? 2 : 4; }
  Count operator()(const hir::GatedDeltaNet& o) const { return o.carry_state ? 6 : 5; }
  Count operator()(const hir::RoPE&) const { return 3; }
  Count operator()(const hir::RmsNorm&) const { return 3; }
  Count operator()(const hir::LlamaDecoderBlock& o) const { return o.mask.has_operand() ? 15 : 14; }
  Count operator()(const hir::Qwen35MtpHead&) const { return 29; }
  template <class Other>
  Count operator()(const Other&) const {
    return std::nullopt;
  }
};

bool is_leaf(const HirOp& op) {
  return std::holds_alternative<hir::Input>(op) || std::holds_alternative<hir::Param>(op);
}

}  // namespace

std::string to_string(HirNodeId id) { return fmt::format("h{}", id.index); }
std::string_view name(FusionPolicy policy) {
  return policy == FusionPolicy::direct ? "Direct" : "Fusable";
}
std::string_view kind_of(const HirOp& op) { return kWords[op.index()].kind; }
std::string to_string(const HirOp& op) { return std::visit(Text{}, op); }

std::string default_label(const HirOp& op) {
  std::string out(kWords[op.index()].label);
  if (const auto* pair = std::get_if<hir::SharedLinearPair>(&op))
    out += fmt::format("[{}]", pair->slot);
  if (const auto* product = std::get_if<hir::DequantMatMul>(&op))
    out += fmt::format("({})", product->scheme.to_string());
  if (const auto* net = std::get_if<hir::GatedDeltaNet>(&op); net && net->carry_state)
    out += "_carry";
  return out;
}

std::string expected_inputs(const HirOp& op) {
  const auto count = std::visit(Arity{}, op);
  return count ? std::to_string(*count) : std::string();
}

const HirNode& HirModule::node(HirNodeId id) const {
  user_check(id.index >= 0 && id.index < static_cast<int32_t>(nodes_.size()), "hir-node",
             "{} is not a node of module \"{}\"", rlx::to_string(id), name);
  return nodes_[static_cast<size_t>(id.index)];
}
HirNode& HirModule::node_mut(HirNodeId id) {
  return const_cast<HirNode&>(std::as_const(*this).node(id));
}

void HirModule::set_outputs(Ids ids) {
  for (HirNodeId id : ids) node(id);
  outputs = std::move(ids);
}

HirNodeId HirModule::named(const std::string& node_name, FunctionRef<HirNodeId(HirModule&)> build) {
  const HirNodeId id = build(*this);
  node_mut(id).name = node_name;
  return id;
}

HirNodeId HirModule::push(HirOp op, const Ids& inputs, const Declared& declared) {
  const auto count = std::visit(Arity{}, op);
  user_check(!count || *count == inputs.size(), "wrong-input-count",
             "{}: expected {} inputs, got {}", kind_of(op), expected_inputs(op), inputs.size());
  // A block has the type of what it lowers to on operands of these types.
  GraphBuilder scratch("block");
  Values in;
  for (HirNodeId id : inputs) in.push_back(scratch.input(fmt::format("x{}", in.size()), shape(id)));
  const Type leaf_shape = declared.value_or(Type{});
  const Type inferred =
      scratch.shape(HirLowering{fusion_policy}.lower(scratch, op, in, leaf_shape));
  user_check(!declared || *declared == inferred, "declared-shape",
             "{}: the result is {}, not {} as declared", rlx::to_string(op), inferred, leaf_shape);
  const HirNodeId id{static_cast<int32_t>(nodes_.size())};
  const bool labelled = !std::holds_alternative<hir::Mir>(op);
  std::string label = labelled ? default_label(op) : std::string();
  nodes_.push_back({id, std::move(op), inputs, inferred, std::move(label)});
  return id;
}

HirNodeId HirModule::input(const std::string& leaf_name, const Type& shape) {
  return push(hir::Input{leaf_name}, {}, shape);
}
HirNodeId HirModule::input_batch_seq(const std::string& leaf_name, const std::string& batch_symbol,
                                     const std::string& seq_symbol, int64_t hidden, DType dtype) {
  return input(leaf_name, {dtype, {Dim::symbol(batch_symbol), Dim::symbol(seq_symbol), hidden}});
}
HirNodeId HirModule::param(const std::string& leaf_name, const Type& shape) {
  return push(hir::Param{leaf_name}, {}, shape);
}
HirNodeId HirModule::constant(Tensor value) { return push(hir::Constant{std::move(value)}, {}); }

HirNodeId HirModule::linear(HirNodeId x, HirNodeId w, const MaybeId& bias,
                            std::optional<Activation> act, const Declared& out_shape) {
  Ids in{x, w};
  if (bias) in.push_back(*bias);
  return push(hir::Linear{act, bias.has_value()}, in, out_shape);
}
HirNodeId HirModule::linear_fused(HirNodeId x, HirNodeId w, HirNodeId bias,
                                  std::optional<Activation> act, const Declared& out_shape) {
  return push(hir::LinearFused{act}, {x, w, bias}, out_shape);
}
std::pair<HirNodeId, HirNodeId> HirModule::shared_linear_pair(HirNodeId x, HirNodeId w_first,
                                                              HirNodeId w_second,
                                                              const Declared& out_shape) {
  const HirNodeId first = push(hir::SharedLinearPair{0}, {x, w_first, w_second}, out_shape);
  return {first, push(hir::SharedLinearPair{1}, {x, w_first, w_second}, out_shape)};
}
HirNodeId HirModule::swiglu_ffn(HirNodeId x, HirNodeId up_w, HirNodeId gate_w, HirNodeId down_w,
                                const Declared& out_shape) {
  return push(hir::SwiGLU{}, {x, up_w, gate_w, down_w}, out_shape);
}
HirNodeId HirModule::residual_rms_norm(HirNodeId x, HirNodeId residual, HirNodeId gamma,
                                       HirNodeId beta, double eps, const Declared& out_shape) {
  return push(hir::ResidualRmsNorm{eps}, {x, residual, gamma, beta}, out_shape);
}
HirNodeId HirModule::attention(HirNodeId q, HirNodeId k, HirNodeId v, const MaybeId& mask,
                               int64_t num_heads, int64_t head_dim, const AttentionMask& mask_kind,
                               const Declared& out_shape) {
  Ids in{q, k, v};
  if (mask) in.push_back(*mask);
  return push(hir::Attention{num_heads, head_dim, mask_kind}, in, out_shape);
}
HirNodeId HirModule::depthwise_conv1d_causal(HirNodeId x, HirNodeId weight, HirNodeId left_pad,
                                             int64_t kernel_size, const Declared& out_shape) {
  return push(hir::DepthwiseConv1dCausal{kernel_size}, {x, weight, left_pad}, out_shape);
}
HirNodeId HirModule::dequant_matmul(HirNodeId x, HirNodeId w, const MaybeId& scale,
                                    const MaybeId& zp, const QuantScheme& scheme,
                                    const Declared& out_shape) {
  const bool apart = !scheme.is_gguf();
  user_check(scale.has_value() == apart && zp.has_value() == apart, "quant-operands",
             "dequant_matmul: {} {} a scale and a zero point", scheme.to_string(),
             apart ? "needs" : "holds its scales and takes no");
  return push(hir::DequantMatMul{scheme}, apart ? Ids{x, w, *scale, *zp} : Ids{x, w}, out_shape);
}
HirNodeId HirModule::gated_delta_net(HirNodeId q, HirNodeId k, HirNodeId v, HirNodeId g,
                                     HirNodeId beta, int64_t state_size,
                                     const Declared& out_shape) {
  return push(hir::GatedDeltaNet{state_size, false}, {q, k, v, g, beta}, out_shape);
}
HirNodeId HirModule::gated_delta_net_carry(HirNodeId q, HirNodeId k, HirNodeId v, HirNodeId g,
                                           HirNodeId beta, HirNodeId state, int64_t state_size,
                                           const Declared& out_shape) {
  return push(hir::GatedDeltaNet{state_size, true}, {q, k, v, g, beta, state}, out_shape);
}
HirNodeId HirModule::rope(HirNodeId x, HirNodeId cos, HirNodeId sin, int64_t head_dim,
                          int64_t n_rot, const Declared& out_shape) {
  return push(hir::RoPE{head_dim, n_rot}, {x, cos, sin}, out_shape);
}
HirNodeId HirModule::rms_norm(HirNodeId x, HirNodeId gamma, HirNodeId beta, double eps,
                              const Declared& out_shape) {
  return push(hir::RmsNorm{eps}, {x, gamma, beta}, out_shape);
}
HirNodeId HirModule::llama_decoder_block(const Ids& inputs, const hir::LlamaDecoderBlock& block,
                                         const Declared& out_shape) {
  return push(block, inputs, out_shape);
}
HirNodeId HirModule::transformer_block(const Ids& inputs, const hir::LlamaDecoderBlock& block,
                                       const Declared& out_shape) {
  const HirNodeId id = push(block, inputs, out_shape);
  nodes_.back().name = "transformer_block";
  return id;
}
HirNodeId HirModule::qwen35_mtp_head(const Ids& inputs, const hir::Qwen35MtpHead& block,
                                     const Declared& out_shape) {
  return push(block, inputs, out_shape);
}
HirNodeId HirModule::mir(const AnyOp& op, const Ids& inputs, const Declared& shape) {
  return push(hir::Mir{op}, inputs, shape);
}

HirModule HirModule::wrap_mir_graph(const Graph& g) {
  HirModule m(g.name);
  user_check(g.updates.empty(), "hir-results",
             "wrap_mir_graph: \"{}\" updates parameters, which HIR cannot say", g.name);
  const auto id_of = [&](Value v) {
    user_check(v.index == 0, "hir-results",
               "wrap_mir_graph: {} is not the first result of its node", v);
    return HirNodeId{v.node};
  };
  for (const Node& n : g.nodes) {
    Ids in;
    for (Value v : n.in) in.push_back(id_of(v));
    m.mir({*n.op, n.attrs}, in);
  }
  for (Value v : g.outputs) m.outputs.push_back(id_of(v));
  return m;
}

MirModule HirModule::lower_to_mir() const {
  GraphBuilder g(name);
  HirLowering lowering{fusion_policy};
  Values map;
  for (const HirNode& n : nodes_) {
    Values in;
    for (HirNodeId id : n.inputs) {
      user_check(id.index >= 0 && id.index < n.id.index, "hir-node",
                 "{}: {} does not come before it", rlx::to_string(n.id), rlx::to_string(id));
      in.push_back(map[static_cast<size_t>(id.index)]);
    }
    if (!is_leaf(n.op)) {
      g.builder().set_label(n.name.empty() ? default_label(n.op) : n.name);
      g.builder().set_pass("hir:" + rlx::to_string(n.id));
    }
    map.push_back(lowering.lower(g, n.op, in, n.shape));
    g.builder().set_origin({});
    user_check(g.shape(map.back()) == n.shape, "declared-shape",
               "{} {}: lowered to {}, declared {}", rlx::to_string(n.id), rlx::to_string(n.op),
               g.shape(map.back()), n.shape);
  }
  Values out;
  for (HirNodeId id : outputs) {
    node(id);
    out.push_back(map[static_cast<size_t>(id.index)]);
  }
  g.set_outputs(std::move(out));
  return MirModule(g.finish());
}

MirModule HirModule::lower_for_autodiff() const {
  HirModule copy = *this;
  return copy.with_fusion_policy(kAutodiffPolicy).lower_to_mir();
}

std::string HirModule::inspect() const { return inspect_hir(*this); }

std::string HirModule::to_string() const {
  const auto list = [](const Ids& ids) {
    std::string out;
    for (HirNodeId id : ids) out += (out.empty() ? "" : ", ") + rlx::to_string(id);
    return out;
  };
  std::string out = fmt::format("hir @{} {{\n", name);
  for (const HirNode& n : nodes_) {
    const std::string in = n.inputs.empty() ? "" : "(" + list(n.inputs) + ")";
    out +=
        fmt::format("  {} = {}{} : {}\n", rlx::to_string(n.id), rlx::to_string(n.op), in, n.shape);
  }
  if (!outputs.empty()) out += fmt::format("  return {}\n", list(outputs));
  return out + "}\n";
}

}  // namespace rlx
