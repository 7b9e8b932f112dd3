// Reductions, argmax and argmin.
#include "rlx/ops/reduce/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/reduce/cumulative.h"
#include "rlx/ops/reduce/reduce_rules.h"

namespace rlx {

// ---- inference and axes -------------------------------------------------------------------------

Shape reduced_shape(const Shape& x, const Ints& axes, bool keepdims) {
  Shape out;
  for (int64_t i = 0; i < x.rank(); ++i) {
    const bool folded = std::binary_search(axes.begin(), axes.end(), i);
    if (!folded || keepdims) out.push_back(folded ? Dim(1) : x[at(i)]);
  }
  return out;
}

void require_elements(const InferArgs& a, const Ints& axes) {
  for (int64_t axis : axes)
    if (a.in[0].shape[at(axis)] == Dim(0))
      bad_operands(a, "reduce-empty",
                   fmt::format("axis {} has no elements, and there is no result for none", axis));
}

int64_t integer_limit(DType d, bool highest) {
  const int bits = 8 * size_of(d) - info(d).is_signed;
  const auto most = static_cast<int64_t>((uint64_t{1} << bits) - 1);
  return highest ? most : info(d).is_signed ? -most - 1 : 0;
}

Expr power(Expr x, double p) {
  Builder& b = x.builder();
  const Value zero = op::eq(x, x.like(0));
  const Expr some(b, op::select(b, zero, x.like(1), x));
  const Expr y = p == 0.5 ? op::sqrt(some) : op::pow(some, x.like(p));
  const Expr at_zero = x.like(p > 0 ? 0 : std::numeric_limits<double>::infinity());
  return {b, op::select(b, zero, at_zero, y)};
}

namespace {

Types infer_reduce(const InferArgs& a) {
  const auto& [axes, keepdims] = a.get<ReduceAttrs>();
  return {{a.in[0].dtype, reduced_shape(a.in[0].shape, axes, keepdims)}};
}

// A reduced value in x's shape again.
Value expand_like(Builder& b, const Node& n, Value reduced, Value x) {
  const auto& [axes, keepdims] = n.get<ReduceAttrs>();
  return expand_reduced(b, reduced, Shape(b.shape(x)), axes, keepdims);
}

Value sum_like(Builder& b, const Node& n, Value x) {
  const auto& [axes, keepdims] = n.get<ReduceAttrs>();
  return sum_axes(b, x, axes, keepdims);
}

// ---- reference values ---------------------------------------------------------------------------

// Folds the reduced axes in T, starting from `init`, and stores with one rounding.
template <class T, class F>
Tensor fold(const EvalArgs& e, T init, F combine) {
  Tensor out = e.make();
  const Ints& sizes = e.in[0].sizes();
  const Ints& axes = e.get<ReduceAttrs>().axes;
  Ints kept = sizes;
  for (int64_t axis : axes) kept[at(axis)] = 1;
  const Ints strides = broadcast_strides(kept, sizes);
  std::vector<T> results(at(out.elements()), init);
  int64_t source = 0;
  for_each_index(sizes, [&](const Ints& index) {
    int64_t target = 0;
    for (size_t i = 0; i < index.size(); ++i) target += index[i] * strides[i];
    T& r = results[at(target)];
    r = combine(r, detail::fetch<T>(e.in[0], source++));
  });
  for (int64_t i = 0; i < out.elements(); ++i) detail::put(out, i, results[at(i)]);
  return out;
}

template <class F>
Tensors evaluate_fold(const EvalArgs& e, int64_t init, F combine) {
  const DType d = e.in[0].dtype();
  if (is_float(d)) return {fold(e, static_cast<double>(init), combine)};
  if (is_complex(d)) return {fold(e, Complex(static_cast<double>(init)), combine)};
  return {fold(e, init, combine)};
}

// The largest for sign 1, the smallest for sign -1; NaN wins. Of nothing: what loses to all.
template <int kSign>
Tensors evaluate_extremum(const EvalArgs& e) {
  auto better = [](auto a, auto b) {
    return a != a ? a : b != b ? b : (kSign > 0 ? b > a : b < a) ? b : a;
  };
  if (is_float(e.in[0].dtype()))
    return {fold(e, -kSign * std::numeric_limits<double>::infinity(), better)};
  return {fold(e, integer_limit(e.in[0].dtype(), kSign < 0), better)};
}

// The position of the largest element, or for sign -1 of the smallest; NaN wins.
template <int kSign, class T>
Tensor position_of_extremum(const EvalArgs& e) {
  Tensor out = e.make();
  const auto& [axis, keepdims, last] = e.get<ArgmaxAttrs>();
  int64_t line = 0;
  for_each_line(e.in[0].sizes(), axis, [&, last = last](int64_t first, int64_t step, int64_t n) {
    int64_t found = 0;
    T best = detail::fetch<T>(e.in[0], first);
    for (int64_t k = 1; k < n; ++k) {
      const T v = detail::fetch<T>(e.in[0], first + k * step);
      const bool better = best == best && (v != v || (kSign > 0 ? v > best : v < best));
      const bool equal = v == best || (v != v && best != best);
      if (better || (last && equal)) found = k, best = v;
    }
    out.set_int(line++, found);
  });
  return out;
}

template <int kSign>
constexpr OpDef position(std::string_view name, std::string_view doc) {
  OpDef d{.name = name, .doc = doc, .kind = Kind::reduction, .dtypes = kReals | kBools};
  d.infer = [](const InferArgs& a) -> Types {
    const auto& attrs = a.get<ArgmaxAttrs>();
    require_elements(a, {attrs.axis});
    return {{DType::I64, reduced_shape(a.in[0].shape, {attrs.axis}, attrs.keepdims)}};
  };
  d.normalise = normalise_axis_of<ArgmaxAttrs>;
  d.eval = [](const EvalArgs& e) -> Tensors {
    return {is_float(e.in[0].dtype()) ? position_of_extremum<kSign, double>(e)
                                      : position_of_extremum<kSign, int64_t>(e)};
  };
  d.vmap = vmap_axis<ArgmaxAttrs>;
  d.not_differentiable = "the result is a position";
  return d;
}

// ---- extrema ------------------------------------------------------------------------------------

// How the gradient of an extremum is shared: 1 / count for each of the `count` elements equal to
// it, else 0.
Value shares(Builder& b, const Node& n, Value x, Value y) {
  const DType dtype = b.type(x).dtype, wide = wide_of(dtype);
  const Value hits = cast_to(b, op::eq(b, x, expand_like(b, n, y, x)), wide);
  const Value count = expand_like(b, n, sum_like(b, n, hits), x);
  return cast_to(b, op::div(b, hits, count), dtype);
}

Values jvp_extremum(Builder& b, const JvpArgs& a) {
  if (!a.tangents[0].valid()) return {kNone};
  const Value share = shares(b, a.node, a.in[0], a.out[0]);
  return {sum_like(b, a.node, op::mul(b, a.tangents[0], share))};
}

Values vjp_extremum(Builder& b, const VjpArgs& a) {
  const Value share = shares(b, a.node, a.in[0], a.out[0]);
  return {op::mul(b, expand_like(b, a.node, a.cotangents[0], a.in[0]), share)};
}

// ---- products -----------------------------------------------------------------------------------

// For x [.., n] the product of all other elements of each row, from multiplications alone, so that
// zeros need no care and derivatives of any order are right.
Value product_of_others(Builder& b, Value x) {
  return op::mul(b, op::cumprod(b, x, {.exclusive = true}),
                 op::cumprod(b, x, {.exclusive = true, .reverse = true}));
}

// The partial derivatives of a product, in x's shape.
Value product_partials(Builder& b, const Node& node, Value x) {
  const Ints& axes = node.get<ReduceAttrs>().axes;
  const Shape shape = b.shape(x);
  Ints perm, inverse(shape.size());
  Shape rows;
  for (int64_t i = 0; i < shape.rank(); ++i)
    if (!std::binary_search(axes.begin(), axes.end(), i))
      perm.push_back(i), rows.push_back(shape[at(i)]);
  perm.insert(perm.end(), axes.begin(), axes.end());
  rows.push_back(count_of(shape, axes));
  for (size_t i = 0; i < perm.size(); ++i) inverse[at(perm[i])] = static_cast<int64_t>(i);
  const Value moved = transpose_to(b, x, perm);
  const Shape moved_shape = b.shape(moved);
  const Value others = product_of_others(b, reshape_to(b, moved, rows));
  return transpose_to(b, reshape_to(b, others, moved_shape), inverse);
}

Values jvp_product(Builder& b, const JvpArgs& a) {
  if (!a.tangents[0].valid()) return {kNone};
  return {sum_like(b, a.node, op::mul(b, a.tangents[0], product_partials(b, a.node, a.in[0])))};
}

Values vjp_product(Builder& b, const VjpArgs& a) {
  const Value partials = conj_if_complex(b, product_partials(b, a.node, a.in[0]));
  return {op::mul(b, expand_like(b, a.node, a.cotangents[0], a.in[0]), partials)};
}

// ---- mean ---------------------------------------------------------------------------------------

Values decompose_mean(Builder& b, const Node& n, Operands in) {
  const Type x = b.type(in[0]);
  const auto& [axes, keepdims] = n.get<ReduceAttrs>();
  const DType wide = wide_of(x.dtype);
  if (axes.empty()) return {in[0]};
  const Value sum = sum_axes(b, cast_to(b, in[0], wide), axes, keepdims);
  return {cast_to(b, op::div(b, sum, dim_value(b, count_of(x.shape, axes), wide)), x.dtype)};
}

constexpr OpDef reducer(std::string_view name, std::string_view doc, std::string_view reference,
                        DTypeSet dtypes, EvalRule eval, JvpRule jvp, VjpRule vjp) {
  OpDef d{
      .name = name, .doc = doc, .reference = reference, .kind = Kind::reduction, .dtypes = dtypes};
  d.infer = infer_reduce;
  d.normalise = normalise_axes_of<ReduceAttrs>;
  d.eval = eval;
  d.jvp = jvp;
  d.vjp = vjp;
  d.vmap = vmap_axes<ReduceAttrs>;
  return d;
}

}  // namespace

namespace op {

constinit const Op<ReduceAttrs> reduce_sum = [] {
  OpDef d = reducer(
      "reduce_sum",
      "Sum of x over the given axes; 0 for none. f16 and bf16 are summed in f32 or wider, integers "
      "wrap.",
      "Reduce", kNumbers, [](const EvalArgs& e) { return evaluate_fold(e, 0, WrappingSum()); },
      jvp_through_itself,
      [](Builder& b, const VjpArgs& a) {
        return single(expand_like(b, a.node, a.cotangents[0], a.in[0]));
      });
  d.linear = true;
  return d;
}();

constinit const Op<ReduceAttrs> reduce_max =
    reducer("reduce_max",
            "Largest element over the given axes; NaN if there is one; the lowest value (-inf) of "
            "the dtype for none. Equal "
            "elements share the gradient.",
            "Reduce", kReals, evaluate_extremum<1>, jvp_extremum, vjp_extremum);

constinit const Op<ReduceAttrs> reduce_min =
    reducer("reduce_min",
            "Smallest element over the given axes; NaN if there is one; the highest value (inf) of "
            "the dtype for none. Equal "
            "elements share the gradient.",
            "Reduce", kReals, evaluate_extremum<-1>, jvp_extremum, vjp_extremum);

constinit const Op<ReduceAttrs> reduce_prod = reducer(
    "reduce_prod",
    "Product of x over the given axes; 1 for none. f16 and bf16 are multiplied in f32 or wider, "
    "integers wrap. The "
    "derivative multiplies the other elements (never divides), so zeros are no special case at any "
    "order.",
    "Reduce", kNumbers, [](const EvalArgs& e) { return evaluate_fold(e, 1, WrappingProduct()); },
    jvp_product, vjp_product);

constinit const Op<ReduceAttrs> reduce_mean = OpDef{
    .name = "reduce_mean",
    .doc =
        "Mean of x over the given axes; NaN for none. f16 and bf16 are summed and divided in f32.",
    .reference = "Reduce",
    .dtypes = kInexact,
    .infer = infer_reduce,
    .normalise = normalise_axes_of<ReduceAttrs>,
    .decompose = decompose_mean,
    .vmap = vmap_axes<ReduceAttrs>,
};

constinit const Op<ArgmaxAttrs> argmax = position<1>(
    "argmax",
    "Position (i64) of the largest element along an axis, which must not be empty; the first of "
    "equals, or with `select_last` the last; NaN counts as largest.");

constinit const Op<ArgmaxAttrs> argmin = position<-1>(
    "argmin",
    "Position (i64) of the smallest element along an axis, which must not be empty; the first of "
    "equals, or with `select_last` the last; NaN counts as smallest (NumPy's rule).");

}  // namespace op

namespace {
constexpr const OpDef* kReduceOps[] = {&op::reduce_sum,  &op::reduce_max,  &op::reduce_min,
                                       &op::reduce_prod, &op::reduce_mean, &op::argmax,
                                       &op::argmin};
}  // namespace
constinit const Family kReduce{"reduce", kReduceOps};

}  // namespace rlx
