#include "rlx/ops/indexing/sorting.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/indexing/index_rules.h"
#include "rlx/ops/indexing/scatter.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/reduce/reduce_rules.h"

namespace rlx {
namespace {

constexpr DTypeSet kOrdered = kReals | kBools;

// a comes before b: NaN is the largest.
template <class T>
bool before(T a, T b) {
  return a < b || (a == a && b != b);
}

// ---- argsort, sort, topk ------------------------------------------------------------------------

template <class T>
Tensor sorted_positions(const EvalArgs& e) {
  Tensor out = e.make();
  const auto& attrs = e.get<SortAttrs>();
  for_each_line(out.sizes(), attrs.axis, [&](int64_t first, int64_t step, int64_t n) {
    Ints order(at(n));
    std::iota(order.begin(), order.end(), 0);
    auto value = [&](int64_t i) { return detail::fetch<T>(e.in[0], first + i * step); };
    std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t k) {
      return attrs.descending ? before(value(k), value(i)) : before(value(i), value(k));
    });
    for (int64_t i = 0; i < n; ++i) out.set_int(first + i * step, order[at(i)]);
  });
  return out;
}

// Elements [first, limit) along an axis.
Value slice_along(Builder& b, Value x, int64_t axis, const Dim& first, const Dim& limit) {
  SliceAttrs s{Shape(b.shape(x).size(), Dim(0)), b.shape(x), {}};
  s.start[at(axis)] = first, s.limit[at(axis)] = limit;
  return op::slice(b, x, s);
}

Types infer_topk(const InferArgs& a) {
  const auto& attrs = a.get<TopkAttrs>();
  const Dim& n = a.in[0].shape[at(attrs.axis)];
  if (attrs.k < 0 || is_negative(n - Dim(attrs.k)))
    bad_operands(
        a, "topk-k",
        fmt::format("k = {} must be in [0, {}], the size of axis {}", attrs.k, n, attrs.axis));
  if (!kIndexTypes.has(attrs.index_dtype))
    bad_operands(a, "index-dtype",
                 fmt::format("the indices can be of {}, not {}", kIndexTypes.to_string(),
                             attrs.index_dtype));
  Shape shape = a.in[0].shape;
  shape[at(attrs.axis)] = attrs.k;
  return {{a.in[0].dtype, shape}, {attrs.index_dtype, shape}};
}

Values decompose_topk(Builder& b, const Node& n, Operands in) {
  const auto& [k, axis, largest, index_dtype] = n.get<TopkAttrs>();
  const Value order = op::argsort(b, in[0], {axis, largest});
  const Value indices = slice_along(b, order, axis, 0, k);
  return {op::take_along_axis(b, in[0], indices, {axis}), cast_to(b, indices, index_dtype)};
}

// ---- search -------------------------------------------------------------------------------------

Types infer_search(const InferArgs& a) {
  require_same_dtype(a);
  const Shape &sorted = a.in[0].shape, &values = a.in[1].shape;
  bool fits = sorted.rank() == 1 || (sorted.rank() > 1 && sorted.rank() == values.rank());
  for (size_t i = 0; fits && sorted.rank() > 1 && i + 1 < sorted.size(); ++i)
    fits = !differ(sorted[i], values[i]);
  if (!fits)
    bad_operands(a, "search-shape",
                 "the sorted operand must be [n], or [.., n] with the leading sizes of the values");
  return {{DType::I64, values}};
}

template <class T>
Tensor found_positions(const EvalArgs& e) {
  Tensor out = e.make();
  const bool right = e.get<SearchAttrs>().right;
  const int64_t n = e.in[0].sizes().back(), m = out.rank() ? out.sizes().back() : 1;
  for (int64_t i = 0; i < out.elements(); ++i) {
    const T v = detail::fetch<T>(e.in[1], i);
    const int64_t first = e.in[0].rank() == 1 ? 0 : i / m * n;
    int64_t count = 0;
    for (int64_t k = 0; k < n; ++k) {
      const T s = detail::fetch<T>(e.in[0], first + k);
      count += right ? !before(v, s) : before(s, v);
    }
    out.set_int(i, count);
  }
  return out;
}

// With one line for all values the values' axes become one; else the lines have a further axis.
Values vmap_search(Builder& b, const VmapArgs& a) {
  const bool one_line = b.type(a.in[0]).rank() - a.batched[0] == 1;
  if (one_line && !a.batched[0]) return b.clone(a.node, a.in);
  const Value sorted = a.batched[0] ? a.in[0] : batch_operand(b, a.in[0], a.size);
  const Value values = a.batched[1] ? a.in[1] : batch_operand(b, a.in[1], a.size);
  if (!one_line) return b.clone(a.node, Values{sorted, values});
  const Shape shape = b.shape(values);
  const Dim each = Shape(shape.begin() + 1, shape.end()).elements();
  const Value rows = reshape_to(b, values, {a.size, each});
  return {reshape_to(b, b.clone(a.node, Values{sorted, rows})[0], shape)};
}

// ---- order statistics ---------------------------------------------------------------------------

Value drop_axis(Builder& b, Value x, int64_t axis, bool keepdims) {
  return reshape_to(b, x, reduced_shape(b.shape(x), {axis}, keepdims));
}

Types infer_kth(const InferArgs& a) {
  const auto& [k, axis, keepdims] = a.get<KthAttrs>();
  const Dim& n = a.in[0].shape[at(axis)];
  if (k < 1 || is_negative(n - Dim(k)))
    bad_operands(a, "topk-k",
                 fmt::format("k = {} must be in [1, {}], the size of axis {}", k, n, axis));
  return {{a.in[0].dtype, reduced_shape(a.in[0].shape, {axis}, keepdims)}};
}

Types infer_quantile(const InferArgs& a) {
  const auto& q = a.get<QuantileAttrs>();
  if (!(q.q >= 0 && q.q <= 1))
    bad_operands(a, "quantile-q", fmt::format("q = {} must be in [0, 1]", q.q));
  require_elements(a, {q.axis});
  return {{a.in[0].dtype, reduced_shape(a.in[0].shape, {q.axis}, q.keepdims)}};
}

// How much of the upper neighbour there is in a quantile that lies `fraction` above the lower one,
// which has the given rank.
double weight_of(Interpolation how, int64_t rank, double fraction) {
  if (fraction == 0) return 0;
  switch (how) {
    case Interpolation::linear:
      return fraction;
    case Interpolation::lower:
      return 0;
    case Interpolation::higher:
      return 1;
    case Interpolation::nearest:  // halves to the even rank
      return fraction > 0.5 || (fraction == 0.5 && rank % 2 == 1) ? 1 : 0;
    case Interpolation::midpoint:
      return 0.5;
  }
  return 0;
}

// The same for a rank that is known when the size is.
Expr weight_of(Interpolation how, Expr rank, Expr fraction) {
  Builder& b = rank.builder();
  const Expr none = fraction.like(0), all = fraction.like(1), half = fraction.like(0.5);
  const auto above = [&](Value condition, Expr weight) {
    return Expr(b, op::select(b, condition, weight, none));
  };
  switch (how) {
    case Interpolation::linear:
      return fraction;
    case Interpolation::lower:
      return none;
    case Interpolation::higher:
      return above(op::gt(fraction, none), all);
    case Interpolation::nearest: {
      const Expr odd(b, op::rem(rank, rank.like(2)));
      return above(op::gt(fraction + odd * 0.25, half), all);
    }
    case Interpolation::midpoint:
      return above(op::gt(fraction, none), half);
  }
  return none;
}

// Which elements are taken is computed by the program.
Values decompose_symbolic_quantile(Builder& b, const Node& n, Operands in) {
  const auto& attrs = n.get<QuantileAttrs>();
  const Expr last = Expr(b, dim_value(b, b.shape(in[0])[at(attrs.axis)], DType::F64)) - 1;
  const Expr position = last * attrs.q, rank(b, op::floor(position));
  const Value sorted = op::sort(b, in[0], {attrs.axis});
  auto element = [&](Expr i) {
    Value x = op::gather(b, sorted, cast_to(b, i, DType::I64), {.axis = attrs.axis});
    x = reshape_to(b, x, n.type().shape);
    return Expr(b, cast_to(b, x, wide_of(b.type(x).dtype)));
  };
  const Expr low = element(rank), high = element(op::minimum(rank + 1, last));
  const Expr weight(
      b, cast_to(b, weight_of(attrs.interpolation, rank, position - rank), b.type(low).dtype));
  const auto is = [&](double w) { return op::eq(weight, weight.like(w)); };
  Value y = op::select(b, is(0.5), low * 0.5 + high * 0.5, low + (high - low) * weight);
  y = op::select(b, is(0), low, op::select(b, is(1), high, Expr(b, y)));
  const Expr largest = element(last);  // NaN if there is one
  const Expr nan = largest.like(std::numeric_limits<double>::quiet_NaN());
  return {cast_to(b, op::select(b, op::is_nan(largest), nan, Expr(b, y)), n.type().dtype)};
}

Values decompose_quantile(Builder& b, const Node& n, Operands in) {
  const auto& attrs = n.get<QuantileAttrs>();
  if (!b.shape(in[0])[at(attrs.axis)].is_static()) return decompose_symbolic_quantile(b, n, in);
  const int64_t axis = attrs.axis, last = b.shape(in[0])[at(axis)].value() - 1;
  const double position = attrs.q * static_cast<double>(last);
  const auto rank = static_cast<int64_t>(position);
  const double weight = weight_of(attrs.interpolation, rank, position - static_cast<double>(rank));
  const Value sorted = op::sort(b, in[0], {axis});
  auto element = [&](int64_t i) {
    const Value x = drop_axis(b, slice_along(b, sorted, axis, i, i + 1), axis, attrs.keepdims);
    return Expr(b, cast_to(b, x, wide_of(b.type(x).dtype)));
  };
  Expr result = weight == 1 ? element(rank + 1) : element(rank);
  if (weight == 0.5)  // without a difference of neighbours: one rounding
    result = result * 0.5 + element(rank + 1) * 0.5;
  else if (weight > 0 && weight < 1)
    result = result + (element(rank + 1) - result) * weight;
  const Expr largest = element(last);  // NaN if there is one
  const Expr nan = largest.like(std::numeric_limits<double>::quiet_NaN());
  const Value y = op::select(b, op::is_nan(largest), nan, result);
  return {cast_to(b, y, b.type(in[0]).dtype)};
}

}  // namespace

namespace op {

constinit const Op<SortAttrs> argsort = OpDef{
    .name = "argsort",
    .doc =
        "Positions (i64) that put the elements along an axis in ascending or descending order; NaN "
        "is the largest, equals stay in their order.",
    .kind = Kind::reduction,
    .dtypes = kOrdered,
    .infer = [](const InferArgs& a) -> Types { return {{DType::I64, a.in[0].shape}}; },
    .normalise = normalise_axis_of<SortAttrs>,
    .eval = [](const EvalArgs& e) -> Tensors {
      return {is_float(e.in[0].dtype()) ? sorted_positions<double>(e)
                                        : sorted_positions<int64_t>(e)};
    },
    .vmap = vmap_axis<SortAttrs>,
    .cost =
        [](const Node&, std::span<const Type> in) {
          const double n = element_count(in[0]);
          return n * (2 + std::log2(n + 1));
        },
    .not_differentiable = "the result is positions",
};

constinit const Op<SortAttrs> sort = OpDef{
    .name = "sort",
    .doc =
        "The elements along an axis in ascending or descending order; NaN is the largest, equals "
        "stay in their order.",
    .dtypes = kOrdered,
    .infer = infer_same,
    .normalise = normalise_axis_of<SortAttrs>,
    .decompose = [](Builder& b, const Node& n, Operands in) -> Values {
      const auto& attrs = n.get<SortAttrs>();
      return {op::take_along_axis(b, in[0], op::argsort(b, in[0], attrs), {attrs.axis})};
    },
    .vmap = vmap_axis<SortAttrs>,
};

constinit const Op<SortAttrs> sort_by_key = OpDef{
    .name = "sort_by_key",
    .doc =
        "The keys sorted along an axis as by sort, and the further operands of the same shape in "
        "the order of the keys.",
    .arity = kVariadic,
    .min_arity = 1,
    .operands = "keys, values..",
    .dtypes = kOrdered,
    .variadic_results = true,
    .infer = [](const InferArgs& a) -> Types {
      for (const Type& t : a.in)
        if (!may_be_equal({a.in[0].dtype, t.shape}, a.in[0]))
          bad_operands(a, "sort-values", "all operands must have the shape of the keys");
      return {a.in.begin(), a.in.end()};
    },
    .normalise = normalise_axis_of<SortAttrs>,
    .decompose = [](Builder& b, const Node& n, Operands in) -> Values {
      const auto& attrs = n.get<SortAttrs>();
      const Value order = op::argsort(b, in[0], attrs);
      Values out;
      for (Value x : in) out.push_back(op::take_along_axis(b, x, order, {attrs.axis}));
      return out;
    },
};

constinit const Op<TopkAttrs> topk = OpDef{
    .name = "topk",
    .doc =
        "The k largest (or smallest) elements along an axis in descending (ascending) order, and "
        "their positions; NaN is the largest, of equals the smaller position comes first.",
    .reference = "TopK",
    .role = Role::token,
    .dtypes = kOrdered,
    .infer = infer_topk,
    .normalise = normalise_axis_of<TopkAttrs>,
    .decompose = decompose_topk,
    .jvp = [](Builder& b, const JvpArgs& a) -> Values {
      if (!a.tangents[0].valid()) return {kNone, kNone};
      const int64_t axis = a.node.get<TopkAttrs>().axis;
      return {op::take_along_axis(b, a.tangents[0], a.out[1], {axis}), kNone};
    },
    .vmap = vmap_axis<TopkAttrs>,
};

constinit const Op<SearchAttrs> searchsorted = OpDef{
    .name = "searchsorted",
    .doc =
        "For each value how many elements of an ascending line are smaller than it (with `right`: "
        "smaller or equal), i64: where it can be inserted. One line [n] serves all values; lines "
        "[.., n] serve the values [.., m] with the same leading indices. NaN is the largest.",
    .kind = Kind::reduction,
    .arity = 2,
    .operands = "sorted, values",
    .dtypes = kReals,
    .infer = infer_search,
    .eval = [](const EvalArgs& e) -> Tensors {
      return {is_float(e.in[0].dtype()) ? found_positions<double>(e) : found_positions<int64_t>(e)};
    },
    .vmap = vmap_search,
    .cost =
        [](const Node&, std::span<const Type> in) {
          return element_count(in[0]) +
                 element_count(in[1]) * (2 + std::log2(element_count(in[0]) + 1));
        },
    .not_differentiable = "the result is positions",
};

constinit const Op<KthAttrs> kth_value = OpDef{
    .name = "kth_value",
    .doc = "The k-th smallest element along an axis; k = 1 is the smallest, NaN is the largest.",
    .dtypes = kOrdered,
    .infer = infer_kth,
    .normalise = normalise_axis_of<KthAttrs>,
    .decompose = [](Builder& b, const Node& n, Operands in) -> Values {
      const auto& [k, axis, keepdims] = n.get<KthAttrs>();
      const Value sorted = op::sort(b, in[0], {axis});
      return {drop_axis(b, slice_along(b, sorted, axis, k - 1, k), axis, keepdims)};
    },
};

constinit const Op<QuantileAttrs> quantile = OpDef{
    .name = "quantile",
    .doc =
        "The value that lies at q of the way from the smallest to the largest of n elements along "
        "an axis, at rank q (n - 1): interpolated between its neighbours, or the lower, higher, "
        "nearest (halves to even) or mean of both; NaN if there is one.",
    .dtypes = kFloats,
    .infer = infer_quantile,
    .normalise = normalise_axis_of<QuantileAttrs>,
    .decompose = decompose_quantile,
};

constinit const Op<MedianAttrs> median = OpDef{
    .name = "median",
    .doc =
        "The middle one of the sorted elements along an axis, or the mean of the middle two "
        "(NumPy's); NaN if there is one.",
    .dtypes = kFloats,
    .infer = [](const InferArgs& a) -> Types {
      const auto& [axis, keepdims] = a.get<MedianAttrs>();
      const Attrs attrs = QuantileAttrs{0.5, axis, keepdims};
      return infer_quantile({a.op, attrs, a.in});
    },
    .normalise = normalise_axis_of<MedianAttrs>,
    .decompose = [](Builder& b, const Node& n, Operands in) -> Values {
      const auto& [axis, keepdims] = n.get<MedianAttrs>();
      return {op::quantile(b, in[0], {0.5, axis, keepdims})};
    },
};

}  // namespace op

namespace {
constexpr const OpDef* kSortingOps[] = {
    &op::argsort,      &op::sort,      &op::sort_by_key, &op::topk,
    &op::searchsorted, &op::kth_value, &op::median,      &op::quantile,
};
}  // namespace
constinit const Family kSorting{"sorting", kSortingOps};

}  // namespace rlx
