// The forms that fusion and kernel choice expect: products that say which operand is transposed,
// elementwise ops that broadcast by themselves, equal elements as a broadcast scalar.
#include <algorithm>
#include <cmath>

#include "rlx/ops/rules.h"
#include "rlx/passes/canonicalise_rules.h"
#include "rlx/passes/passes.h"

namespace rlx {

bool swaps_matrix(const Ints& perm) {
  const size_t rank = perm.size();
  if (rank < 2) return false;
  for (size_t i = 0; i < rank; ++i) {
    const size_t want = i + 2 < rank ? i : i + 2 == rank ? rank - 1 : rank - 2;
    if (static_cast<size_t>(perm[i]) != want) return false;
  }
  return true;
}

namespace {

using namespace rule_words;

// ---- products

bool transposed_operand(const Match& m) { return swaps_matrix(m.get<TransposeAttrs>(z).perm); }

Value transpose_a(Builder& b, const Match& m) {
  MatmulAttrs a = m.get<MatmulAttrs>();
  a.transpose_a = !a.transpose_a;
  return op::matmul(b, m[x], m[y], a);
}

Value transpose_b(Builder& b, const Match& m) {
  MatmulAttrs a = m.get<MatmulAttrs>();
  a.transpose_b = !a.transpose_b;
  return op::matmul(b, m[x], m[y], a);
}

// (A B)' = B' A'
Value swapped_matmul(Builder& b, const Match& m) {
  const auto& a = m.get<MatmulAttrs>(z);
  return op::matmul(b, m[y], m[x], {!a.transpose_b, !a.transpose_a});
}

// The broadcast z of a matmul's operand `inner` repeats whole matrices, and the product comes out
// the same without it.
bool batch_broadcast(const Match& m, Var inner, Var other) {
  const Shape &from = m.shape(inner), &to = m.shape(z), &rest = m.shape(other);
  if (from.size() < 2 || !std::equal(from.end() - 2, from.end(), to.end() - 2)) return false;
  const auto batch =
      broadcast_shapes(Shape(from.begin(), from.end() - 2), Shape(rest.begin(), rest.end() - 2));
  return batch &&
         std::equal(batch->begin(), batch->end(), m.type().shape.begin(), m.type().shape.end() - 2);
}

Value plain_matmul(Builder& b, const Match& m) {
  return op::matmul(b, m[x], m[y], m.get<MatmulAttrs>());
}

// ---- broadcasts around elementwise ops

const Node* broadcast_operand(const Match& m, size_t i) {
  const Node& n = m.graph().node(m.root().in[i]);
  return n.op == &op::broadcast ? &n : nullptr;
}

// The shape that the operands have together when `without` is used before its broadcast.
std::optional<Shape> shape_with(const Match& m, size_t without) {
  std::optional<Shape> shape = m.graph().type(broadcast_operand(m, without)->in[0]).shape;
  for (size_t i = 0; shape && i < m.root().in.size(); ++i)
    if (i != without) shape = broadcast_shapes(*shape, m.graph().type(m.root().in[i]).shape);
  return shape;
}

// An operand whose broadcast the op does by itself, because the others have the full shape.
std::optional<size_t> implied_broadcast(const Match& m) {
  if (m.root().in.size() < 2) return std::nullopt;
  for (size_t i = 0; i < m.root().in.size(); ++i)
    if (broadcast_operand(m, i) && shape_with(m, i) == m.type().shape) return i;
  return std::nullopt;
}

Value use_before_broadcast(Builder& b, const Match& m, size_t i) {
  Values in = m.root().in;
  in[i] = broadcast_operand(m, i)->in[0];
  return b.emit(*m.root().op, m.root().attrs, in)[0];
}

// The only operand that is not a scalar, when it is a broadcast: the op can be applied to fewer
// elements.
std::optional<size_t> late_broadcast(const Match& m) {
  std::optional<size_t> found;
  for (size_t i = 0; i < m.root().in.size(); ++i) {
    if (m.graph().type(m.root().in[i]).rank() == 0) continue;
    if (found || !broadcast_operand(m, i)) return std::nullopt;
    found = i;
  }
  return found;
}

// Of two operands that may change places, the one that is broadcast comes second, so that both ways of writing it are one.
bool begins_with_the_smaller(const Match& m) {
  const Node& n = m.root();
  if (!n.op->commutative || n.in.size() != 2) return false;
  const Graph& g = m.graph();
  return g.type(n.in[0]).shape != n.type().shape && g.type(n.in[1]).shape == n.type().shape;
}

// ---- constants and reductions

bool is_long_splat(const Match& m) {
  const Tensor& t = m.get<ConstantAttrs>().value;
  return t.elements() > 1 && is_splat(t);
}

Value scalar_broadcast(Builder& b, const Match& m) {
  return broadcast_to(b, b.constant(first_element(m.get<ConstantAttrs>().value)), m.type().shape);
}

// The reduced axes along which the broadcast y only repeats x.
Ints repeated_axes(const Match& m) {
  const Shape &from = m.shape(x), &to = m.shape(y);
  const size_t extra = to.size() - from.size();
  Ints out;
  for (int64_t a : m.get<ReduceAttrs>().axes) {
    const auto i = static_cast<size_t>(a);
    if (i < extra || (from[i - extra] == Dim(1) && !(to[i] == Dim(1)))) out.push_back(a);
  }
  return out;
}

// How often each element of x is added; integers wrap as their sums do.
Tensor copies(const Match& m) {
  Tensor count(m.type().dtype, {});
  count.set_int(0, count_of(m.shape(y), repeated_axes(m)).value());
  return count;
}

// max and min of copies are the copy; a sum of copies is a product, which rounds otherwise than
// adding does.
bool repeats(const Match& m) {
  const Ints axes = repeated_axes(m);
  const Shape &from = m.shape(x), &to = m.shape(y);
  for (int64_t a : m.get<ReduceAttrs>().axes) {
    // A symbol may be 1, and repeated, too.
    const auto i = static_cast<size_t>(a), extra = to.size() - from.size();
    if (!std::count(axes.begin(), axes.end(), a) && !(from[i - extra] == to[i])) return false;
  }
  for (int64_t a : axes) {
    const auto size = m.shape(y)[static_cast<size_t>(a)].static_value();
    if (!size || *size == 0) return false;
  }
  if (axes.empty()) return false;
  if (m.root().op != &op::reduce_sum || is_int(m.type().dtype)) return true;
  return m.fast_math() && std::isfinite(copies(m).get_complex(0).real());
}

Value reduce_once(Builder& b, const Match& m) {
  const auto& attrs = m.get<ReduceAttrs>();
  const Ints repeated = repeated_axes(m);
  Shape full = m.shape(y), aligned(full.size() - m.shape(x).size(), Dim(1));
  aligned.insert(aligned.end(), m.shape(x).begin(), m.shape(x).end());
  Ints real;
  for (int64_t a : attrs.axes) {
    full[static_cast<size_t>(a)] = 1;
    if (!std::count(repeated.begin(), repeated.end(), a)) real.push_back(a);
  }
  Value v = reshape_to(b, m[x], aligned);
  if (!real.empty()) v = b.emit(*m.root().op, ReduceAttrs{real, true}, std::array{v})[0];
  if (m.root().op == &op::reduce_sum) v = op::mul(b, v, b.constant(copies(m)));
  return reshape_to(b, broadcast_to(b, v, full), m.type().shape);
}

}  // namespace

const RuleSet& canonicalise_rules() {
  static const RuleSet rules =
      RuleSet{
          {"matmul-transpose-a", pat(op::matmul, {pat(op::transpose, {x}).as(z), y}),
           transposed_operand, transpose_a},
          {"matmul-transpose-b", pat(op::matmul, {x, pat(op::transpose, {y}).as(z)}),
           transposed_operand, transpose_b},
          {"transpose-matmul", pat(op::transpose, {pat(op::matmul, {x, y}).as(z)}),
           [](const Match& m) {
             return swaps_matrix(m.get<TransposeAttrs>().perm) && m.single_use(z);
           },
           swapped_matmul},
          {"matmul-broadcast-a", pat(op::matmul, {pat(op::broadcast, {x}).as(z), y}),
           [](const Match& m) { return batch_broadcast(m, x, y); }, plain_matmul},
          {"matmul-broadcast-b", pat(op::matmul, {x, pat(op::broadcast, {y}).as(z)}),
           [](const Match& m) { return batch_broadcast(m, y, x); }, plain_matmul},

          {"elementwise-broadcast", pat(Kind::elementwise),
           [](const Match& m) { return implied_broadcast(m).has_value(); },
           [](Builder& b, const Match& m) {
             return use_before_broadcast(b, m, *implied_broadcast(m));
           }},
          {"broadcast-late", pat(Kind::elementwise),
           [](const Match& m) { return late_broadcast(m).has_value(); },
           [](Builder& b, const Match& m) {
             return use_before_broadcast(b, m, *late_broadcast(m));
           }},
          {"operand-order", pat(Kind::elementwise), begins_with_the_smaller,
           [](Builder& b, const Match& m) {
             return b.emit(*m.root().op, m.root().attrs, Values{m.root().in[1], m.root().in[0]})[0];
           }},

          {"splat-constant", pat(op::constant), is_long_splat, scalar_broadcast},
          {"reduce-broadcast",
           pat({op::reduce_sum, op::reduce_max, op::reduce_min}, {pat(op::broadcast, {x}).as(y)}),
           repeats, reduce_once},
      } +
      split_rules();
  return rules;
}

constinit const Pass pass::canonicalise{
    "canonicalise",
    "The forms that fusion and kernel choice expect, and the identities of simplify.",
    [](Graph&& g, const PassOptions& o) {
      static const RuleSet rules = simplify_rules() + canonicalise_rules();
      return rewrite(std::move(g), rules, {.pass = "canonicalise", .fast_math = o.fast_math},
                     o.stats);
    }};

}  // namespace rlx
