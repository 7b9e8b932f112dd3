#include "rlx/backend/cpu/attention_kernels.h"

#include <cmath>

#include "rlx/backend/cpu/kernels/attention/attention.h"
#include "rlx/ops/attention/attention.h"

namespace rlx::cpu {

namespace {

// The first optional operand.
size_t first_optional(const Node& n) { return n.op == &op::attention ? 3 : 6; }

struct Layout {
  int64_t batch, seq, heads, dim;
  AttentionStrides strides;
};
Layout layout_of(const View& v, int64_t heads, AttentionLayout layout) {
  const Ints &d = v.dims, &s = v.strides;
  if (d.size() == 4 && layout == AttentionLayout::seq_major)
    return {d[0], d[1], d[2], d[3], {s[0], s[1], s[2]}};
  if (d.size() == 4) return {d[0], d[2], d[1], d[3], {s[0], s[2], s[1]}};
  const int64_t dim = d.back() / heads;
  if (d.size() == 3) return {d[0], d[1], heads, dim, {s[0], s[1], dim}};
  return {1, d[0], heads, dim, {0, s[0], dim}};
}

// Strides of a dense operand that broadcasts to [B, H, S_q, S_k]; a mask of rank below 4 has no
// axis for the heads.
AttentionStrides broadcast_strides(const View& v, bool is_mask) {
  Ints dims = v.dims;
  dims.insert(dims.begin() + (is_mask && dims.size() < 4 ? 1 : 0), 4 - dims.size(), 1);
  const auto stride = [&](size_t axis, int64_t size) { return dims[axis] == 1 ? 0 : size; };
  return {stride(0, dims[1] * dims[2] * dims[3]), stride(2, dims[3]), stride(1, dims[2] * dims[3])};
}

void set_optional(AttentionProblem& p, const AttentionAttrs& a, std::span<const View> in,
                  size_t at) {
  p.has_mask = a.has_mask, p.has_bias = a.has_bias, p.has_sinks = a.has_sinks;
  if (a.has_mask) p.mask_at = broadcast_strides(in[at++], true);
  if (a.has_bias) {
    p.wide_bias = in[at].dtype != p.dtype;
    p.bias_at = broadcast_strides(in[at++], false);
  }
  if (a.has_sinks) {
    const Ints& dims = in[at].dims;
    p.wide_sinks = in[at].dtype != p.dtype;
    p.sinks_batch = dims.size() == 2 && dims[0] != 1 ? dims[1] : 0;
  }
}

AttentionProblem attention_problem(const Node& n, std::span<const View> in) {
  const AttentionAttrs& a = attention_attrs(n);
  const Layout q = layout_of(in[0], a.num_heads, a.layout),
               k = layout_of(in[1], a.num_kv_heads, a.layout),
               v = layout_of(in[2], a.num_kv_heads, a.layout);
  AttentionProblem p;
  p.dtype = in[0].dtype;
  p.batch = q.batch, p.heads = a.num_heads, p.kv_heads = a.num_kv_heads;
  p.q_len = q.seq, p.kv_len = k.seq, p.head_dim = q.dim;
  p.mask = a.mask == MaskKind::none     ? AttentionMask::None
           : a.mask == MaskKind::causal ? AttentionMask::Causal
                                        : AttentionMask::Window;
  p.window = a.window;
  p.scale = a.scale ? *a.scale : 1.0 / std::sqrt(static_cast<double>(q.dim));
  p.softcap = a.softcap.value_or(0);
  p.q = q.strides, p.k = k.strides, p.v = v.strides;
  set_optional(p, a, in, first_optional(n));
  return p;
}

double attention_flops(const AttentionProblem& p, double products) {
  double pairs = static_cast<double>(p.batch * p.heads) * static_cast<double>(p.q_len) *
                 static_cast<double>(p.kv_len);
  if (p.mask == AttentionMask::Causal) pairs *= 0.5;
  if (p.mask == AttentionMask::Window)
    pairs *= std::min(1.0, static_cast<double>(p.window + 1) /
                               static_cast<double>(std::max<int64_t>(p.kv_len, 1)));
  return products * 2 * pairs * static_cast<double>(p.head_dim);
}

// The next operand's memory when the problem has it.
void* next_if(bool has, void* const* operands, size_t& at) {
  return has ? operands[at++] : nullptr;
}

}  // namespace

Decision attention_accepts(const Node& n, const Graph& g) {
  const AttentionAttrs& a = attention_attrs(n);
  const Type& k = g.type(n.in[1]);
  const DType dtype = g.type(n.in[0]).dtype;
  size_t at = first_optional(n);
  const auto whole_rows = [&](const Type& t) {
    const size_t length = a.layout == AttentionLayout::head_major ? 2 : k.shape.size() == 2 ? 0 : 1;
    return !t.shape.empty() && t.shape.back() == k.shape[length];
  };
  if (a.has_mask) {
    const Type& mask = g.type(n.in[at++]);
    if (!is_bool(mask.dtype)) return Decision::no("the mask is read as bool");
    if (!whole_rows(mask)) return Decision::no("the mask must not broadcast along the keys");
  }
  if (a.has_bias && !whole_rows(g.type(n.in[at])))
    return Decision::no("the bias must not broadcast along the keys");
  for (; at < n.in.size(); ++at)
    if (dtype == DType::F64 && g.type(n.in[at]).dtype != dtype)
      return Decision::no("a bias or sinks of f32 with operands of f64");
  return Decision::yes();
}

Decision attention_view(const Node& n, size_t i, const View& v) {
  if (i >= first_optional(n)) return Decision::no("masks, biases and sinks are read dense");
  if (i == 4) return Decision::no("the logsumexp is read dense");
  return v.strides.back() == 1 || v.dims.back() == 1
             ? Decision::yes()
             : Decision::no("the head dim must have stride 1");
}

std::shared_ptr<const StepKernel> make_attention(Isa isa, const Node& n, std::span<const View> in,
                                                 std::span<const View> out) {
  AttentionProblem p = attention_problem(n, in);
  p.out = layout_of(out[0], p.heads, attention_attrs(n).layout).strides;
  attention_check(p);
  const double flops = attention_flops(p, 2);
  return function_kernel("attention (tiled)",
                         {.blocks = attention_forward_blocks(p),
                          .work = static_cast<int64_t>(flops / 8),
                          .scratch = attention_forward_scratch_bytes(p),
                          .flops = flops,
                          .run = [p, isa](const StepMemory& m, int64_t begin, int64_t end) {
                            void* const* o = m.operands;
                            size_t at = 3;
                            AttentionForwardBuffers buffers{o[0], o[1], o[2]};
                            buffers.mask = next_if(p.has_mask, o, at);
                            buffers.bias = next_if(p.has_bias, o, at);
                            buffers.sinks = next_if(p.has_sinks, o, at);
                            buffers.out = o[at];
                            buffers.lse = o[at + 1];
                            attention_forward(p, buffers, begin, end, m.scratch, isa);
                          }});
}

std::shared_ptr<const StepKernel> make_attention_backward(Isa isa, const Node& n,
                                                          std::span<const View> in,
                                                          std::span<const View> out) {
  const auto& a = n.get<AttentionBackwardAttrs>();
  AttentionProblem p = attention_problem(n, in);
  p.out = layout_of(in[3], p.heads, a.layout).strides;
  p.dout = layout_of(in[5], p.heads, a.layout).strides;
  p.dq = layout_of(out[0], p.heads, a.layout).strides;
  p.dk = layout_of(out[1], p.kv_heads, a.layout).strides;
  p.dv = layout_of(out[2], p.kv_heads, a.layout).strides;
  attention_check(p);
  const double flops = attention_flops(p, 5);
  auto run = [p, isa, bias_gradient = a.bias_gradient](const StepMemory& m, int64_t begin,
                                                       int64_t end) {
    void* const* o = m.operands;
    size_t at = 6;
    AttentionBackwardBuffers buffers{o[0], o[1], o[2], o[3], o[4], o[5]};
    buffers.mask = next_if(p.has_mask, o, at);
    buffers.bias = next_if(p.has_bias, o, at);
    buffers.dq = o[at], buffers.dk = o[at + 1], buffers.dv = o[at + 2];
    at += 3;
    buffers.dbias = next_if(bias_gradient, o, at);
    buffers.stop = stop_poll(m);
    attention_backward(p, buffers, begin, end, m.scratch, isa);
  };
  return function_kernel("attention_backward (tiled)",
                         {.blocks = attention_backward_blocks(p),
                          .work = static_cast<int64_t>(flops / 8),
                          .scratch = attention_backward_scratch_bytes(p),
                          .flops = flops,
                          .run = run});
}

}  // namespace rlx::cpu
