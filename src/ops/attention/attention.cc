// Attention and its gradient. Inside, heads are grouped by the key/value head they read: q is [B,
// kv_heads, rows, D] with rows = (num_heads / kv_heads) * S_q, so that one matrix product serves a
// group and sums over it.
#include "rlx/ops/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/linalg/linalg.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/nn/nn_rules.h"
#include "rlx/ops/reduce/reduce.h"

namespace rlx {
namespace {

constexpr double kMasked = -1e9;
constexpr double kNoVisibleKey = -5e8;  // of a row's logsumexp: at most this

struct Layout {  // of one operand
  Dim batch, length;
  Dim head_dim;
};

std::optional<Layout> layout_of(const Shape& s, int64_t heads, AttentionLayout layout) {
  if (s.size() == 4) {
    const bool head_major = layout != AttentionLayout::seq_major;
    if (differ(s[head_major ? 1 : 2], heads)) return std::nullopt;
    return Layout{s[0], s[head_major ? 2 : 1], s[3]};
  }
  if (s.size() != 2 && s.size() != 3) return std::nullopt;
  const auto head_dim = s.back().divide(Dim(heads));
  if (!head_dim) return std::nullopt;
  return Layout{s.size() == 3 ? s[0] : Dim(1), s[s.size() - 2], *head_dim};
}

// One node's problem, with its values in heads.
struct Heads {
  Builder& b;
  const AttentionAttrs& attrs;
  AttentionDims dims;

  Heads(Builder& builder, const AttentionAttrs& a, Operands in)
      : b(builder),
        attrs(a),
        dims(attention_dims(a, b.type(in[0]), b.type(in[1]), b.type(in[2]))) {}

  Dim group() const { return dims.heads / dims.kv_heads; }
  Dim rows() const { return group() * dims.queries; }
  Expr keys(Value v) const { return widen(b, to_heads(v, dims.kv_heads)); }
  Expr queries(Value v) const { return grouped(to_heads(v, dims.heads), dims.head_dim); }

  // [B, heads, S, D] from any layout, and back.
  Value to_heads(Value v, int64_t heads) const {
    const Shape s = b.shape(v);
    if (s.size() == 4) return seq_major() ? transpose_to(b, v, {0, 2, 1, 3}) : v;
    const Layout l = *layout_of(s, heads, attrs.layout);
    return transpose_to(b, reshape_to(b, v, {l.batch, l.length, heads, l.head_dim}), {0, 2, 1, 3});
  }
  Value from_heads(Value v, const Type& like) const {
    v = cast_to(b, v, like.dtype);
    if (like.rank() == 4 && !seq_major()) return v;
    return reshape_to(b, transpose_to(b, v, {0, 2, 1, 3}), like.shape);
  }
  bool seq_major() const { return attrs.layout == AttentionLayout::seq_major; }

  // [B, heads, S_q, *] -> [B, kv_heads, rows, last]
  Expr grouped(Value v, const Dim& last) const {
    return widen(b, reshape_to(b, v, {dims.batch, dims.kv_heads, rows(), last}));
  }
  Value ungrouped(Value v) const {
    return reshape_to(b, v, {dims.batch, dims.heads, dims.queries, b.shape(v).back()});
  }
  // What broadcasts to [B, heads, S_q, *], as what broadcasts to [B, kv_heads, rows, *].
  Value grouped_broadcast(Value v) const {
    Shape s = b.shape(v);
    s.insert(s.begin(), 4 - s.size(), Dim(1));
    v = reshape_to(b, v, s);
    if (group() == Dim(1) || (s[1] == Dim(1) && s[2] == Dim(1))) return v;
    const bool shared = s[1] == Dim(1);  // by all heads, so by all kv heads
    v = broadcast_to(b, v, {s[0], shared ? group() : Dim(dims.heads), dims.queries, s[3]});
    return reshape_to(b, v, {s[0], shared ? Dim(1) : Dim(dims.kv_heads), rows(), s[3]});
  }

  // How far the queries lie behind the keys: max(S_k - S_q, 0).
  Expr offset() const {
    const Dim ahead = dims.keys - dims.queries;
    if (ahead.is_static())
      return {b, dim_value(b, std::max<int64_t>(ahead.value(), 0), DType::I64)};
    Expr keys(b, dim_value(b, dims.keys, DType::I64)),
        queries(b, dim_value(b, dims.queries, DType::I64));
    return op::maximum(keys - queries, keys.like(0));
  }

  // Whether the positions let a query see a key: [1, 1, rows, S_k].
  Value visible_by_position() const {
    const Shape square{1, 1, dims.queries, dims.keys};
    Expr query = Expr(b, op::iota(b, {}, {DType::I64, square, 2})) + offset();
    Expr key(b, op::iota(b, {}, {DType::I64, square, 3}));
    Expr seen = op::le(key, query);
    if (attrs.mask == MaskKind::sliding_window)
      seen = op::logical_and(seen, op::ge(key, query - static_cast<double>(attrs.window)));
    return grouped_broadcast(seen);
  }

  // [B, S_k] and [B, S_q, S_k] have no axis for the heads.
  Value lifted_mask(Value mask) const {
    Shape s = b.shape(mask);
    if (s.size() < 4) s.insert(s.begin() + 1, 4 - s.size(), Dim(1));
    return grouped_broadcast(reshape_to(b, mask, s));
  }
  // [H] and [B, H].
  Value lifted_sinks(Value sinks) const {
    Shape s = b.shape(sinks);
    s.insert(s.end(), 2, Dim(1));
    return grouped_broadcast(reshape_to(b, sinks, s));
  }

  // Values of shape [B, kv_heads, rows, S_k] (`visible` broadcasts to it).
  struct Scores {
    Expr s;                // with the mask applied
    Value visible;         // kNone: every key
    Value tanh;            // of the soft cap, or kNone
    bool may_be_unseeing;  // some row may have no visible key
  };
  // `more` are the optional operands.
  Scores scores(Expr q, Expr k, Operands more) const {
    Scores r{op::matmul(q, k, {.transpose_b = true}) * dims.scale, kNone, kNone, false};
    const auto hide = [&](Value seen) {
      r.visible = r.visible.valid() ? op::logical_and(b, r.visible, seen) : seen;
    };
    if (attrs.softcap) {
      const Expr t = op::tanh(r.s / *attrs.softcap);
      r.tanh = t;
      r.s = t * *attrs.softcap;
    }
    if (attrs.mask != MaskKind::none) hide(visible_by_position());
    if (attrs.has_mask) hide(lifted_mask(more[0]));
    if (attrs.has_bias) {
      r.s = r.s + Expr(b, cast_to(b, grouped_broadcast(more[attrs.has_mask]), r.s.dtype()));
      hide(op::logical_not(op::le(r.s, r.s.like(kMasked))));  // NaN stays
    }
    if (r.visible.valid()) r.s = {b, op::select(b, r.visible, r.s, r.s.like(kMasked))};
    r.may_be_unseeing = attrs.has_mask || attrs.has_bias || attrs.mask == MaskKind::sliding_window;
    return r;
  }
};

DType logsumexp_dtype(DType d) { return d == DType::F64 ? DType::F64 : DType::F32; }

// ---- checks

bool fits_broadcast(const Shape& s, const Shape& whole) {
  if (s.size() > whole.size()) return false;
  for (size_t i = 0; i < s.size(); ++i) {
    const Dim &d = s[s.size() - 1 - i], &w = whole[whole.size() - 1 - i];
    if (!(d == Dim(1)) && differ(d, w)) return false;
  }
  return true;
}

void check_option_values(const InferArgs& a, const AttentionAttrs& t) {
  if (t.window < 0 || (t.window != 0 && t.mask != MaskKind::sliding_window))
    bad_operands(a, "attention-mask",
                 fmt::format("window ({}) is a number of earlier keys, at least 0, and only "
                             "mask=sliding_window has one",
                             t.window));
  if (t.softcap && !(*t.softcap > 0))
    bad_operands(a, "attention-mask", fmt::format("softcap must be above 0, not {}", *t.softcap));
}

// The operands from `first` on: mask, bias, sinks as announced.
void check_optional(const InferArgs& a, const AttentionAttrs& t, const AttentionDims& d,
                    size_t first) {
  const auto [mask, bias, sinks] = std::tuple{t.has_mask, t.has_bias, t.has_sinks};
  if (a.in.size() != first + mask + bias + sinks)
    bad_operands(a, "attention-operands",
                 fmt::format("has_mask={}, has_bias={}, has_sinks={} ask for {} operands", mask,
                             bias, sinks, first + mask + bias + sinks));
  const Shape whole{d.batch, d.heads, d.queries, d.keys};
  size_t at = first;
  if (mask) {
    const Shape& s = a.in[at++].shape;
    const bool fits = s.size() == 2   ? fits_broadcast(s, {d.batch, d.keys})
                      : s.size() == 3 ? fits_broadcast(s, {d.batch, d.queries, d.keys})
                                      : s.size() == 4 && fits_broadcast(s, whole);
    if (!fits || !(kReals | kBools).has(a.in[at - 1].dtype))
      bad_operands(a, "attention-shape",
                   fmt::format("the mask must be real, [{0}, {1}], [{0}, {2}, {1}] or "
                               "broadcastable to [{0}, {3}, {2}, {1}]",
                               d.batch, d.keys, d.queries, d.heads));
  }
  const auto check_dtype = [&](const Type& type, std::string_view what) {
    if (type.dtype != a.in[0].dtype && type.dtype != DType::F32)
      bad_operands(a, "dtype-mixed", fmt::format("{} must have the dtype of q or be f32", what));
  };
  if (bias) {
    check_dtype(a.in[at], "the bias");
    if (!fits_broadcast(a.in[at++].shape, whole))
      bad_operands(a, "attention-shape",
                   fmt::format("the bias must broadcast to {}", Type{a.in[0].dtype, whole}));
  }
  if (sinks) {
    check_dtype(a.in[at], "sinks");
    const Shape& s = a.in[at].shape;
    if (s.empty() || differ(s.back(), d.heads) || !fits_broadcast(s, {d.batch, d.heads}))
      bad_operands(a, "attention-shape",
                   fmt::format("sinks must be [{1}] or [{0}, {1}]", d.batch, d.heads));
  }
}

AttentionDims check_attention(const InferArgs& a, const AttentionAttrs& t, size_t first_optional) {
  require_same_dtype({a.op, a.attrs, a.in.first(3)});
  check_option_values(a, t);
  const AttentionDims d = attention_dims(t, a.in[0], a.in[1], a.in[2], a.op.name);
  check_optional(a, t, d, first_optional);
  return d;
}

Types infer_attention(const InferArgs& a) {
  const AttentionDims d = check_attention(a, a.get<AttentionAttrs>(), 3);
  return {a.in[0], {logsumexp_dtype(a.in[0].dtype), {d.batch, d.heads, d.queries}}};
}

Types infer_attention_backward(const InferArgs& a) {
  const auto& t = a.get<AttentionBackwardAttrs>();
  if (t.has_sinks || (t.bias_gradient && !t.has_bias))
    bad_operands(a, "attention-operands",
                 "sinks take part through the logsumexp (has_sinks must be false), and "
                 "bias_gradient needs has_bias");
  const AttentionDims d = check_attention(a, t, 6);
  const Type lse{logsumexp_dtype(a.in[0].dtype), {d.batch, d.heads, d.queries}};
  if (!(a.in[3] == a.in[0]) || !(a.in[5] == a.in[0]) || !(a.in[4] == lse))
    bad_operands(a, "attention-shape",
                 fmt::format("out and d_out must be as q, logsumexp must be {}", lse));
  Types out{a.in[0], a.in[1], a.in[2]};
  if (t.bias_gradient) out.push_back({lse.dtype, {d.batch, d.heads, d.queries, d.keys}});
  return out;
}

Types infer_attention_gradient(const InferArgs& a) {
  const auto& t = a.get<AttentionGradientAttrs>();
  check_attention(a, t, 4);
  if (!(a.in[3] == a.in[0])) bad_operands(a, "attention-shape", "d_out must be as q");
  return {a.in[static_cast<size_t>(t.wrt)]};
}

template <class A>
void normalise_attention(void* attrs, std::string_view, std::span<const Type> in) {
  AttentionAttrs& a = *static_cast<A*>(attrs);
  if (a.num_kv_heads == 0) a.num_kv_heads = a.num_heads;
  if (in.empty() || in[0].rank() != 4 || a.layout != AttentionLayout::automatic) return;
  const Shape& q = in[0].shape;
  const bool seq_major =
      differ(q[1], a.num_heads) || (!q[1].is_static() && q[2] == Dim(a.num_heads));
  a.layout = seq_major ? AttentionLayout::seq_major : AttentionLayout::head_major;
}

// ---- meaning

// The node on a mask of bools: what is at least 0.5 is kept. `at` is the mask's operand.
std::optional<Values> with_bool_mask(Builder& b, const Node& n, Operands in, size_t at) {
  if (!attention_attrs(n).has_mask || is_bool(b.type(in[at]).dtype)) return std::nullopt;
  Values operands(in.begin(), in.end());
  Expr mask(b, in[at]);
  operands[at] = is_float(mask.dtype()) ? op::ge(mask, mask.like(0.5)) : op::gt(mask, mask.like(0));
  return b.clone(n, operands);
}

Values decompose_attention(Builder& b, const Node& n, Operands in) {
  if (auto same = with_bool_mask(b, n, in, 3)) return *same;
  const Heads h(b, n.get<AttentionAttrs>(), in);
  Expr q = h.queries(in[0]), k = h.keys(in[1]), v = h.keys(in[2]);
  Expr s = h.scores(q, k, in.subspan(3)).s;
  Expr shift = op::reduce_max(s, {{3}, true});
  std::optional<Expr> sink;
  if (h.attrs.has_sinks) {
    sink.emplace(b, cast_to(b, h.lifted_sinks(in.back()), s.dtype()));
    shift = op::maximum(shift, *sink);
  }
  shift = op::stop_gradient(shift);
  Expr powers = op::exp(s - shift), total = op::reduce_sum(powers, {{3}, true});
  if (sink) total = total + op::exp(*sink - shift);
  Expr out = op::matmul(powers / total, v), lse = shift + op::log(total);
  return {h.from_heads(h.ungrouped(out), n.out[0]), reshape_to(b, lse, n.out[1].shape)};
}

// P = exp(S - lse), dV = P^T dO, dP = dO V^T, dS = P (dP - rowsum(dO O)), dQ = scale dS K, dK =
// scale dS^T Q. Nothing flows back into a masked score; where it is a row's fate, P = 1 / S_k.
Values decompose_attention_backward(Builder& b, const Node& n, Operands in) {
  if (auto same = with_bool_mask(b, n, in, 6)) return *same;
  const auto& attrs = n.get<AttentionBackwardAttrs>();
  const Heads h(b, attrs, in);
  Expr q = h.queries(in[0]), k = h.keys(in[1]), v = h.keys(in[2]);
  Expr out = h.queries(in[3]), lse = h.grouped(in[4], 1), d_out = h.queries(in[5]);
  const Heads::Scores scores = h.scores(q, k, in.subspan(6));
  Expr p = op::exp(scores.s - lse);
  Expr dp = op::matmul(d_out, v, {.transpose_b = true});
  Expr ds = p * (dp - op::reduce_sum(d_out * out, {{3}, true}));
  if (scores.may_be_unseeing) {
    Expr uniform = 1.0 / Expr(b, dim_value(b, h.dims.keys, p.dtype()));
    Expr blind(b, op::select(b, op::le(lse, lse.like(kNoVisibleKey)), uniform, p.like(0)));
    p = {b, op::select(b, scores.visible, p, blind)};
    ds = {b, op::select(b, scores.visible, ds, ds.like(0))};
  }
  Values result;
  Expr d_raw = ds * h.dims.scale;
  if (scores.tanh.valid()) d_raw = d_raw * (1.0 - op::square(Expr(b, scores.tanh)));
  result.push_back(h.from_heads(h.ungrouped(op::matmul(d_raw, k)), n.out[0]));
  result.push_back(h.from_heads(op::matmul(d_raw, q, {.transpose_a = true}), n.out[1]));
  result.push_back(h.from_heads(op::matmul(p, d_out, {.transpose_a = true}), n.out[2]));
  if (attrs.bias_gradient) result.push_back(h.ungrouped(ds));
  return result;
}

// d sinks = -sum over rows of exp(sink - lse) rowsum(dO O): the sink's weight has no value.
Value sinks_gradient(Builder& b, const VjpArgs& a, const Heads& h) {
  const Value sinks = a.in.back();
  Expr products = widen(b, a.cotangents[0]) * widen(b, a.out[0]);
  Expr delta = op::reduce_sum(Expr(b, h.to_heads(products, h.dims.heads)), {{3}, false});
  Shape lifted = b.shape(sinks);
  lifted.push_back(1);
  Expr weight =
      op::exp(Expr(b, cast_to(b, reshape_to(b, sinks, lifted), delta.dtype())) - Expr(b, a.out[1]));
  const Value d = unbroadcast(b, -(weight * delta), lifted);
  return cast_to(b, reshape_to(b, d, b.shape(sinks)), b.type(sinks).dtype);
}

// Through `out` the backward op; where the logsumexp has a cotangent, the decomposition.
Values vjp_attention(Builder& b, const VjpArgs& a) {
  if (a.cotangents[1].valid()) return {};
  const auto& t = a.node.get<AttentionAttrs>();
  Values in{a.in[0], a.in[1], a.in[2], a.out[0], a.out[1], a.cotangents[0]};
  in.insert(in.end(), a.in.begin() + 3, a.in.end() - t.has_sinks);
  const size_t bias = 3 + t.has_mask;
  AttentionBackwardAttrs attrs{t};
  attrs.has_sinks = false;
  attrs.bias_gradient = t.has_bias && a.wanted[bias];
  const Values d = b.emit(op::attention_backward.def, attrs, in);
  Values out(a.in.size(), kNone);
  std::copy_n(d.begin(), 3, out.begin());
  if (attrs.bias_gradient) {
    const Type& type = b.type(a.in[bias]);
    out[bias] = cast_to(b, unbroadcast(b, d[3], type.shape), type.dtype);
  }
  if (t.has_sinks && a.wanted.back()) out.back() = sinks_gradient(b, a, Heads(b, t, a.in));
  return out;
}

Values decompose_attention_gradient(Builder& b, const Node& n, Operands in) {
  const auto& t = n.get<AttentionGradientAttrs>();
  Values forward{in[0], in[1], in[2]};
  forward.insert(forward.end(), in.begin() + 4, in.end());
  const Values out = b.emit(op::attention.def, static_cast<const AttentionAttrs&>(t), forward);
  AttentionBackwardAttrs attrs{t};
  attrs.has_sinks = false;
  Values backward{in[0], in[1], in[2], out[0], out[1], in[3]};
  backward.insert(backward.end(), in.begin() + 4, in.end() - t.has_sinks);
  return {b.emit(op::attention_backward.def, attrs, backward)[static_cast<size_t>(t.wrt)]};
}

// ---- vmap

// The new axis joins the batch axis, or becomes it where the layout has none. `first` is the first
// optional operand; what has size 1 in place of the batch is shared.
Values vmap_attention(Builder& b, const VmapArgs& a, const Dim& batch, size_t first) {
  const bool flat = a.node.out[0].rank() == 2;
  const AttentionAttrs& t = attention_attrs(a.node);
  const size_t sinks = t.has_sinks ? a.in.size() - 1 : a.in.size();
  const size_t bias = t.has_bias ? sinks - 1 : a.in.size();
  Values in;
  for (size_t i = 0; i < a.in.size(); ++i) {
    const bool like_q = i < first && i != 4;  // 4 of the backward op: the logsumexp
    Shape own = b.shape(a.in[i]);             // without the new axis, with a batch axis
    if (a.batched[i]) own.erase(own.begin());
    if (i == bias) own.insert(own.begin(), 4 - own.size(), Dim(1));
    if (i == sinks) own.insert(own.begin(), 2 - own.size(), Dim(1));
    if (!a.batched[i] && i >= first && own[0] == Dim(1)) {
      in.push_back(a.in[i]);
      continue;
    }
    Value v = a.batched[i] ? a.in[i] : batch_operand(b, a.in[i], a.size);
    if (!(flat && like_q)) {
      v = reshape_to(b, v, prepend(a.size, own));
      own[0] = batch;
      v = broadcast_to(b, v, prepend(a.size, own));
      own[0] = a.size * batch;
      v = reshape_to(b, v, own);
    }
    in.push_back(v);
  }
  Values out = b.clone(a.node, in);
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = reshape_to(b, out[i], prepend(a.size, a.node.out[i].shape));
  return out;
}

}  // namespace

const AttentionAttrs& attention_attrs(const Node& n) {
  if (n.op == &op::attention) return n.get<AttentionAttrs>();
  if (n.op == &op::attention_backward) return n.get<AttentionBackwardAttrs>();
  return n.get<AttentionGradientAttrs>();
}

AttentionDims attention_dims(const AttentionAttrs& a, const Type& q, const Type& k, const Type& v,
                             std::string_view op) {
  const int64_t kv_heads = a.num_kv_heads ? a.num_kv_heads : a.num_heads;
  user_check(a.num_heads > 0 && kv_heads > 0 && a.num_heads % kv_heads == 0, "attention-heads",
             "{}: num_heads ({}) must be a positive multiple of num_kv_heads ({})", op, a.num_heads,
             kv_heads);
  const auto lq = layout_of(q.shape, a.num_heads, a.layout),
             lk = layout_of(k.shape, kv_heads, a.layout),
             lv = layout_of(v.shape, kv_heads, a.layout);
  const bool fits = lq && lk && lv && q.rank() == k.rank() && q.rank() == v.rank() &&
                    !differ(lq->batch, lk->batch) && !differ(lq->batch, lv->batch) &&
                    !differ(lk->length, lv->length) && !differ(lq->head_dim, lk->head_dim) &&
                    !differ(lq->head_dim, lv->head_dim);
  user_check(fits, "attention-shape",
             "{5}: q must be [S, {0}*D], [B, S, {0}*D], [B, {0}, S, D] or [B, S, {0}, D], "
             "and k and v the same with {1} heads, the same "
             "B and D and one length of their own (operands: {2}, {3}, {4})",
             a.num_heads, kv_heads, q, k, v, op);
  user_check(lq->head_dim.is_static() && lq->head_dim.value() > 0, "attention-shape",
             "{}: the head dim must be a positive number, not {} (q: {})", op, lq->head_dim, q);
  const int64_t head_dim = lq->head_dim.value();
  const double scale = a.scale ? *a.scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
  return {agreed(lq->batch, lk->batch),
          lq->length,
          agreed(lk->length, lv->length),
          a.num_heads,
          kv_heads,
          head_dim,
          scale};
}

namespace op {

constinit const Op<AttentionAttrs> attention = OpDef{
    .name = "attention",
    .doc =
        "softmax(scores) v per head, and the logsumexp of each row of scores. Scores are scale * q "
        "k^T, capped by c tanh(s / c), plus a bias, and -1e9 where a key is masked (causal, "
        "sliding_window: the last window + 1 keys, or an operand), so that a row without visible "
        "keys averages all. For causal and sliding_window query i stands at key i + max(S_k - S_q, "
        "0): with more keys than queries the last query stands at the last key (as when decoding "
        "with a cache), with fewer the first query at the first key, and the queries behind the "
        "last key see all keys that the window reaches. "
        "attn_mask is [B, S_k] (the keys of a sequence, also where B is S_q), [B, S_q, S_k] or [B, "
        "heads, S_q, S_k]. Sinks are further logits of the denominator. Layouts by rank: [S, "
        "heads*D], [B, S, heads*D], [B, heads, S, D] or [B, S, heads, D]. k and v may have fewer "
        "heads (num_kv_heads).",
    .reference = "Attention",
    .role = Role::product,
    .kind = Kind::composite,
    .arity = 6,
    .min_arity = 3,
    .operands = "q, k, v, attn_mask?, bias?, sinks?",
    .dtypes = kFloats,
    .infer = infer_attention,
    .normalise = normalise_attention<AttentionAttrs>,
    .decompose = decompose_attention,
    .vjp = vjp_attention,
    .vmap = [](Builder& b, const VmapArgs& a) -> Values {
      return vmap_attention(b, a, a.node.out[1].shape[0], 3);
    },
};

constinit const Op<AttentionBackwardAttrs> attention_backward = OpDef{
    .name = "attention_backward",
    .doc =
        "dq, dk, dv of attention (and the bias's gradient before broadcasting, with bias_gradient) "
        "from q, k, v, its two results, the cotangent of its first, and the mask and bias it had.",
    .kind = Kind::composite,
    .arity = 8,
    .min_arity = 6,
    .operands = "q, k, v, out, logsumexp, d_out, attn_mask?, bias?",
    .dtypes = kFloats,
    .infer = infer_attention_backward,
    .normalise = normalise_attention<AttentionBackwardAttrs>,
    .decompose = decompose_attention_backward,
    .vmap = [](Builder& b, const VmapArgs& a) -> Values {
      Shape lse = b.shape(a.in[4]);
      return vmap_attention(b, a, lse[a.batched[4] ? 1 : 0], 6);
    },
};

constinit const Op<AttentionGradientAttrs> attention_gradient = OpDef{
    .name = "attention_gradient",
    .doc =
        "The gradient of attention by q, k or v (wrt) from q, k, v, the cotangent of its first "
        "result, and the optional operands it had; the scores are computed again.",
    .reference = "AttentionBackward",
    .kind = Kind::composite,
    .arity = 7,
    .min_arity = 4,
    .operands = "q, k, v, d_out, attn_mask?, bias?, sinks?",
    .dtypes = kFloats,
    .infer = infer_attention_gradient,
    .normalise = normalise_attention<AttentionGradientAttrs>,
    .decompose = decompose_attention_gradient,
};

}  // namespace op

}  // namespace rlx
