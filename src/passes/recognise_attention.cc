// Attention that is written out: softmax(scale q k' + bias) v, with what exporters put between.
//
// Matrices may be batched by any leading axes, and be seen through reshapes that merge or split those alone: the places of
// matrices stay in their order.
#include <cmath>

#include "rlx/ops/attention/attention.h"
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/linalg/linalg.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/nn/nn.h"
#include "rlx/ops/rules.h"
#include "rlx/passes/recognise_rules.h"

namespace rlx {

namespace {

using namespace rule_words;

Shape leading(const Shape& s) { return Shape(s.begin(), s.end() - 2); }

Dim matrices(const Shape& s) {
  Dim n = 1;
  for (const Dim& d : leading(s)) n = n * d;
  return n;
}

// v before a reshape that leaves matrices as they are.
Value unmerged(const Graph& g, Value v) {
  const Node* n = made_by(g, v, op::reshape);
  if (!n) return v;
  const Shape &from = g.type(n->in[0]).shape, &to = n->type().shape;
  const bool keeps =
      from.rank() >= 2 && to.rank() >= 2 && std::equal(from.end() - 2, from.end(), to.end() - 2);
  return keeps ? n->in[0] : v;
}

// Whether a score of this, or with this added, leaves its key out.
bool hides(double v) { return v <= -1e9; }

// scale * v, where v is seen through products with constants and merges.
struct ScaledMatrix {
  double scale;
  Value v;
};
std::optional<ScaledMatrix> unscaled(const Graph& g, Value v) {
  ScaledMatrix s{1, v};
  for (Value last = kNone; s.v != last;) {
    last = s.v;
    const Product p = product_of(g, unmerged(g, s.v));
    if (p.factors.size() != 1) return std::nullopt;
    s = {s.scale * p.scale, p.factors[0]};
  }
  return s;
}

struct Attention {
  Value q, k, v;
  bool k_is_transposed = false;  // [.., D, S_k]
  double scale = 1;
  std::optional<double> softcap;
  Value mask = kNone, bias = kNone;
  Dim batch, heads;
};

// scale * q k', capped or not.
bool read_products(const Graph& g, Value scores, Attention& a) {
  a.softcap.reset();  // of an attempt before
  // Constants that are taken off may have repeated what they scaled.
  const auto same = [&](Value v, Value in) {
    const Shape &s = g.type(v).shape, &t = g.type(in).shape;
    return s.size() >= 2 && std::equal(s.end() - 2, s.end(), t.end() - 2) &&
           matrices(s) == matrices(t);
  };
  Product p = product_of(g, scores);
  if (p.factors.size() != 1) return false;
  if (const Node* tanh = made_by(g, p.factors[0], op::tanh)) {
    a.softcap = p.scale;
    const double cap = p.scale;
    p = product_of(g, tanh->in[0]);
    p.scale *= cap;
    if (p.factors.size() != 1 || cap <= 0) return false;
  }
  a.scale = p.scale;
  const Node* product = made_by(g, unmerged(g, p.factors[0]), op::matmul);
  if (!product || product->get<MatmulAttrs>().transpose_a || !same(p.factors[0], scores))
    return false;
  if (leading(g.type(product->in[0]).shape) != leading(g.type(product->in[1]).shape)) return false;
  const auto q = unscaled(g, product->in[0]), k = unscaled(g, product->in[1]);
  if (!q || !k) return false;
  a.q = q->v, a.k = k->v;
  a.scale *= q->scale * k->scale;
  a.k_is_transposed = !product->get<MatmulAttrs>().transpose_b;
  return same(a.q, product->in[0]) && same(a.k, product->in[1]);
}

// What a mask lets through of [.., S_q, S_k]: as bools, or as a bias of 0 and numbers that hide.
enum class Seen { other, some_key_by_row, causal };

Seen what_is_seen(const Tensor& t) {
  const Ints& sizes = t.sizes();
  if (sizes.size() < 2 || t.elements() == 0) return Seen::other;
  const int64_t rows = sizes[sizes.size() - 2], columns = sizes.back();
  const double least = is_float(t.dtype()) ? -info(t.dtype()).largest : 0;
  bool every_row = true, causal = rows == columns;
  for (int64_t i = 0; i < t.elements() / columns; ++i) {
    bool some = false;
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t at = i * columns + j;
      const double v = is_bool(t.dtype()) ? (t.get_int(at) ? 0 : least - 1) : t.get_float(at);
      const bool hidden = is_bool(t.dtype()) ? v < 0 : hides(v) || v == least;
      if (!hidden && v != 0) return Seen::other;
      some = some || !hidden;
      causal = causal && hidden == (j > i % rows);
    }
    every_row = every_row && some;
  }
  return causal ? Seen::causal : every_row ? Seen::some_key_by_row : Seen::other;
}

// Of a mask or bias beside scores: a constant, or the comparison of two counters.
Seen what_is_seen(const Graph& g, Value v, const Shape& scores) {
  if (const Node* n = made_by(g, v, op::broadcast)) v = n->in[0];
  const Dim &queries = scores[scores.size() - 2], &keys = scores.back();
  const Node& n = g.node(v);
  if (n.op == &op::constant && (is_float(n.type().dtype) || is_bool(n.type().dtype))) {
    const Seen seen = what_is_seen(n.get<ConstantAttrs>().value);
    const Shape& s = n.type().shape;
    const bool whole = s.rank() >= 2 && s[at(s.rank() - 2)] == queries && s.back() == keys;
    return whole ? seen : Seen::other;
  }
  if (!(queries == keys) || (n.op != &op::le && n.op != &op::ge)) return Seen::other;
  const size_t key = n.op == &op::le ? 0 : 1;
  const auto counts = [&](Value c, int64_t from_behind) {
    if (const Node* b = made_by(g, c, op::broadcast)) c = b->in[0];
    const Node* iota = made_by(g, c, op::iota);
    if (!iota) return false;
    const int64_t rank = iota->type().rank(), axis = iota->get<IotaAttrs>().axis;
    return rank - axis == from_behind && iota->type().shape[at(axis)] == keys &&
           info(iota->type().dtype).digits >= 24;  // counts as far as axes go
  };
  return counts(n.in[key], 1) && counts(n.in[1 - key], 2) ? Seen::causal : Seen::other;
}

// Scores with a bias or a mask on top of them.
bool read_scores(const Match& m, Value scores, Attention& a) {
  const Graph& g = m.graph();
  scores = unmerged(g, scores);
  if (const Node* sum = made_by(g, scores, op::add)) {
    for (size_t i : {0, 1}) {
      a.bias = sum->in[1 - i];
      if (g.type(sum->in[i]) == sum->type() && read_products(g, sum->in[i], a)) return true;
    }
    a.bias = kNone;
  }
  if (const Node* select = made_by(g, scores, op::select)) {  // mask, scores, constant
    a.mask = select->in[0];
    const auto hidden = real_splat(g, select->in[2]);
    if (g.type(select->in[1]) != select->type() || !read_products(g, select->in[1], a))
      return false;
    if (!hidden || !hides(*hidden))
      return m.refuse("what takes the place of scores that a mask hides is not -1e9 or less");
    if (!std::isfinite(*hidden) && what_is_seen(g, a.mask, select->type().shape) == Seen::other)
      return m.refuse("a mask that selects -inf might hide all keys of a query");
    return true;
  }
  return read_products(g, scores, a);
}

// Keys of fewer heads that are repeated for groups of queries, [B, KV, 1, S, D] -> [B, KV, G, S, D], and merged.
Value before_repeats(const Graph& g, Value v, const Dim& batch, const Dim& heads) {
  const Node* repeated = made_by(g, unmerged(g, v), op::broadcast);
  if (!repeated || repeated->type().rank() != 5) return kNone;
  const Shape &all = repeated->type().shape, &one = g.type(repeated->in[0]).shape;
  const bool fits = one == Shape{all[0], all[1], 1, all[3], all[4]} && all[0] == batch &&
                    all[1] * all[2] == heads && all[1].is_static();
  return fits ? repeated->in[0] : kNone;
}

// Weights, which products read in a form of their own, are no keys and values.
bool is_weight(const Graph& g, Value v) {
  while (g.node(v).op->kind == Kind::movement && !g.node(v).in.empty()) v = g.node(v).in[0];
  return g.node(v).op == &op::param || g.node(v).op == &op::constant;
}

std::optional<Attention> attention_of(const Match& m) {
  const Graph& g = m.graph();
  const auto& attrs = m.get<MatmulAttrs>();
  const Node* softmax = made_by(g, unmerged(g, m[x]), op::softmax);
  if (!softmax || !is_float(m.type().dtype)) return std::nullopt;
  if (attrs.transpose_a || attrs.transpose_b)
    return missed(m, "the weights or the values are transposed");
  if (m.type(x).rank() != m.type(y).rank() || leading(m.shape(x)) != leading(m.shape(y)))
    return missed(m, "the values are not batched as the weights are");
  if (softmax->get<SoftmaxAttrs>().axis != softmax->type().rank() - 1)
    return missed(m, "softmax is not along the keys");
  Attention a;
  a.v = m[y];
  if (!read_scores(m, softmax->in[0], a))
    return missed(m, "the scores are not scale * q k' with a mask or a bias on top");
  const Shape& scores = softmax->type().shape;
  const Shape batch = leading(scores);
  if (batch.size() > 2) return missed(m, "there are more axes than those of batches and heads");
  a.heads = batch.size() == 2 ? batch[1] : Dim(1);
  a.batch = batch.empty() ? Dim(1) : batch[0];
  if (!a.heads.is_static() || a.heads.value() < 1)
    return missed(m, "the number of heads is not known");
  const Shape &q = g.type(a.q).shape, &k = g.type(a.k).shape, &v = m.shape(y);
  const Dim width = k[k.size() - (a.k_is_transposed ? 2 : 1)];
  if (!(matrices(q) == matrices(scores)) || !(matrices(v) == matrices(scores)))
    return missed(m, "queries or values are not batched as the scores are");
  if (!(v.back() == width)) return missed(m, "the values are of another width than the keys");
  if (!(a.scale > 0)) return missed(m, "the scale is not positive");
  if (is_weight(g, a.k) || is_weight(g, a.v)) return missed(m, "keys or values are parameters");
  return a;
}

// [.., rows, columns] -> [B, H, rows, columns].
Value lifted(Builder& b, Value v, const Dim& batch, const Dim& heads) {
  const Shape s = b.shape(v);
  return reshape_to(b, v, {batch, heads, s[s.size() - 2], s.back()});
}

// What lies beside scores, as it lies beside [B, H, S_q, S_k].
Value lifted_beside(Builder& b, Value v, const Shape& scores) {
  Shape s = b.shape(v);
  s.insert(s.begin(), scores.size() - s.size(), Dim(1));
  s.insert(s.begin() + (scores.size() == 3 ? 1 : 0), 4 - s.size(), Dim(1));
  return reshape_to(b, v, s);
}

// A row's softmax stays when all its scores move. The largest bias of a row becomes 0, so that no row is hidden whole,
// which attention takes for a row that averages its keys.
Value below_its_largest(Builder& b, Value bias) {
  return op::sub(b, bias, op::reduce_max(b, bias, {{3}, true}));
}

Value emit_attention(Builder& b, const Match& m) {
  const Attention a = *attention_of(m);
  const Shape scores = m.graph().type(unmerged(m.graph(), m[x])).shape;
  AttentionAttrs attrs{.num_heads = a.heads.value(),
                       .scale = a.scale,
                       .softcap = a.softcap,
                       .layout = AttentionLayout::head_major};
  const Dim width = m.type().shape.back();
  if (width.is_static() && width.value() > 0 &&
      is_about(m.type().dtype, a.scale, 1 / std::sqrt(static_cast<double>(width.value()))))
    attrs.scale = std::nullopt;  // what it is without a word
  Value k = a.k_is_transposed ? matrix_transpose(b, a.k) : a.k, v = a.v;
  // A transpose of a transpose is the keys themselves, as simplify will say; repeats are looked for behind it.
  const Node* turned = made_by(b.graph(), a.k, op::transpose);
  if (a.k_is_transposed && turned && b.type(turned->in[0]) == b.type(k) &&
      turned->get<TransposeAttrs>().perm.back() == b.type(k).rank() - 2)
    k = turned->in[0];
  const Value few_k = before_repeats(b.graph(), k, a.batch, a.heads),
              few_v = before_repeats(b.graph(), v, a.batch, a.heads);
  Dim kv_heads = a.heads;
  if (few_k.valid() && few_v.valid() && b.shape(few_k)[1] == b.shape(few_v)[1]) {
    k = few_k, v = few_v, kv_heads = b.shape(few_k)[1];
    attrs.num_kv_heads = kv_heads.value();
  }
  Values in{lifted(b, a.q, a.batch, a.heads), lifted(b, k, a.batch, kv_heads),
            lifted(b, v, a.batch, kv_heads)};
  const auto is_causal = [&](Value v) {
    return what_is_seen(m.graph(), v, scores) == Seen::causal;
  };
  if (a.mask.valid() && is_causal(a.mask)) {
    attrs.mask = MaskKind::causal;
  } else if (a.mask.valid()) {
    attrs.has_mask = true;
    in.push_back(lifted_beside(b, a.mask, scores));
  }
  if (a.bias.valid() && is_causal(a.bias)) {
    attrs.mask = MaskKind::causal;
  } else if (a.bias.valid()) {
    attrs.has_bias = true;
    in.push_back(below_its_largest(b, lifted_beside(b, a.bias, scores)));
  }
  return reshape_to(b, b.emit(op::attention.def, attrs, in)[0], m.type().shape);
}

}  // namespace

RuleSet attention_recognisers() {
  return {{"attention", pat(op::matmul, {x, y}),
           [](const Match& m) { return attention_of(m).has_value(); }, emit_attention}};
}

}  // namespace rlx
