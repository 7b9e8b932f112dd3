// Rows that were merged for a product, [B, S, K] -> [B S, K], and are split again behind it and what follows it, stay apart:
// reshapes lie in the way of fusion. Exporters write every linear layer so.
#include <algorithm>

#include "rlx/ops/rules.h"
#include "rlx/passes/canonicalise_rules.h"

namespace rlx {

namespace {

using namespace rule_words;

constexpr size_t kMostMerged = 32;  // nodes between a split and the merges before it

// The leading axes of `whole` that are `rows` together, when `split` begins with them too.
std::optional<Shape> common_rows(const Shape& whole, const Shape& split, const Dim& rows) {
  Dim product = 1;
  for (size_t i = 0; i < std::min(whole.size(), split.size()); ++i) {
    if (!(whole[i] == split[i])) break;
    product = product * whole[i];
    if (i > 0 && product == rows)
      return Shape(whole.begin(), whole.begin() + static_cast<int64_t>(i) + 1);
  }
  return std::nullopt;
}

// Whether an operand of an elementwise op on [rows, columns] has its rows.
bool has_rows(const Type& operand, const Dim& rows) {
  return operand.rank() == 2 && operand.shape[0] == rows;
}

// What [rows, columns] is made of, as far as its rows go.
std::optional<Values> parts_with_rows(const Graph& g, const Node& n, const Dim& rows) {
  if (n.op == &op::matmul) {
    const bool plain = !n.get<MatmulAttrs>().transpose_a && g.type(n.in[1]).rank() == 2;
    return plain ? std::optional(Values{n.in[0]}) : std::nullopt;
  }
  if (n.op->kind != Kind::elementwise || n.out.size() != 1) return std::nullopt;
  Values out;
  for (Value v : n.in) {
    if (has_rows(g.type(v), rows))
      out.push_back(v);
    else if (g.type(v).rank() == 2 && !(g.type(v).shape[0] == Dim(1)))
      return std::nullopt;
  }
  return out;
}

// The axes that the rows of x were before they were merged: x is a product or an elementwise op on merges of those axes, or
// on such products and ops, and is split into them.
std::optional<Shape> rows_before(const Match& m) {
  const Graph& g = m.graph();
  if (m.type(x).rank() != 2) return std::nullopt;
  const Dim rows = m.shape(x)[0];
  std::optional<Shape> axes;
  Values open{m[x]};
  for (size_t seen = 0; !open.empty(); ++seen) {
    const Value v = open.back();
    const Node& n = g.node(v);
    open.pop_back();
    if (n.op == &op::reshape) {
      const auto before = common_rows(g.type(n.in[0]).shape, m.type().shape, rows);
      if (!before || (axes && *axes != *before)) return std::nullopt;
      axes = before;
      continue;
    }
    const auto parts = parts_with_rows(g, n, rows);
    if (!parts || parts->empty() || !m.single_use(v)) return std::nullopt;
    open.insert(open.end(), parts->begin(), parts->end());
    if (seen + open.size() > kMostMerged) return std::nullopt;
  }
  return g.node(m[x]).op == &op::reshape ? std::nullopt : axes;
}

// The product or elementwise op x on operands whose rows are split.
Value on_split_rows(Builder& b, const Match& m) {
  const Shape axes = *rows_before(m);
  const Node n = m.node(x);  // NOLINT: a copy, the graph grows
  const Dim rows = m.shape(x)[0];
  Values in = n.in;
  for (size_t i = 0; i < in.size(); ++i) {
    const Type& t = b.type(in[i]);
    if (n.op == &op::matmul ? i > 0 : !has_rows(t, rows)) continue;
    Shape split = axes;
    split.push_back(t.shape[1]);
    in[i] = reshape_to(b, in[i], split);
  }
  return reshape_to(b, b.emit(*n.op, n.attrs, in)[0], m.type().shape);
}

}  // namespace

RuleSet split_rules() {
  return {{"split-rows", pat(op::reshape, {x}),
           [](const Match& m) { return rows_before(m).has_value(); }, on_split_rows}};
}

}  // namespace rlx
