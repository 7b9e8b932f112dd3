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
#include "rlx/ops/reduce/reduce_rules.h"
#include "rlx/ops/reduce/statistics.h"
#include "rlx/ops/rules.h"
#include "rlx/passes/canonicalise_rules.h"
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

// scale * v, or with turned its transpose, where v is seen through products with constants and merges, and through a transpose
// behind which a constant scales.
struct ScaledMatrix {
  double scale;
  Value v;
  bool turned = false;
};
ScaledMatrix unscaled(const Graph& g, Value v, bool through_transposes) {
  ScaledMatrix s{1, v};
  for (Value last = kNone; s.v != last;) {
    last = s.v;
    const Product p = product_of(g, unmerged(g, s.v));
    if (p.factors.size() != 1) break;
    s.scale *= p.scale, s.v = p.factors[0];
    const Node* turn = through_transposes ? made_by(g, s.v, op::transpose) : nullptr;
    if (!turn || !swaps_matrix(turn->get<TransposeAttrs>().perm)) continue;
    const ScaledMatrix behind = unscaled(g, turn->in[0], false);
    if (behind.scale != 1) s = {s.scale * behind.scale, behind.v, !s.turned};
  }
  return s;
}

struct Attention {
  Value q, k, v, scores;
  bool k_is_transposed = false;  // [.., D, S_k]
  double scale = 1;
  std::optional<double> softcap;
  Value mask = kNone, bias = kNone;
  double hides_by = 0;  // what takes the place of scores that the mask hides
  Dim batch, heads;
};

// scale * q k', capped or not.
bool read_products(const Graph& g, Value scores, Attention& a) {
  a.softcap.reset();  // of an attempt before
  // Constants that are taken off may have repeated what they scaled.
  const auto same = [&](Value v, Value in, bool turned) {
    Shape s = g.type(v).shape;
    const Shape& t = g.type(in).shape;
    if (s.size() < 2) return false;
    if (turned) std::swap(s[s.size() - 1], s[s.size() - 2]);
    return std::equal(s.end() - 2, s.end(), t.end() - 2) && matrices(s) == matrices(t);
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
  if (!product || product->get<MatmulAttrs>().transpose_a || !same(p.factors[0], scores, false))
    return false;
  if (leading(g.type(product->in[0]).shape) != leading(g.type(product->in[1]).shape)) return false;
  const ScaledMatrix q = unscaled(g, product->in[0], false), k = unscaled(g, product->in[1], true);
  a.q = q.v, a.k = k.v;
  a.scale *= q.scale * k.scale;
  a.k_is_transposed = product->get<MatmulAttrs>().transpose_b == k.turned;
  return same(a.q, product->in[0], false) && same(a.k, product->in[1], k.turned);
}

// Scores with a bias or a mask on top of them.
bool read_scores(const Match& m, Value scores, Attention& a) {
  const Graph& g = m.graph();
  a.scores = scores;
  scores = unmerged(g, scores);
  if (const Node* sum = made_by(g, scores, op::add)) {
    for (size_t i : {0, 1}) {
      a.bias = sum->in[1 - i];
      if (g.type(sum->in[i]) != sum->type() || !read_products(g, sum->in[i], a)) continue;
      a.scores = scores;  // the bias lies beside these
      return true;
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
    a.hides_by = *hidden, a.scores = scores;
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

// Whether v says of each row of scores that all of them are -inf, or with `some` that not all are.
bool says_hidden(const Graph& g, Value v, Value scores, bool some) {
  if (const Node* n = made_by(g, v, op::broadcast)) v = n->in[0];
  for (const Node* n; (n = made_by(g, v, op::logical_not)) != nullptr; some = !some) v = n->in[0];
  const Node* fold = made_by(g, v, some ? op::any : op::all);
  if (!fold || fold->get<ReduceAttrs>().axes != Ints{g.type(scores).rank() - 1} ||
      !fold->get<ReduceAttrs>().keepdims)
    return false;
  v = fold->in[0];
  bool equal = !some;
  for (const Node* n; (n = made_by(g, v, op::logical_not)) != nullptr; equal = !equal) v = n->in[0];
  const Node* compared = made_by(g, v, equal ? op::eq : op::ne);
  for (size_t i : {0, 1})
    if (compared && compared->in[i] == scores && real_splat(g, compared->in[1 - i]) == -INFINITY)
      return true;
  return false;
}

// The weights: a softmax, or one whose rows are 0 where all scores are -inf, as scaled_dot_product_attention has it.
struct Weights {
  const Node* softmax = nullptr;
  bool zero_without_keys = false;
};
Weights weights_of(const Graph& g, Value v) {
  v = unmerged(g, v);
  if (const Node* n = made_by(g, v, op::softmax)) return {n};
  const Node* select = made_by(g, v, op::select);
  for (size_t zero : {1, 2}) {
    if (!select || real_splat(g, select->in[zero]) != 0) continue;
    const Node* n = made_by(g, select->in[3 - zero], op::softmax);
    if (n && n->type() == select->type() && n->get<SoftmaxAttrs>().axis == n->type().rank() - 1 &&
        says_hidden(g, select->in[0], n->in[0], zero == 2))
      return {n, true};
  }
  return {};
}

// Whether some key of each query is seen, so that no row of scores is hidden whole; scores themselves are taken for finite.
bool every_row_sees(const Match& m, const Attention& a, bool zero_without_keys) {
  const Graph& g = m.graph();
  const Shape scores = g.type(a.scores).shape;
  if (a.mask.valid() && !std::isfinite(a.hides_by) &&
      what_is_seen(g, a.mask, scores) == Seen::other)
    return m.refuse("a mask that selects -inf might hide all keys of a query");
  if (zero_without_keys && a.bias.valid() && what_is_seen(g, a.bias, scores) == Seen::other)
    return m.refuse("a bias might hide all keys of a query, whose result is 0 then");
  return true;
}

std::optional<Attention> attention_of(const Match& m) {
  const Graph& g = m.graph();
  const auto& attrs = m.get<MatmulAttrs>();
  const auto [softmax, zero_without_keys] = weights_of(g, m[x]);
  if (!is_float(m.type().dtype)) return std::nullopt;
  if (!softmax) {
    const Node& between = g.node(unmerged(g, m[x]));
    const bool is_near = between.op->kind == Kind::elementwise &&
                         std::any_of(between.in.begin(), between.in.end(), [&](Value v) {
                           return made_by(g, v, op::softmax) != nullptr;
                         });
    if (is_near)
      m.refuse(fmt::format("{} stands between softmax and the values", between.op->name));
    return std::nullopt;
  }
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
  if (!every_row_sees(m, a, zero_without_keys)) return std::nullopt;
  const Shape scores = g.type(a.scores).shape, batch = leading(scores);
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
  const Shape scores = m.graph().type(a.scores).shape;
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
