#include "rlx/ops/reduce/cumulative.h"

#include <cmath>
#include <limits>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/elementwise/math.h"
#include "rlx/ops/indexing/index_rules.h"
#include "rlx/ops/indexing/scatter.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/reduce/reduce_rules.h"

namespace rlx {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// ---- reference values ---------------------------------------------------------------------------

// Walks every line: step(state, i) is called for each position i in turn with the state so far and
// returns the next; put(i, state) writes the state of the position.
template <class State, class Step, class Put>
void walk(const EvalArgs& e, State start, Step step, Put put) {
  const auto& attrs = e.get<CumsumAttrs>();
  for_each_line(e.in[0].sizes(), attrs.axis, [&](int64_t first, int64_t stride, int64_t n) {
    State state = start;
    for (int64_t k = 0; k < n; ++k) {
      const int64_t i = attrs.reverse ? n - 1 - k : k;
      const State next = step(state, first + i * stride, i);
      put(first + i * stride, attrs.exclusive ? state : next);
      state = next;
    }
  });
}

template <class T, class F>
Tensor running_fold(const EvalArgs& e, T start, F combine) {
  Tensor out = e.make();
  walk(
      e, start,
      [&](T so_far, int64_t place, int64_t) {
        return combine(so_far, detail::fetch<T>(e.in[0], place));
      },
      [&](int64_t place, T v) { detail::put(out, place, v); });
  return out;
}

template <class F>
Tensors evaluate_running(const EvalArgs& e, int64_t start, F combine) {
  const DType d = e.in[0].dtype();
  if (is_float(d)) return {running_fold(e, static_cast<double>(start), combine)};
  if (is_complex(d)) return {running_fold(e, Complex(static_cast<double>(start)), combine)};
  return {running_fold(e, start, combine)};
}

// The element that wins so far and where it is; the later of equals, NaN wins.
template <int kSign, class T>
Tensors running_extremum(const EvalArgs& e, T worst) {
  struct Best {
    T value;
    int64_t where;
  };
  Tensor out = e.make(0), where = e.make(1);
  walk(
      e, Best{worst, -1},
      [&](const Best& best, int64_t place, int64_t i) {
        const T v = detail::fetch<T>(e.in[0], place);
        return v != v || (kSign > 0 ? v >= best.value : v <= best.value) ? Best{v, i} : best;
      },
      [&](int64_t place, const Best& best) {
        detail::put(out, place, best.value);
        where.set_int(place, best.where);
      });
  return {out, where};
}

template <int kSign>
Tensors evaluate_running_extremum(const EvalArgs& e) {
  const DType d = e.in[0].dtype();
  if (is_float(d)) return running_extremum<kSign, double>(e, -kSign * kInf);
  return running_extremum<kSign, int64_t>(e, integer_limit(d, kSign < 0));
}

double log_add_exp(double a, double b) {
  if (a == b) return a + std::log(2.0);  // also of equal infinities
  return std::max(a, b) + std::log1p(std::exp(-std::fabs(a - b)));
}

Tensors evaluate_cumlogsumexp(const EvalArgs& e) {
  Tensor out = e.make();
  walk(
      e, -kInf,
      [&](double so_far, int64_t place, int64_t) {
        return log_add_exp(so_far, e.in[0].get_float(place));
      },
      [&](int64_t place, double v) { out.set_float(place, v); });
  return {out};
}

// ---- decompositions -----------------------------------------------------------------------------

struct Monoid {
  double neutral;
  Value (*combine)(Builder&, Value, Value);
  Value (*fold)(Builder&, Value x, int64_t axis);  // drops the axis
};

// x moved by `distance` along an axis, with the neutral element moving in.
Value shifted(Builder& b, Value x, int64_t axis, int64_t distance, double neutral) {
  const size_t rank = b.shape(x).size();
  PadAttrs p{Shape(rank, Dim(0)), Shape(rank, Dim(0))};
  p.low[at(axis)] = distance, p.high[at(axis)] = -distance;
  return op::pad(b, x, b.constant_like(x, neutral), p);
}

// Running values from the op that combines two of them, so that they have its derivatives. For a
// known size n: log2(n) doubling steps. For a symbolic n: n masked folds.
Value running(Builder& b, Value x, const CumsumAttrs& a, const Monoid& m) {
  const Dim n = b.shape(x)[at(a.axis)];
  if (n.is_static()) {
    const int64_t direction = a.reverse ? -1 : 1;
    Value y = a.exclusive ? shifted(b, x, a.axis, direction, m.neutral) : x;
    for (int64_t d = 1; d < n.value(); d *= 2)
      y = m.combine(b, shifted(b, y, a.axis, direction * d, m.neutral), y);
    return y;
  }
  const int64_t rank = b.type(x).rank() + 1;  // [.., i, k, ..]: element k of the fold for i
  Value i = counter(b, n, a.axis, rank).index, k = counter(b, n, a.axis + 1, rank).index;
  if (a.reverse) std::swap(i, k);
  const Value counts = a.exclusive ? op::lt(b, k, i) : op::le(b, k, i);
  Shape lines = b.shape(x);
  lines.insert(lines.begin() + a.axis, Dim(1));
  const Value each =
      op::select(b, counts, op::reshape(b, x, {lines}), b.constant_like(x, m.neutral));
  return m.fold(b, each, a.axis + 1);
}

// As reduce_prod and cumsum do: f16 and bf16 are computed in f32 and rounded once.
Values running_wide(Builder& b, const Node& n, Value x, const Monoid& m) {
  const DType dtype = b.type(x).dtype;
  const Value wide = cast_to(b, x, wide_of(dtype));
  return {cast_to(b, running(b, wide, n.get<CumsumAttrs>(), m), dtype)};
}

Value fold_exponents(Builder& b, Value x, int64_t axis) {
  Expr e(b, x);
  Expr most(b, op::stop_gradient(op::reduce_max(e, {{axis}, true})));
  Expr shift(b, op::select(b, op::is_finite(most), most, most.like(0)));
  Expr total(b, op::log(op::reduce_sum(op::exp(e - shift), {{axis}, true})));
  return reshape_to(b, total + shift, reduced_shape(e.shape(), {axis}, false));
}

// ---- extrema ------------------------------------------------------------------------------------

// The tangent of the element that won; 0 where there is none yet.
Values jvp_running_extremum(Builder& b, const JvpArgs& a) {
  if (!a.tangents[0].valid()) return {kNone, kNone};
  const auto& attrs = a.node.get<CumsumAttrs>();
  Expr where(b, a.out[1]), none = where.like(0);
  const Value t = op::take_along_axis(b, a.tangents[0], op::maximum(where, none), {attrs.axis});
  return {attrs.exclusive ? op::select(b, op::lt(where, none), b.constant_like(t, 0), t) : t,
          kNone};
}

template <int kSign>
constexpr OpDef extremum(std::string_view name, std::string_view doc) {
  OpDef d{.name = name, .doc = doc, .kind = Kind::reduction, .dtypes = kReals};
  d.infer = [](const InferArgs& a) -> Types { return {a.in[0], {DType::I64, a.in[0].shape}}; };
  d.normalise = normalise_axis_of<CumsumAttrs>;
  d.eval = evaluate_running_extremum<kSign>;
  d.jvp = jvp_running_extremum;
  d.vmap = vmap_axis<CumsumAttrs>;
  return d;
}

}  // namespace

namespace op {

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
    .eval = [](const EvalArgs& e) { return evaluate_running(e, 0, WrappingSum()); },
    .jvp = jvp_through_itself,
    .vjp = [](Builder& b, const VjpArgs& a) -> Values {
      CumsumAttrs c = a.node.get<CumsumAttrs>();
      c.reverse = !c.reverse;
      return {op::cumsum(b, a.cotangents[0], c)};
    },
    .vmap = vmap_axis<CumsumAttrs>,
};

constinit const Op<CumsumAttrs> cumprod = OpDef{
    .name = "cumprod",
    .doc =
        "Running product along an axis: of the elements up to each one, or with `exclusive` of "
        "those before it; with `reverse` from the end. f16 and bf16 are multiplied in f32 or "
        "wider, integers wrap. The derivative never divides, so zeros are no special case at any "
        "order.",
    .kind = Kind::reduction,
    .dtypes = kNumbers,
    .infer = infer_same,
    .normalise = normalise_axis_of<CumsumAttrs>,
    .eval = [](const EvalArgs& e) { return evaluate_running(e, 1, WrappingProduct()); },
    .decompose =
        [](Builder& b, const Node& n, Operands in) {
          return running_wide(
              b, n, in[0],
              {1, [](Builder& c, Value p, Value q) { return op::mul(c, p, q); },
               [](Builder& c, Value x, int64_t axis) { return op::reduce_prod(c, x, {{axis}}); }});
        },
    .vmap = vmap_axis<CumsumAttrs>,
};

constinit const Op<CumsumAttrs> cumlogsumexp = OpDef{
    .name = "cumlogsumexp",
    .doc =
        "Running log(sum(exp(x))) along an axis, without overflow: of the elements up to each one, "
        "or with `exclusive` of those before it (-inf for none); with `reverse` from the end.",
    .kind = Kind::reduction,
    .dtypes = kFloats,
    .infer = infer_same,
    .normalise = normalise_axis_of<CumsumAttrs>,
    .eval = evaluate_cumlogsumexp,
    .decompose =
        [](Builder& b, const Node& n, Operands in) {
          return running_wide(
              b, n, in[0],
              {-kInf, [](Builder& c, Value p, Value q) { return op::logaddexp(c, p, q); },
               fold_exponents});
        },
    .vmap = vmap_axis<CumsumAttrs>,
};

constinit const Op<CumsumAttrs> cummax = extremum<1>(
    "cummax",
    "Largest element so far along an axis and its position (i64): up to each element, or with "
    "`exclusive` before it (the lowest value and -1 for none); with `reverse` from the end. Of "
    "equals the one met last counts and receives the gradient; NaN wins.");
constinit const Op<CumsumAttrs> cummin = extremum<-1>(
    "cummin",
    "Smallest element so far along an axis and its position (i64): up to each element, or with "
    "`exclusive` before it (the highest value and -1 for none); with `reverse` from the end. Of "
    "equals the one met last counts and receives the gradient; NaN wins.");

}  // namespace op

namespace {
constexpr const OpDef* kCumulativeOps[] = {&op::cumsum, &op::cumprod, &op::cumlogsumexp,
                                           &op::cummax, &op::cummin};
}  // namespace
constinit const Family kCumulative{"cumulative", kCumulativeOps};

}  // namespace rlx
