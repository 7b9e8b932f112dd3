#include "rlx/ops/blocks/hir_blocks.h"

#include <algorithm>

#include "rlx/ops/blocks/fused.h"
#include "rlx/ops/composite_rules.h"
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/indexing/scatter.h"
#include "rlx/ops/linalg/linalg.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/quant/quantise.h"
#include "rlx/ops/sequence/sequence.h"

namespace rlx {

bool has_blocks(const Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [](const Node& n) {
    const auto inside = bodies(n.attrs);
    return n.op->stage() == Stage::hir ||
           std::any_of(inside.begin(), inside.end(),
                       [](const NamedBody& body) { return has_blocks(body.graph); });
  });
}

Values expand_block(Builder& b, const Node& n, Operands in, FusionPolicy policy) {
  const DecomposeRule fused = policy == FusionPolicy::direct ? n.op->block->fused : nullptr;
  return fused ? fused(b, n, in) : b.expand(n, in);
}

// ---- what follows from a block's attributes

size_t block_operands(const OpDef& op, const Attrs& attrs) {
  const auto asks = [&](const FieldInfo& f) {  // for the operands that may be left out
    if (const auto* flag = f.get<bool>(attrs.data())) return *flag;
    if (const auto* mask = f.get<AttentionMask>(attrs.data())) return mask->has_operand();
    const auto* scheme = f.get<QuantScheme>(attrs.data());
    return scheme && !scheme->is_gguf();
  };
  const auto fields = attrs.fields();
  const bool all = op.min_arity == 0 || std::any_of(fields.begin(), fields.end(), asks);
  return static_cast<size_t>(all ? op.arity : op.min_arity);
}

namespace {

std::string value_text(const Attrs& attrs, std::string_view field) {
  for (const FieldInfo& f : attrs.fields()) {
    if (f.name != field) continue;
    Printer p;
    f.print(p, attrs.data());
    return p.out;
  }
  check(false, "a block has no field {}", field);
  return {};
}

// The pattern with values for fields; see Block.
std::string fill_in(std::string_view pattern, const Attrs& attrs) {
  std::string out;
  while (true) {
    const size_t open = pattern.find('{'), close = pattern.find('}');
    out += pattern.substr(0, open);
    if (open == pattern.npos) return out;
    const std::string_view inner = pattern.substr(open + 1, close - open - 1);
    const size_t mark = inner.find('?');
    const std::string value = value_text(attrs, inner.substr(0, mark));
    if (mark == inner.npos) out += value;
    if (mark != inner.npos && value != "false" && value != "none")
      for (char c : inner.substr(mark + 1)) out += c == '*' ? value : std::string(1, c);
    pattern.remove_prefix(close + 1);
  }
}

Types infer_block(const InferArgs& a) {
  const size_t count = block_operands(a.op, a.attrs);
  if (a.in.size() != count)
    bad_operands(a, "wrong-input-count",
                 fmt::format("these attributes ask for {} operands", count));
  return infer_decomposed(a);
}

}  // namespace

std::string block_text(const OpDef& op, const Attrs& attrs) {
  return fill_in(op.block->text, attrs);
}
std::string block_label(const OpDef& op, const Attrs& attrs) {
  return fill_in(op.block->label, attrs);
}

// ---- definitions

namespace {

Value mm(Builder& b, Value x, Value w) { return op::matmul(b, x, w); }
Value last_norm(Builder& b, Value x, Value gamma, Value beta, double eps) {
  return op::rms_norm(b, x, gamma, beta, {-1, eps});
}
Value columns(Builder& b, Value x, const Dim& first, const Dim& count) {
  SliceAttrs s{.start = Shape(b.shape(x).size(), Dim(0)), .limit = b.shape(x), .stride = {}};
  s.start.back() = first, s.limit.back() = first + count;
  return op::slice(b, x, s);
}

// silu(x gate) * (x up), down.
Value gated_ffn(Builder& b, Value x, Value gate_w, Value up_w, Value down_w) {
  const Value gate = mm(b, x, gate_w), up = mm(b, x, up_w);
  return mm(b, op::mul(b, op::silu(b, gate), up), down_w);
}

// The operands are q, k, v and what the mask asks for.
Value attend_heads(Builder& b, const Values& in, int64_t heads, int64_t head_dim,
                   const AttentionMask& mask) {
  const AttentionAttrs a =
      attention_attributes(b.type(in[0]), b.type(in[1]), b.type(in[2]), heads, head_dim, mask);
  return b.emit(op::attention.def, a, in)[0];
}

Values fused_linear(Builder& b, Operands in, std::optional<Activation> act) {
  return {op::fused_matmul_bias_act(b, {in[0], in[1], in[2]},
                                    {act ? std::string(op_of(*act).name) : std::string()})};
}

Values linear(Builder& b, const Node& n, Operands in) {
  Value y = mm(b, in[0], in[1]);
  if (in.size() > 2) y = op::add(b, y, in[2]);
  const auto act = n.get<hir::Linear>().activation;
  return {act ? emit(b, op_of(*act), NoAttrs{}, {y}) : y};
}

Values linear_at_once(Builder& b, const Node& n, Operands in) {
  return in.size() > 2 ? fused_linear(b, in, n.get<hir::Linear>().activation) : linear(b, n, in);
}

// Both products must be possible; a node is one of them.
Values one_of_pair(Builder& b, const Node& n, Operands in) {
  const size_t mine = n.get<hir::SharedLinearPair>().slot == 0 ? 1 : 2;
  const Type other[] = {b.type(in[0]), b.type(in[3 - mine])};
  infer_types(op::matmul.def, MatmulAttrs{}, other);
  return {mm(b, in[0], in[mine])};
}

Values swiglu_parts(Builder& b, const Node&, Operands in) {
  const Value up = mm(b, in[0], in[1]), gate = mm(b, in[0], in[2]);
  return {mm(b, op::mul(b, up, op::silu(b, gate)), in[3])};
}

Values swiglu_at_once(Builder& b, const Node&, Operands in) {
  const Value both = mm(b, in[0], op::concat(b, {in[1], in[2]}, {.axis = 1}));
  return {mm(b, op::fused_swiglu(b, both), in[3])};
}

Values norm_of_sum(Builder& b, const Node& n, Operands in) {
  return {last_norm(b, op::add(b, in[0], in[1]), in[2], in[3], n.get<hir::RmsNorm>().eps)};
}

Values norm_of_sum_at_once(Builder& b, const Node& n, Operands in) {
  return {op::fused_residual_rms_norm(b, {in[0], in[1], in[2], in[3]},
                                      {.eps = n.get<hir::RmsNorm>().eps})};
}

// A convolution [1, K] over [B, C, 1, K - 1 + S] with a group per channel.
Values depthwise_conv(Builder& b, const Node& n, Operands in) {
  const Shape x = b.shape(in[0]), w = b.shape(in[1]);
  const int64_t k = n.get<hir::DepthwiseConv1dCausal>().kernel_size;
  user_check(x.rank() == 3 && w.rank() == 4 && w[3] == Dim(k), "conv-shape",
             "input {} and weight {} are not [B, S, C] and [C, 1, 1, {}]", b.type(in[0]),
             b.type(in[1]), k);
  const Value rows = op::concat(b, {in[2], in[0]}, {.axis = 1});
  const Value channels = op::transpose(b, rows, {{0, 2, 1}});
  const Shape padded = b.shape(channels);
  const Value image = reshape_to(b, channels, {padded[0], padded[1], 1, padded[2]});
  const Value y = op::conv(b, image, in[1], {.groups = x[2]});
  return {op::transpose(b, reshape_to(b, y, {x[0], x[2], x[1]}), {{0, 2, 1}})};
}

Values delta_net(Builder& b, const Node& n, Operands in) {
  const Type& q = b.type(in[0]);
  const int64_t size = n.get<hir::GatedDeltaNet>().state_size;
  user_check(q.rank() > 0 && q.shape.back() == Dim(size), "sequence-shape",
             "a state of {} does not fit {}", size, q);
  return b.emit(op::gated_delta_net.def, NoAttrs{}, in);
}

Values llama_layer(Builder& b, const Node& n, Operands in) {
  const auto& o = n.get<hir::LlamaDecoderBlock>();
  const Value x = in[0];
  const auto rope = [&](Value v) {
    return op::rope(b, v, in[12], in[13], {o.head_dim, o.head_dim});
  };
  const Value n1 = last_norm(b, x, in[1], in[2], o.eps);
  const Value q = mm(b, n1, in[3]), k = mm(b, n1, in[4]), v = mm(b, n1, in[5]);
  user_check(o.num_kv_heads > 0 && b.shape(k).back() == Dim(o.num_kv_heads) * Dim(o.head_dim),
             "attention-heads", "{} key heads of width {} do not fit k {}", o.num_kv_heads,
             o.head_dim, b.type(k));
  const Value turned = rope(q);
  Values qkv{turned, rope(k), v};
  if (in.size() > 14) qkv.push_back(in[14]);
  const Value a = attend_heads(b, qkv, o.num_heads, o.head_dim, o.mask);
  const Value h1 = op::add(b, x, mm(b, a, in[6]));
  const Value n2 = last_norm(b, h1, in[7], in[8], o.eps);
  return {op::add(b, h1, gated_ffn(b, n2, in[9], in[10], in[11]))};
}

// Dims of x with the last one split into (heads, width).
Shape split_heads(const Shape& s, const Dim& heads, const Dim& width) {
  Shape out(s.begin(), s.end() - 1);
  out.insert(out.end(), {heads, width});
  return out;
}

// The norm of each head on its own.
Value norm_heads(Builder& b, Value x, int64_t heads, int64_t width, Value gamma, Value beta,
                 double eps) {
  const Shape flat = b.shape(x);
  const Value apart = reshape_to(b, x, split_heads(flat, heads, width));
  return reshape_to(b, last_norm(b, apart, gamma, beta, eps), flat);
}

// Attention whose output a second projection gates: the columns of a head are [q | gate].
Value gated_attention(Builder& b, const hir::Qwen35MtpHead& o, Operands in, Value x) {
  const int64_t heads = o.num_heads, width = o.head_dim;
  const auto rope = [&](Value v) { return op::rope(b, v, in[2], in[3], {width, o.n_rot}); };
  const Value q_gate = mm(b, x, in[13]);
  Shape flat = b.shape(q_gate);
  const Value apart = reshape_to(b, q_gate, split_heads(flat, heads, Dim(2) * Dim(width)));
  flat.back() = Dim(heads) * Dim(width);
  Value q = reshape_to(b, columns(b, apart, 0, width), flat);
  const Value gate = reshape_to(b, columns(b, apart, width, width), flat);
  Value k = mm(b, x, in[14]);
  const Value v = mm(b, x, in[15]);
  q = norm_heads(b, q, heads, width, in[16], in[17], o.eps);
  k = norm_heads(b, k, o.num_kv_heads, width, in[18], in[19], o.eps);
  const Value turned = rope(q);
  const Value a = attend_heads(b, {turned, rope(k), v}, heads, width, AttentionMask::causal());
  return mm(b, op::mul(b, a, op::sigmoid(b, gate)), in[20]);
}

Values mtp_head(Builder& b, const Node& n, Operands in) {
  const auto& o = n.get<hir::Qwen35MtpHead>();
  const Value h = last_norm(b, in[0], in[6], in[7], o.eps);
  const Value e = last_norm(b, op::gather(b, in[5], in[1], {.axis = 0}), in[8], in[9], o.eps);
  const Value current = mm(b, op::concat(b, {e, h}, {.axis = 2}), in[10]);
  const Value attended = gated_attention(b, o, in, last_norm(b, current, in[11], in[12], o.eps));
  const Value h1 = op::add(b, current, attended);
  const Value f = last_norm(b, h1, in[21], in[22], o.eps);
  const Value h2 = op::add(b, h1, gated_ffn(b, f, in[23], in[24], in[25]));
  // Row last_token_idx[b] of batch b: [B, S, E] at [B, 1, 1] -> [B, 1, E].
  const Type& index = b.type(in[4]);
  user_check(index.rank() == 1, "sequence-shape", "last_token_idx {} is not [B]", index);
  const Value row = reshape_to(b, in[4], {index.shape[0], 1, 1});
  const Value last = op::gather_nd(b, h2, row, {.batch_dims = 1});
  return {mm(b, last_norm(b, last, in[26], in[27], o.eps), in[28])};
}

// ---- entries

constexpr OpDef block_entry(std::string_view name, std::string_view doc, const Block& block,
                            int min_arity, int arity, std::string_view operands,
                            DecomposeRule rule) {
  return {.name = name,
          .doc = doc,
          .block = &block,
          .arity = arity,
          .min_arity = min_arity,
          .operands = operands,
          .dtypes = kFloats,
          .infer = infer_block,
          .decompose = rule};
}

constexpr Block kLinearBlock{"Linear", "linear", "linear{has_bias?+bias}{activation?+*}",
                             linear_at_once};
constexpr Block kLinearFusedBlock{"LinearFused", "linear_fused", "linear_fused{activation?(*)}"};
constexpr Block kPairBlock{"SharedLinearPair", "shared_linear_pair[{slot}]",
                           "shared_linear_pair(out={slot})"};
constexpr Block kSwigluBlock{"SwiGLU", "swiglu_ffn", "swiglu_ffn", swiglu_at_once};
constexpr Block kResidualBlock{"ResidualRmsNorm", "residual_rms_norm",
                               "residual_rms_norm(eps={eps})", norm_of_sum_at_once};
constexpr Block kNormBlock{"RmsNorm", "rms_norm", "rms_norm(eps={eps})"};
constexpr Block kAttentionBlock{"Attention", "attention",
                                "attention(heads={num_heads}, dim={head_dim}, mask={mask})"};
constexpr Block kConvBlock{"DepthwiseConv1dCausal", "depthwise_conv1d_causal",
                           "depthwise_conv1d_causal(k={kernel_size})"};
constexpr Block kDequantBlock{"DequantMatMul", "dequant_matmul({scheme})",
                              "dequant_matmul({scheme})"};
constexpr Block kDeltaBlock{"GatedDeltaNet", "gated_delta_net{carry_state?_carry}",
                            "gated_delta_net(n={state_size}{carry_state?,carry})"};
constexpr Block kRopeBlock{"RoPE", "rope", "rope(d={head_dim}, n_rot={n_rot})"};
constexpr Block kLlamaBlock{
    "LlamaDecoderBlock", "llama_decoder_block",
    "llama_decoder_block(heads={num_heads}, dim={head_dim}, kv={num_kv_heads}, eps={eps}, "
    "mask={mask})"};
constexpr Block kMtpBlock{"Qwen35MtpHead", "qwen35_mtp_head",
                          "qwen35_mtp_head(heads={num_heads}, dim={head_dim}, vocab={mtp_vocab})"};

}  // namespace

namespace op {

constinit const Op<hir::Linear> hir_linear =
    block_entry("hir_linear", "activation(x w + bias).", kLinearBlock, 2, 3, "x, w, bias?", linear);
constinit const Op<hir::LinearFused> hir_linear_fused =
    block_entry("hir_linear_fused", "activation(x w + bias) as one fused op.", kLinearFusedBlock, 0,
                3, "x, w, bias", [](Builder& b, const Node& n, Operands in) {
                  return fused_linear(b, in, n.get<hir::LinearFused>().activation);
                });
constinit const Op<hir::SharedLinearPair> hir_shared_linear_pair = block_entry(
    "hir_shared_linear_pair",
    "One of the two products x w_first (slot 0) and x w_second of a pair that shares x.",
    kPairBlock, 0, 3, "x, w_first, w_second", one_of_pair);
constinit const Op<hir::SwiGLU> hir_swiglu_ffn =
    block_entry("hir_swiglu_ffn", "((x up_w) silu(x gate_w)) down_w.", kSwigluBlock, 0, 4,
                "x, up_w, gate_w, down_w", swiglu_parts);
constinit const Op<hir::ResidualRmsNorm> hir_residual_rms_norm =
    block_entry("hir_residual_rms_norm", "The RMS norm of x + residual over the last axis.",
                kResidualBlock, 0, 4, "x, residual, gamma, beta", norm_of_sum);
constinit const Op<hir::RmsNorm> hir_rms_norm =
    block_entry("hir_rms_norm", "The RMS norm of x over the last axis.", kNormBlock, 0, 3,
                "x, gamma, beta", [](Builder& b, const Node& n, Operands in) {
                  return Values{last_norm(b, in[0], in[1], in[2], n.get<hir::RmsNorm>().eps)};
                });
constinit const Op<hir::Attention> hir_attention = block_entry(
    "hir_attention",
    "Attention of num_heads heads of width head_dim; k and v may have fewer heads. The masks "
    "custom and bias are an operand.",
    kAttentionBlock, 3, 4, "q, k, v, mask_values?", [](Builder& b, const Node& n, Operands in) {
      const auto& o = n.get<hir::Attention>();
      return Values{attend_heads(b, {in.begin(), in.end()}, o.num_heads, o.head_dim, o.mask)};
    });
constinit const Op<hir::DepthwiseConv1dCausal> hir_depthwise_conv1d_causal = block_entry(
    "hir_depthwise_conv1d_causal",
    "Each channel of x [B, S, C] convolved with its row of weight [C, 1, 1, K]; left_pad [B, "
    "K - 1, C] is what came before.",
    kConvBlock, 0, 3, "x, weight, left_pad", depthwise_conv);
constinit const Op<hir::DequantMatMul> hir_dequant_matmul = block_entry(
    "hir_dequant_matmul",
    "The product of x with quantised weights; a block format of ggml holds its scales, other "
    "schemes take a scale and a zero point.",
    kDequantBlock, 2, 4, "x, w, scale?, zp?", [](Builder& b, const Node& n, Operands in) {
      return b.emit(op::dequant_matmul.def, DequantMatmulAttrs{n.get<hir::DequantMatMul>().scheme},
                    in);
    });
constinit const Op<hir::GatedDeltaNet> hir_gated_delta_net = block_entry(
    "hir_gated_delta_net",
    "The gated delta rule with states of width state_size; with carry_state it begins at the "
    "operand state. Results: the outputs and the last state.",
    kDeltaBlock, 5, 6, "q, k, v, g, beta, state?", delta_net);
constinit const Op<hir::RoPE> hir_rope = block_entry(
    "hir_rope", "Rotary positions: the first n_rot columns of each head of x are turned.",
    kRopeBlock, 0, 3, "x, cos, sin", [](Builder& b, const Node& n, Operands in) {
      const auto& o = n.get<hir::RoPE>();
      return Values{op::rope(b, in[0], in[1], in[2], {o.head_dim, o.n_rot})};
    });
constinit const Op<hir::LlamaDecoderBlock> hir_llama_decoder_block = block_entry(
    "hir_llama_decoder_block",
    "A decoder layer of the Llama family: norm, rotary attention with shared key heads, "
    "residual, norm, SwiGLU, residual.",
    kLlamaBlock, 14, 15,
    "x, ln1_g, ln1_b, q_w, k_w, v_w, o_w, ln2_g, ln2_b, gate_w, up_w, down_w, cos, sin, "
    "mask_values?",
    llama_layer);
constinit const Op<hir::Qwen35MtpHead> hir_qwen35_mtp_head = block_entry(
    "hir_qwen35_mtp_head",
    "The multi-token prediction head of Qwen 3.5: hidden states and embeddings joined, a "
    "layer with gated attention, logits of each batch's last token.",
    kMtpBlock, 0, 29,
    "h_pre_norm, input_ids, cos, sin, last_token_idx, embed_w, hnorm_w, hnorm_b, enorm_w, "
    "enorm_b, eh_w, attn_norm_w, attn_norm_b, q_gate_w, k_w, v_w, q_norm_w, q_norm_b, "
    "k_norm_w, k_norm_b, o_w, post_norm_w, post_norm_b, gate_w, up_w, down_w, head_norm_w, "
    "head_norm_b, lm_head_w",
    mtp_head);

}  // namespace op

namespace {
constexpr const OpDef* kHirBlockOps[] = {
    &op::hir_linear,
    &op::hir_linear_fused,
    &op::hir_shared_linear_pair,
    &op::hir_swiglu_ffn,
    &op::hir_residual_rms_norm,
    &op::hir_rms_norm,
    &op::hir_attention,
    &op::hir_depthwise_conv1d_causal,
    &op::hir_dequant_matmul,
    &op::hir_gated_delta_net,
    &op::hir_rope,
    &op::hir_llama_decoder_block,
    &op::hir_qwen35_mtp_head,
};
}  // namespace
constinit const Family kHirBlocks{"hir", kHirBlockOps};

}  // namespace rlx
