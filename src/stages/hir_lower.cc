// What each block lowers to.
#include "rlx/ops/conv.h"
#include "rlx/ops/movement.h"
#include "rlx/ops/rules.h"
#include "rlx/ops/scatter.h"
#include "rlx/stages/hir.h"

namespace rlx {
namespace {

// silu(x gate) * (x up), down.
NodeId gated_ffn(GraphBuilder& g, NodeId x, NodeId gate_w, NodeId up_w, NodeId down_w) {
  const NodeId gate = g.mm(x, gate_w), up = g.mm(x, up_w);
  return g.mm(g.mul(g.silu(gate), up), down_w);
}

NodeId attend(GraphBuilder& g, NodeId q, NodeId k, NodeId v, const MaybeNode& mask, int64_t heads,
              int64_t head_dim, const AttentionMask& kind) {
  if (!mask) return g.attention_kind(q, k, v, heads, head_dim, kind);
  return kind.kind == AttentionMask::Kind::bias ? g.attention_bias(q, k, v, *mask, heads, head_dim)
                                                : g.attention(q, k, v, *mask, heads, head_dim);
}

// Dims of x with the last one split into (heads, width).
Shape split_heads(const Shape& s, int64_t heads, int64_t width) {
  Shape out(s.begin(), s.end() - 1);
  out.insert(out.end(), {Dim(heads), Dim(width)});
  return out;
}

struct LowerBlock {
  HirLowering& state;
  GraphBuilder& g;
  const Values& in;
  const Type& leaf_shape;

  bool direct() const { return state.policy == FusionPolicy::direct; }
  MaybeNode optional(size_t i) const { return i < in.size() ? MaybeNode(in[i]) : std::nullopt; }

  NodeId operator()(const hir::Input& o) { return g.input(o.name, leaf_shape); }
  NodeId operator()(const hir::Param& o) { return g.param(o.name, leaf_shape); }
  NodeId operator()(const hir::Constant& o) { return g.constant(o.value); }

  NodeId operator()(const hir::Linear& o) {
    if (o.has_bias && direct()) return g.linear_fused(in[0], in[1], in[2], o.activation);
    return g.linear_bias_act(in[0], in[1], optional(2), o.activation);
  }
  NodeId operator()(const hir::LinearFused& o) {
    return g.linear_fused(in[0], in[1], in[2], o.activation);
  }
  NodeId operator()(const hir::SharedLinearPair& o) {
    const auto [place, fresh] = state.pairs.try_emplace(in);
    if (fresh) place->second = g.shared_matmul_pair(in[0], in[1], in[2]);
    return o.slot == 0 ? place->second.first : place->second.second;
  }
  NodeId operator()(const hir::SwiGLU&) {
    return direct() ? g.fused_swiglu_ffn(in[0], in[1], in[2], in[3])
                    : g.swiglu_ffn(in[0], in[1], in[2], in[3]);
  }
  NodeId operator()(const hir::ResidualRmsNorm& o) {
    if (direct()) return g.fused_residual_rms_norm(in[0], in[1], {}, in[2], in[3], o.eps);
    return g.rms_norm(g.add(in[0], in[1]), in[2], in[3], o.eps);
  }
  NodeId operator()(const hir::Attention& o) {
    return attend(g, in[0], in[1], in[2], optional(3), o.num_heads, o.head_dim, o.mask);
  }
  NodeId operator()(const hir::DequantMatMul& o) {
    if (o.scheme.is_gguf()) return g.dequant_matmul_packed(in[0], in[1], o.scheme);
    return g.dequant_matmul(in[0], in[1], in[2], in[3], o.scheme);
  }
  NodeId operator()(const hir::GatedDeltaNet& o) {
    if (!o.carry_state) return g.gated_delta_net(in[0], in[1], in[2], in[3], in[4], o.state_size);
    return g.gated_delta_net_carry(in[0], in[1], in[2], in[3], in[4], in[5], o.state_size);
  }
  NodeId operator()(const hir::RoPE& o) {
    return g.rope_n(in[0], in[1], in[2], o.head_dim, o.n_rot);
  }
  NodeId operator()(const hir::RmsNorm& o) { return g.rms_norm(in[0], in[1], in[2], o.eps); }
  NodeId operator()(const hir::Mir& o) { return g.add_node(o.op, in); }

  // A convolution [1, K] over [B, C, 1, K - 1 + S] with a group per channel.
  NodeId operator()(const hir::DepthwiseConv1dCausal& o) {
    const Shape &x = g.shape(in[0]).shape, &w = g.shape(in[1]).shape;
    user_check(
        x.rank() == 3 && w.rank() == 4 && w[3] == Dim(o.kernel_size), "conv-shape",
        "depthwise_conv1d_causal: input {} and weight {} are not [B, S, C] and [C, 1, 1, {}]",
        g.shape(in[0]), g.shape(in[1]), o.kernel_size);
    Builder& b = g.builder();
    const NodeId channels = g.transpose_(g.concat({in[2], in[0]}, 1), {0, 2, 1});
    const Shape padded = g.shape(channels).shape;
    const NodeId image = reshape_to(b, channels, {padded[0], padded[1], 1, padded[2]});
    const NodeId y = op::conv(b, image, in[1], {.groups = x[2]});
    return g.transpose_(reshape_to(b, y, {x[0], x[2], x[1]}), {0, 2, 1});
  }

  NodeId operator()(const hir::LlamaDecoderBlock& o) {
    const NodeId x = in[0], cos = in[12], sin = in[13];
    const NodeId n1 = g.rms_norm(x, in[1], in[2], o.eps);
    const NodeId q = g.mm(n1, in[3]), k = g.mm(n1, in[4]), v = g.mm(n1, in[5]);
    user_check(o.num_kv_heads > 0 && g.shape(k).shape.back() == Dim(o.num_kv_heads * o.head_dim),
               "attention-heads", "llama_decoder_block: {} key heads of width {} do not fit k {}",
               o.num_kv_heads, o.head_dim, g.shape(k));
    const NodeId a = attend(g, g.rope(q, cos, sin, o.head_dim), g.rope(k, cos, sin, o.head_dim), v,
                            optional(14), o.num_heads, o.head_dim, o.mask);
    const NodeId h1 = g.add(x, g.mm(a, in[6]));
    const NodeId n2 = g.rms_norm(h1, in[7], in[8], o.eps);
    return g.add(h1, gated_ffn(g, n2, in[9], in[10], in[11]));
  }

  // The norm of each head on its own.
  NodeId norm_heads(NodeId x, int64_t heads, int64_t width, NodeId gamma, NodeId beta, double eps) {
    const Shape flat = g.shape(x).shape;
    const NodeId apart = reshape_to(g.builder(), x, split_heads(flat, heads, width));
    return reshape_to(g.builder(), g.rms_norm(apart, gamma, beta, eps), flat);
  }

  // Attention whose output a second projection gates: the columns of a head are [q | gate].
  NodeId gated_attention(const hir::Qwen35MtpHead& o, NodeId x) {
    Builder& b = g.builder();
    const int64_t heads = o.num_heads, width = o.head_dim;
    const NodeId q_gate = g.mm(x, in[13]);
    Shape flat = g.shape(q_gate).shape;
    const NodeId apart = reshape_to(b, q_gate, split_heads(flat, heads, 2 * width));
    flat.back() = heads * width;
    NodeId q = reshape_to(b, g.narrow_(apart, -1, 0, width), flat);
    const NodeId gate = reshape_to(b, g.narrow_(apart, -1, width, width), flat);
    NodeId k = g.mm(x, in[14]);
    const NodeId v = g.mm(x, in[15]);
    q = norm_heads(q, heads, width, in[16], in[17], o.eps);
    k = norm_heads(k, o.num_kv_heads, width, in[18], in[19], o.eps);
    const NodeId a = g.attention_kind(g.rope_n(q, in[2], in[3], width, o.n_rot),
                                      g.rope_n(k, in[2], in[3], width, o.n_rot), v, heads, width,
                                      AttentionMask::causal());
    return g.mm(g.mul(a, g.sigmoid(gate)), in[20]);
  }

  NodeId operator()(const hir::Qwen35MtpHead& o) {
    Builder& b = g.builder();
    const NodeId h = g.rms_norm(in[0], in[6], in[7], o.eps);
    const NodeId e = g.rms_norm(g.gather(in[5], in[1], 0), in[8], in[9], o.eps);
    const NodeId current = g.mm(g.concat({e, h}, 2), in[10]);
    const NodeId h1 =
        g.add(current, gated_attention(o, g.rms_norm(current, in[11], in[12], o.eps)));
    const NodeId f = g.rms_norm(h1, in[21], in[22], o.eps);
    const NodeId h2 = g.add(h1, gated_ffn(g, f, in[23], in[24], in[25]));
    // Row last_token_idx[b] of batch b: [B, S, E] at [B, 1, 1] -> [B, 1, E].
    const NodeId last = op::gather_nd(b, h2, reshape_to(b, in[4], {g.shape(in[4]).shape[0], 1, 1}),
                                      {.batch_dims = 1});
    return g.mm(g.rms_norm(last, in[26], in[27], o.eps), in[28]);
  }
};

}  // namespace

NodeId HirLowering::lower(GraphBuilder& g, const HirOp& op, const Values& in,
                          const Type& leaf_shape) {
  return std::visit(LowerBlock{*this, g, in, leaf_shape}, op);
}

}  // namespace rlx
