// Attention and its gradient. Inside, heads are grouped by the key/value head they read: q is [B,
// kv_heads, rows, D] with rows = (num_heads / kv_heads) * S_q, so that one matrix product serves a
// group and sums over it.
#include <algorithm>
#include <cmath>

#include "rlx/ops/elementwise.h"
#include "rlx/ops/linalg.h"
#include "rlx/ops/movement.h"
#include "rlx/ops/nn.h"
#include "rlx/ops/nn_rules.h"
#include "rlx/ops/reduce.h"

namespace rlx {
namespace {

constexpr double kMasked = -1e9;

struct Layout {  // of one operand
  Dim batch, length;
  Dim head_dim;
};

std::optional<Layout> layout_of(const Shape& s, int64_t heads) {
  if (s.size() == 4) {
    if (differ(s[1], heads)) return std::nullopt;
    return Layout{s[0], s[2], s[3]};
  }
  if (s.size() != 2 && s.size() != 3) return std::nullopt;
  const auto head_dim = s.back().divide(Dim(heads));
  if (!head_dim) return std::nullopt;
  return Layout{s.size() == 3 ? s[0] : Dim(1), s[s.size() - 2], *head_dim};
}

// [B, heads, S, D] from any layout, and back.
Value to_heads(Builder& b, Value v, int64_t heads) {
  const Shape s = b.shape(v);
  if (s.size() == 4) return v;
  const Layout l = *layout_of(s, heads);
  return op::transpose(b, reshape_to(b, v, {l.batch, l.length, heads, l.head_dim}), {{0, 2, 1, 3}});
}
Value from_heads(Builder& b, Value v, const Shape& like) {
  if (like.size() == 4) return v;
  return reshape_to(b, op::transpose(b, v, {{0, 2, 1, 3}}), like);
}

// One node's problem, with its values in heads.
struct Heads {
  Builder& b;
  AttentionDims dims;
  MaskKind mask;

  Heads(Builder& builder, const Node& n, Operands in)
      : b(builder),
        dims(attention_dims(n.get<AttentionAttrs>(), b.type(in[0]), b.type(in[1]), b.type(in[2]))),
        mask(n.get<AttentionAttrs>().mask) {}

  Dim group() const { return dims.heads / dims.kv_heads; }
  Dim rows() const { return group() * dims.queries; }
  Expr keys(Value v) const { return widen(b, to_heads(b, v, dims.kv_heads)); }
  Expr queries(Value v) const { return grouped(to_heads(b, v, dims.heads), dims.head_dim); }
  // [B, heads, S_q, *] -> [B, kv_heads, rows, last]
  Expr grouped(Value v, const Dim& last) const {
    return widen(b, reshape_to(b, v, {dims.batch, dims.kv_heads, rows(), last}));
  }
  Value ungrouped(Value v) const {
    return reshape_to(b, v, {dims.batch, dims.heads, dims.queries, b.shape(v).back()});
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

  // Whether the query of a row sees a key: [rows, S_k].
  Value visible() const {
    const Shape square{dims.queries, dims.keys};
    Expr query(b, op::iota(b, {}, {DType::I64, square, 0})),
        key(b, op::iota(b, {}, {DType::I64, square, 1}));
    const Value seen = op::le(key, query + offset());
    if (group() == Dim(1)) return seen;
    return reshape_to(b, broadcast_to(b, seen, {group(), dims.queries, dims.keys}),
                      {rows(), dims.keys});
  }

  // scale * q k^T with the mask applied: [B, kv_heads, rows, S_k].
  Expr scores(Expr q, Expr k) const {
    Expr s = op::matmul(q, k, {.transpose_b = true}) * dims.scale;
    if (mask == MaskKind::none) return s;
    return {b, op::select(b, visible(), s, s.like(kMasked))};
  }
};

DType logsumexp_dtype(DType d) { return d == DType::F64 ? DType::F64 : DType::F32; }

Types infer_attention(const InferArgs& a) {
  require_same_dtype(a);
  const AttentionDims d = attention_dims(a.get<AttentionAttrs>(), a.in[0], a.in[1], a.in[2]);
  return {a.in[0], {logsumexp_dtype(a.in[0].dtype), {d.batch, d.heads, d.queries}}};
}

Types infer_attention_backward(const InferArgs& a) {
  require_same_dtype({a.op, a.attrs, a.in.first(3)});
  const AttentionDims d = attention_dims(a.get<AttentionAttrs>(), a.in[0], a.in[1], a.in[2]);
  const Type lse{logsumexp_dtype(a.in[0].dtype), {d.batch, d.heads, d.queries}};
  if (!(a.in[3] == a.in[0]) || !(a.in[5] == a.in[0]) || !(a.in[4] == lse))
    bad_operands(a, "attention-shape",
                 fmt::format("out and d_out must be as q, logsumexp must be {}", lse));
  return {a.in[0], a.in[1], a.in[2]};
}

void normalise_attention(void* attrs, std::string_view, std::span<const Type>) {
  auto& a = *static_cast<AttentionAttrs*>(attrs);
  if (a.num_kv_heads == 0) a.num_kv_heads = a.num_heads;
}

Values decompose_attention(Builder& b, const Node& n, Operands in) {
  const Heads h(b, n, in);
  Expr q = h.queries(in[0]), k = h.keys(in[1]), v = h.keys(in[2]);
  Expr s = h.scores(q, k);
  Expr shift = op::stop_gradient(op::reduce_max(s, {{3}, true}));
  Expr powers = op::exp(s - shift), total = op::reduce_sum(powers, {{3}, true});
  Expr out = op::matmul(powers / total, v), lse = shift + op::log(total);
  const Value whole = from_heads(b, h.ungrouped(cast_to(b, out, n.out[0].dtype)), n.out[0].shape);
  return {whole, reshape_to(b, lse, n.out[1].shape)};
}

// Through `out` the backward op; where the logsumexp has a cotangent, the decomposition.
Values vjp_attention(Builder& b, const VjpArgs& a) {
  if (a.cotangents[1].valid()) return {};
  const Values in{a.in[0], a.in[1], a.in[2], a.out[0], a.out[1], a.cotangents[0]};
  return b.emit(op::attention_backward.def, a.node.attrs, in);
}

// P = exp(S - lse), dV = P^T dO, dP = dO V^T, dS = P (dP - rowsum(dO O)), dQ = scale dS K, dK =
// scale dS^T Q. Where the mask hides a key P is 0, so nothing flows back.
Values decompose_attention_backward(Builder& b, const Node& n, Operands in) {
  const Heads h(b, n, in);
  Expr q = h.queries(in[0]), k = h.keys(in[1]), v = h.keys(in[2]);
  Expr out = h.queries(in[3]), lse = h.grouped(in[4], 1), d_out = h.queries(in[5]);
  Expr p = op::exp(h.scores(q, k) - lse);
  Expr dp = op::matmul(d_out, v, {.transpose_b = true});
  Expr ds = p * (dp - op::reduce_sum(d_out * out, {{3}, true})) * h.dims.scale;
  const Value dq = h.ungrouped(cast_to(b, op::matmul(ds, k), n.out[0].dtype));
  const Value dk = cast_to(b, op::matmul(ds, q, {.transpose_a = true}), n.out[1].dtype);
  const Value dv = cast_to(b, op::matmul(p, d_out, {.transpose_a = true}), n.out[2].dtype);
  return {from_heads(b, dq, n.out[0].shape), from_heads(b, dk, n.out[1].shape),
          from_heads(b, dv, n.out[2].shape)};
}

// The new axis joins the batch axis, or becomes it where the layout has none.
Values vmap_attention(Builder& b, const VmapArgs& a) {
  const bool flat = a.node.out[0].rank() == 2;
  Values in;
  for (size_t i = 0; i < a.in.size(); ++i) {
    const Value v = a.batched[i] ? a.in[i] : batch_operand(b, a.in[i], a.size);
    Shape shape = b.shape(v);
    const bool logsumexp = i == 4;  // of the backward op; it has a batch axis in every layout
    if (flat && !logsumexp) {
      in.push_back(v);
      continue;
    }
    const Dim both = shape[0] * shape[1];
    shape.erase(shape.begin());
    shape[0] = both;
    in.push_back(reshape_to(b, v, shape));
  }
  Values out = b.clone(a.node, in);
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = reshape_to(b, out[i], prepend(a.size, a.node.out[i].shape));
  return out;
}

}  // namespace

AttentionDims attention_dims(const AttentionAttrs& a, const Type& q, const Type& k, const Type& v) {
  const int64_t kv_heads = a.num_kv_heads ? a.num_kv_heads : a.num_heads;
  user_check(a.num_heads > 0 && kv_heads > 0 && a.num_heads % kv_heads == 0, "attention-heads",
             "attention: num_heads ({}) must be a positive multiple of num_kv_heads ({})",
             a.num_heads, kv_heads);
  const auto lq = layout_of(q.shape, a.num_heads), lk = layout_of(k.shape, kv_heads),
             lv = layout_of(v.shape, kv_heads);
  const bool fits = lq && lk && lv && q.rank() == k.rank() && q.rank() == v.rank() &&
                    !differ(lq->batch, lk->batch) && !differ(lq->batch, lv->batch) &&
                    !differ(lk->length, lv->length) && !differ(lq->head_dim, lk->head_dim) &&
                    !differ(lq->head_dim, lv->head_dim);
  user_check(fits, "attention-shape",
             "attention: q must be [S, {0}*D], [B, S, {0}*D] or [B, {0}, S, D], and k and v the "
             "same with {1} heads, the same "
             "B and D and one length of their own (operands: {2}, {3}, {4})",
             a.num_heads, kv_heads, q, k, v);
  user_check(lq->head_dim.is_static() && lq->head_dim.value() > 0, "attention-shape",
             "attention: the head dim must be a positive number, not {} (q: {})", lq->head_dim, q);
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
        "softmax(scale * q k^T, masked) v per head, and the logsumexp of each row of scores. "
        "Layouts by rank: [S, heads*D], "
        "[B, S, heads*D], [B, heads, S, D]. k and v may have fewer heads (num_kv_heads).",
    .reference = "Attention",
    .kind = Kind::composite,
    .arity = 3,
    .dtypes = kFloats,
    .infer = infer_attention,
    .normalise = normalise_attention,
    .decompose = decompose_attention,
    .vjp = vjp_attention,
    .vmap = vmap_attention,
};

constinit const Op<AttentionAttrs> attention_backward = OpDef{
    .name = "attention_backward",
    .doc = "dq, dk, dv of attention from q, k, v, its two results and the cotangent of its first.",
    .reference = "AttentionBackward",
    .kind = Kind::composite,
    .arity = 6,
    .dtypes = kFloats,
    .infer = infer_attention_backward,
    .normalise = normalise_attention,
    .decompose = decompose_attention_backward,
    .vmap = vmap_attention,
};

}  // namespace op

}  // namespace rlx
