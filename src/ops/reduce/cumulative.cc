#include "rlx/ops/reduce/cumulative.h"

#include <cmath>
#include <limits>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/elementwise/math.h"
#include "rlx/ops/indexing/index_rules.h"
#include "rlx/ops/indexing/scatter.h"
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

// ---- recurrences --------------------------------------------------------------------------------

template <class T>
Tensors evaluate_recurrence(const EvalArgs& e) {
  Tensor out = e.make();
  walk(
      e, T(0),
      [&](T so_far, int64_t place, int64_t) {
        return detail::fetch<T>(e.in[0], place) * so_far + detail::fetch<T>(e.in[1], place);
      },
      [&](int64_t place, T v) { detail::put(out, place, v); });
  return {out};
}

// What each element of a line meets: the running value of those before it, in the dtype of x.
Value before(Builder& b, const Node& n, Operands in, Value out) {
  CumsumAttrs attrs = n.get<CumsumAttrs>();
  if (attrs.exclusive && b.type(in[0]).dtype == b.type(out).dtype) return out;
  attrs.exclusive = true;
  return b.emit(*n.op, attrs, Values(in.begin(), in.end()))[0];
}

// h_i = a_i * h_(i-1) + u_i, so dh_i = a_i * dh_(i-1) + (da_i * h_(i-1) + du_i).
Values jvp_recurrence(Builder& b, const JvpArgs& a) {
  Value t = a.tangents[1];
  if (a.tangents[0].valid())
    t = add_maybe(b, op::mul(b, a.tangents[0], before(b, a.node, a.in, a.out[0])), t);
  if (!t.valid()) return {kNone};
  return {op::linear_recurrence(b, a.in[0], t, a.node.get<CumsumAttrs>())};
}

// What u_i moves is h_i and, through the elements that follow, all later ones: a recurrence in the
// other direction.
Values vjp_recurrence(Builder& b, const VjpArgs& a) {
  const CumsumAttrs& attrs = a.node.get<CumsumAttrs>();
  const CumsumAttrs back{attrs.axis, true, !attrs.reverse};
  const Value g = a.cotangents[0], factor = conj_if_complex(b, a.in[0]);
  const Value by_u =
      attrs.exclusive
          ? op::linear_recurrence(b, factor, g, back)
          : op::add(b, g, op::linear_recurrence(b, factor, op::mul(b, factor, g), back));
  if (!a.wanted[0]) return {kNone, by_u};
  const Value h = before(b, a.node, a.in, a.out[0]);
  return {op::mul(b, by_u, conj_if_complex(b, h)), by_u};
}

// The running value y_i = f(y_(i-1), x_i) has the tangent f's partial by y times the tangent of
// what came before, plus the partial by x times that of x. f16 and bf16 go through f32, as the value
// does.
struct Partials {
  Value by_state, by_element;
};
using PartialsRule = Partials (*)(Builder&, Value before, Value x);

template <PartialsRule partials>
Values jvp_running(Builder& b, const JvpArgs& a) {
  if (!a.tangents[0].valid()) return {kNone};
  const DType dtype = b.type(a.in[0]).dtype, wide = wide_of(dtype);
  const Value x = cast_to(b, a.in[0], wide);
  const Partials p = partials(b, before(b, a.node, Values{x}, a.out[0]), x);
  const Value t = op::mul(b, p.by_element, cast_to(b, a.tangents[0], wide));
  const Value out = op::linear_recurrence(b, p.by_state, t, a.node.get<CumsumAttrs>());
  return {cast_to(b, out, dtype)};
}

Partials product_partials_of(Builder&, Value before, Value x) { return {x, before}; }

// Those of logaddexp: equal infinities share.
Partials logaddexp_partials_of(Builder& b, Value before, Value x) {
  Expr state(b, before), element(b, x);
  Expr none = op::logical_and(op::eq(state, element), op::is_inf(element));
  Expr ahead(b, op::select(none, element.like(0), state - element));
  return {op::sigmoid(ahead), op::sigmoid(-ahead)};
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
    .jvp = jvp_running<product_partials_of>,
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
    .jvp = jvp_running<logaddexp_partials_of>,
    .vmap = vmap_axis<CumsumAttrs>,
};

constinit const Op<CumsumAttrs> linear_recurrence = OpDef{
    .name = "linear_recurrence",
    .doc =
        "h[i] = a[i] * h[i-1] + u[i] along an axis, from 0; with `exclusive` each element is the h "
        "before it; with `reverse` from the end. Both operands have one shape. f16 and bf16 are "
        "computed in f32 and rounded once.",
    .kind = Kind::reduction,
    .arity = 2,
    .operands = "a, u",
    .dtypes = kInexact,
    .infer = [](const InferArgs& a) -> Types {
      require_same_dtype(a);
      if (!may_be_equal(a.in[0], a.in[1]))
        bad_operands(a, "recurrence-shape", "a and u must have one shape");
      return {a.in[0]};
    },
    .normalise = normalise_axis_of<CumsumAttrs>,
    .eval =
        [](const EvalArgs& e) {
          return is_complex(e.in[0].dtype()) ? evaluate_recurrence<Complex>(e)
                                             : evaluate_recurrence<double>(e);
        },
    .jvp = jvp_recurrence,
    .vjp = vjp_recurrence,
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
constexpr const OpDef* kCumulativeOps[] = {
    &op::cumsum, &op::cumprod, &op::cumlogsumexp, &op::linear_recurrence, &op::cummax, &op::cummin};
}  // namespace
constinit const Family kCumulative{"cumulative", kCumulativeOps};

}  // namespace rlx
