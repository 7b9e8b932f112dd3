// Reductions, running sums and argmax.
#include "rlx/ops/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "rlx/ops/elementwise.h"
#include "rlx/ops/movement.h"
#include "rlx/ops/rules.h"

namespace rlx {
namespace {

size_t at(int64_t i) { return static_cast<size_t>(i); }

// ---- inference and axes -------------------------------------------------------------------------

Shape reduced_shape(const Shape& x, const Ints& axes, bool keepdims) {
  Shape out;
  for (int64_t i = 0; i < x.rank(); ++i) {
    const bool folded = std::binary_search(axes.begin(), axes.end(), i);
    if (!folded || keepdims) out.push_back(folded ? Dim(1) : x[at(i)]);
  }
  return out;
}

Types infer_reduce(const InferArgs& a) {
  const auto& [axes, keepdims] = a.get<ReduceAttrs>();
  return {{a.in[0].dtype, reduced_shape(a.in[0].shape, axes, keepdims)}};
}

void require_elements(const InferArgs& a, const Ints& axes) {
  for (int64_t axis : axes)
    if (a.in[0].shape[at(axis)] == Dim(0))
      bad_operands(a, "reduce-empty",
                   fmt::format("axis {} has no elements, and there is no result for none", axis));
}

Types infer_extremum(const InferArgs& a) {
  require_elements(a, a.get<ReduceAttrs>().axes);
  return infer_reduce(a);
}

Values vmap_reduce(Builder& b, const VmapArgs& a) {
  ReduceAttrs r = a.node.get<ReduceAttrs>();
  for (int64_t& axis : r.axes) ++axis;
  return b.emit(*a.node.op, r, a.in);
}

template <class A>
Values vmap_axis(Builder& b, const VmapArgs& a) {
  A attrs = a.node.get<A>();
  ++attrs.axis;
  return b.emit(*a.node.op, attrs, a.in);
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

DType accumulator_of(DType d) { return d == DType::F16 || d == DType::BF16 ? DType::F32 : d; }

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

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (IntNumber<T>)
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    else
      return a + b;
  }
};
struct Product {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (IntNumber<T>)
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else
      return a * b;
  }
};

template <class F>
Tensors evaluate_fold(const EvalArgs& e, int64_t init, F combine) {
  const DType d = e.in[0].dtype();
  if (is_float(d)) return {fold(e, static_cast<double>(init), combine)};
  if (is_complex(d)) return {fold(e, Complex(static_cast<double>(init)), combine)};
  return {fold(e, init, combine)};
}

// The largest for sign 1, the smallest for sign -1; NaN wins.
template <int kSign>
Tensors evaluate_extremum(const EvalArgs& e) {
  auto better = [](auto a, auto b) {
    return a != a ? a : b != b ? b : (kSign > 0 ? b > a : b < a) ? b : a;
  };
  if (is_float(e.in[0].dtype()))
    return {fold(e, -kSign * std::numeric_limits<double>::infinity(), better)};
  using Limits = std::numeric_limits<int64_t>;
  return {fold(e, kSign > 0 ? Limits::min() : Limits::max(), better)};
}

// Calls f(first, step, n) for every line of a tensor along an axis.
template <class F>
void for_each_line(const Ints& sizes, int64_t axis, F f) {
  const int64_t step = row_major_strides(sizes)[at(axis)], n = sizes[at(axis)];
  Ints others = sizes;
  others[at(axis)] = 1;
  const Ints strides = row_major_strides(sizes);
  for_each_index(others, [&](const Ints& index) {
    int64_t first = 0;
    for (size_t i = 0; i < index.size(); ++i) first += index[i] * strides[i];
    f(first, step, n);
  });
}

template <class T>
Tensor running_sum(const EvalArgs& e) {
  Tensor out = e.make();
  const auto& [axis, exclusive, reverse] = e.get<CumsumAttrs>();
  for_each_line(out.sizes(), axis, [&](int64_t first, int64_t step, int64_t n) {
    T sum{};
    for (int64_t k = 0; k < n; ++k) {
      const int64_t i = first + (reverse ? n - 1 - k : k) * step;
      const T before = sum;
      sum = Sum()(sum, detail::fetch<T>(e.in[0], i));
      detail::put(out, i, exclusive ? before : sum);
    }
  });
  return out;
}

Tensors evaluate_cumsum(const EvalArgs& e) {
  const DType d = e.in[0].dtype();
  if (is_float(d)) return {running_sum<double>(e)};
  if (is_complex(d)) return {running_sum<Complex>(e)};
  return {running_sum<int64_t>(e)};
}

template <class T>
Tensor first_largest(const EvalArgs& e) {
  Tensor out = e.make();
  int64_t line = 0;
  for_each_line(e.in[0].sizes(), e.get<ArgmaxAttrs>().axis,
                [&](int64_t first, int64_t step, int64_t n) {
                  int64_t best = 0;
                  T largest = detail::fetch<T>(e.in[0], first);
                  for (int64_t k = 1; k < n && largest == largest; ++k) {
                    const T v = detail::fetch<T>(e.in[0], first + k * step);
                    if (v > largest || v != v) best = k, largest = v;
                  }
                  out.set_int(line++, best);
                });
  return out;
}

// ---- extrema ------------------------------------------------------------------------------------

// How the gradient of an extremum is shared: 1 / count for each of the `count` elements equal to
// it, else 0.
Value shares(Builder& b, const Node& n, Value x, Value y) {
  const DType dtype = b.type(x).dtype, wide = accumulator_of(dtype);
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

// x [.., n] shifted by `distance` along its last axis, with ones moving in.
Value shift_in_ones(Builder& b, Value x, int64_t distance) {
  PadAttrs p{Shape(b.shape(x).size(), Dim(0)), Shape(b.shape(x).size(), Dim(0))};
  p.low.back() = distance, p.high.back() = -distance;
  return op::pad(b, x, b.constant_like(x, 1), p);
}

// For x [.., n] the product of all other elements of each row, from multiplications alone, so that
// zeros need no care and derivatives of any order are right. For a known n: exclusive prefix
// products times exclusive suffix products, each in log2(n) doubling steps. For a symbolic n: n
// masked products per row.
Value product_of_others(Builder& b, Value x) {
  const Dim n = b.shape(x).back();
  const int64_t rank = b.type(x).rank();
  if (n.is_static()) {
    auto exclusive = [&](int64_t direction) {
      Value p = shift_in_ones(b, x, direction);
      for (int64_t d = 1; d < n.value(); d *= 2)
        p = op::mul(b, p, shift_in_ones(b, p, direction * d));
      return p;
    };
    return op::mul(b, exclusive(1), exclusive(-1));
  }
  const Value row = op::iota(b, {}, {DType::I64, {n, 1}, 0}),
              column = op::iota(b, {}, {DType::I64, {1, n}, 1});
  Shape rows = b.shape(x);
  rows.insert(rows.end() - 1, Dim(1));  // [.., 1, n]
  const Value others =
      op::select(b, op::eq(b, row, column), b.constant_like(x, 1), op::reshape(b, x, {rows}));
  return op::reduce_prod(b, others, {.axes = {rank}});
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
  const DType wide = accumulator_of(x.dtype);
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
  d.vmap = vmap_reduce;
  return d;
}

}  // namespace

namespace op {

constinit const Op<ReduceAttrs> reduce_sum = [] {
  OpDef d = reducer(
      "reduce_sum",
      "Sum of x over the given axes; 0 for none. f16 and bf16 are summed in f32 or wider, integers "
      "wrap.",
      "Reduce(Sum)", kNumbers, [](const EvalArgs& e) { return evaluate_fold(e, 0, Sum()); },
      jvp_through_itself,
      [](Builder& b, const VjpArgs& a) {
        return single(expand_like(b, a.node, a.cotangents[0], a.in[0]));
      });
  d.linear = true;
  return d;
}();

constinit const Op<ReduceAttrs> reduce_max = [] {
  OpDef d = reducer("reduce_max",
                    "Largest element over the given axes, which must not be empty; NaN if there is "
                    "one. Equal elements "
                    "share the gradient.",
                    "Reduce(Max)", kReals, evaluate_extremum<1>, jvp_extremum, vjp_extremum);
  d.infer = infer_extremum;
  return d;
}();

constinit const Op<ReduceAttrs> reduce_min = [] {
  OpDef d = reducer("reduce_min",
                    "Smallest element over the given axes, which must not be empty; NaN if there "
                    "is one. Equal elements "
                    "share the gradient.",
                    "Reduce(Min)", kReals, evaluate_extremum<-1>, jvp_extremum, vjp_extremum);
  d.infer = infer_extremum;
  return d;
}();

constinit const Op<ReduceAttrs> reduce_prod = reducer(
    "reduce_prod",
    "Product of x over the given axes; 1 for none. f16 and bf16 are multiplied in f32 or wider, "
    "integers wrap. The "
    "derivative multiplies the other elements (never divides), so zeros are no special case at any "
    "order; it takes "
    "n log n multiplications, or n^2 when the number of elements is symbolic.",
    "Reduce(Prod)", kNumbers, [](const EvalArgs& e) { return evaluate_fold(e, 1, Product()); },
    jvp_product, vjp_product);

constinit const Op<ReduceAttrs> reduce_mean = OpDef{
    .name = "reduce_mean",
    .doc =
        "Mean of x over the given axes; NaN for none. f16 and bf16 are summed and divided in f32.",
    .reference = "Reduce(Mean)",
    .dtypes = kInexact,
    .infer = infer_reduce,
    .normalise = normalise_axes_of<ReduceAttrs>,
    .decompose = decompose_mean,
    .vmap = vmap_reduce,
};

constinit const Op<CumsumAttrs> cumsum = OpDef{
    .name = "cumsum",
    .doc =
        "Running sum along an axis: of the elements up to each one, or with `exclusive` of those "
        "before it; with "
        "`reverse` from the end. f16 and bf16 are summed in f32 or wider, integers wrap.",
    .reference = "Cumsum",
    .kind = Kind::reduction,
    .dtypes = kNumbers,
    .linear = true,
    .infer = infer_same,
    .normalise = normalise_axis_of<CumsumAttrs>,
    .eval = evaluate_cumsum,
    .jvp = jvp_through_itself,
    .vjp = [](Builder& b, const VjpArgs& a) -> Values {
      CumsumAttrs c = a.node.get<CumsumAttrs>();
      c.reverse = !c.reverse;
      return {op::cumsum(b, a.cotangents[0], c)};
    },
    .vmap = vmap_axis<CumsumAttrs>,
};

constinit const Op<ArgmaxAttrs> argmax = OpDef{
    .name = "argmax",
    .doc =
        "Position (i64) of the largest element along an axis, which must not be empty; the first "
        "of equals, NaN counts "
        "as largest.",
    .kind = Kind::reduction,
    .dtypes = kReals | kBools,
    .infer = [](const InferArgs& a) -> Types {
      const auto& [axis, keepdims] = a.get<ArgmaxAttrs>();
      require_elements(a, {axis});
      return {{DType::I64, reduced_shape(a.in[0].shape, {axis}, keepdims)}};
    },
    .normalise = normalise_axis_of<ArgmaxAttrs>,
    .eval = [](const EvalArgs& e) -> Tensors {
      return {is_float(e.in[0].dtype()) ? first_largest<double>(e) : first_largest<int64_t>(e)};
    },
    .vmap = vmap_axis<ArgmaxAttrs>,
    .not_differentiable = "the result is a position",
};

}  // namespace op

namespace {
constexpr const OpDef* kOps[] = {&op::reduce_sum,  &op::reduce_max,  &op::reduce_min,
                                 &op::reduce_prod, &op::reduce_mean, &op::cumsum,
                                 &op::argmax};
}  // namespace
constinit const Family kReduce{"reduce", kOps};

}  // namespace rlx
