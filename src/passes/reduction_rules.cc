// Reductions of nothing, of single elements, and of reductions.
#include <algorithm>

#include "rlx/ops/rules.h"
#include "rlx/passes/simplify_rules.h"

namespace rlx {

namespace {

using namespace rule_words;

bool is_sum(const Match& m) {
  return m.root().op == &op::reduce_sum || m.root().op == &op::reduce_prod;
}

// The axes of x that both reductions fold.
Ints merged_axes(const Match& m) {
  const auto& inner = m.get<ReduceAttrs>(y);
  Ints left;  // what the inner reduction leaves, as axes of x
  for (int64_t a = 0; a < m.type(x).rank(); ++a)
    if (inner.keepdims || !std::count(inner.axes.begin(), inner.axes.end(), a)) left.push_back(a);
  Ints axes = inner.axes;
  for (int64_t a : m.get<ReduceAttrs>().axes) axes.push_back(left[static_cast<size_t>(a)]);
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

// Sums and products of floats change their rounding when merged.
bool reductions_merge(const Match& m) {
  return m.root().op == m.node(y).op && m.single_use(y) &&
         (!is_sum(m) || !is_differentiable(m.type().dtype) || m.fast_math());
}

// A sum starts at +0, so the sum of a single -0 is +0.
bool makes_positive_zero(const Match& m) {
  return m.root().op == &op::reduce_sum && is_differentiable(m.type().dtype) && !m.fast_math();
}

bool no_axes(const Match& m) { return m.get<ReduceAttrs>().axes.empty(); }

bool unit_axes(const Match& m) {
  const Shape& shape = m.shape(x);
  for (int64_t a : m.get<ReduceAttrs>().axes)
    if (!(shape[static_cast<size_t>(a)] == Dim(1))) return false;
  return !no_axes(m) && !makes_positive_zero(m);
}

}  // namespace

RuleSet reduction_rules() {
  return {
      {"reduce-nothing",
       pat({op::reduce_sum, op::reduce_prod, op::reduce_max, op::reduce_min, op::reduce_mean}, {x}),
       [](const Match& m) { return no_axes(m) && !makes_positive_zero(m); },
       [](Builder&, const Match& m) { return m[x]; }},
      {"sum-nothing", pat(op::reduce_sum, {x}),
       [](const Match& m) { return no_axes(m) && makes_positive_zero(m); },
       [](Builder& b, const Match& m) { return op::add(b, m[x], b.constant_like(m[x], 0)); }},
      {"reduce-unit-axes",
       pat({op::reduce_sum, op::reduce_prod, op::reduce_max, op::reduce_min}, {x}), unit_axes,
       [](Builder& b, const Match& m) { return reshape_to(b, m[x], m.type().shape); }},
      {"reduce-reduce",
       pat({op::reduce_sum, op::reduce_prod, op::reduce_max, op::reduce_min},
           {pat({op::reduce_sum, op::reduce_prod, op::reduce_max, op::reduce_min}, {x}).as(y)}),
       reductions_merge,
       [](Builder& b, const Match& m) {
         const bool keepdims = m.type().rank() == m.type(x).rank();
         const Value all =
             b.emit(*m.root().op, ReduceAttrs{merged_axes(m), keepdims}, std::array{m[x]})[0];
         return reshape_to(b, all, m.type().shape);
       }},
  };
}

}  // namespace rlx
