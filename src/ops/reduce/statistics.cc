#include "rlx/ops/reduce/statistics.h"

#include <cmath>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/reduce/reduce_rules.h"

namespace rlx {
namespace {

template <class A>
Types infer_statistic(const InferArgs& a) {
  const auto& attrs = a.get<A>();
  return {{a.in[0].dtype, reduced_shape(a.in[0].shape, attrs.axes, attrs.keepdims)}};
}

template <DType result>
Types infer_as(const InferArgs& a) {
  return {{result, infer_statistic<ReduceAttrs>(a)[0].shape}};
}

// A composite along axes: `formula` on the operand in the type of computation, its result rounded.
template <class A, auto formula>
constexpr OpDef statistic(std::string_view name, std::string_view doc, DTypeSet dtypes) {
  OpDef d{.name = name, .doc = doc, .dtypes = dtypes};
  d.infer = infer_statistic<A>;
  d.normalise = normalise_axes_of<A>;
  d.decompose = [](Builder& b, const Node& n, Operands in) -> Values {
    const DType dtype = b.type(in[0]).dtype;
    const Expr x(b, cast_to(b, in[0], wide_of(dtype)));
    return {cast_to(b, formula(x, n.get<A>()), dtype)};
  };
  d.vmap = vmap_axes<A>;
  return d;
}

template <class A>
Expr sum(Expr x, const A& a) {
  return {x.builder(), sum_axes(x.builder(), x, a.axes, a.keepdims)};
}
template <class A>
Expr count(Expr x, const A& a) {
  return {x.builder(), dim_value(x.builder(), count_of(x.shape(), a.axes), x.dtype())};
}
Expr choose(Value condition, Expr yes, Expr no) {
  return {yes.builder(), op::select(yes.builder(), condition, yes, no)};
}
Expr nonzero(Expr x) { return {x.builder(), op::ne(x, x.like(0))}; }
Expr as(Expr x, DType dtype) { return {x.builder(), cast_to(x.builder(), x, dtype)}; }

Expr log_sum_exp(Expr x, const ReduceAttrs& a) {
  Expr most = op::stop_gradient(op::reduce_max(x, {a.axes, true}));
  const Expr shift = choose(op::is_finite(most), most, most.like(0));
  Expr total = op::log(op::reduce_sum(op::exp(x - shift), {a.axes, true})) + shift;
  return {x.builder(),
          reshape_to(x.builder(), total, reduced_shape(x.shape(), a.axes, a.keepdims))};
}

// The mean first, then the squares of what differs from it: no cancellation.
Expr spread(Expr x, const VarianceAttrs& a) {
  const Expr centred = x - op::reduce_mean(x, {a.axes, true});
  const Expr n = count(x, a);
  return sum(op::square(centred), a) / op::maximum(n - a.correction, n.like(0));
}

Expr vector_norm(Expr x, const VectorNormAttrs& a) {
  const Expr size = op::abs(x);
  const ReduceAttrs r{a.axes, a.keepdims};
  if (a.ord == 0) return sum(as(nonzero(x), x.dtype()), a);
  if (std::isinf(a.ord)) return a.ord > 0 ? op::reduce_max(size, r) : op::reduce_min(size, r);
  if (a.ord == 1) return sum(size, a);
  return power(sum(a.ord == 2 ? op::square(x) : power(size, a.ord), a), 1 / a.ord);
}

Expr without_nans(Expr x) { return choose(op::is_nan(x), x.like(0), x); }

// A composite whose result has another dtype than x.
template <DType result, DecomposeRule decompose>
constexpr OpDef counter_of(std::string_view name, std::string_view doc, DTypeSet dtypes) {
  OpDef d{.name = name, .doc = doc, .dtypes = dtypes};
  d.infer = infer_as<result>;
  d.normalise = normalise_axes_of<ReduceAttrs>;
  d.decompose = decompose;
  d.vmap = vmap_axes<ReduceAttrs>;
  d.not_differentiable = "the result is a count or a truth value";
  return d;
}

// Any is the largest truth value, all is the smallest.
template <const Op<ReduceAttrs>& extremum>
Values fold_truth(Builder& b, const Node& n, Operands in) {
  const Expr truth = as(nonzero(Expr(b, in[0])), DType::U8);
  return {nonzero(extremum(truth, n.get<ReduceAttrs>()))};
}

Expr count_truth(Expr x, const ReduceAttrs& a) { return sum(as(x, DType::I64), a); }

}  // namespace

namespace op {

constinit const Op<ReduceAttrs> logsumexp = statistic<ReduceAttrs, log_sum_exp>(
    "logsumexp", "log(sum(exp(x))) over the given axes without overflow; -inf for none.", kFloats);

constinit const Op<ReduceAttrs> reduce_l1 =
    statistic<ReduceAttrs, [](Expr x, const ReduceAttrs& a) { return sum(op::abs(x), a); }>(
        "reduce_l1", "Sum of |x| over the given axes; 0 for none.", kReals);

constinit const Op<ReduceAttrs> reduce_l2 =
    statistic<ReduceAttrs,
              [](Expr x, const ReduceAttrs& a) { return power(sum(op::square(x), a), 0.5); }>(
        "reduce_l2",
        "Square root of the sum of squares over the given axes; 0 for none. The derivative at 0 is "
        "0.",
        kFloats);

constinit const Op<ReduceAttrs> reduce_log_sum =
    statistic<ReduceAttrs, [](Expr x, const ReduceAttrs& a) { return op::log(sum(x, a)); }>(
        "reduce_log_sum", "log(sum(x)) over the given axes; -inf for none.", kFloats);

constinit const Op<ReduceAttrs> reduce_sum_square =
    statistic<ReduceAttrs, [](Expr x, const ReduceAttrs& a) { return sum(op::square(x), a); }>(
        "reduce_sum_square", "Sum of x * x over the given axes; 0 for none. Integers wrap.",
        kNumbers);

constinit const Op<ReduceAttrs> nansum =
    statistic<ReduceAttrs, [](Expr x, const ReduceAttrs& a) { return sum(without_nans(x), a); }>(
        "nansum", "Sum over the given axes of the elements that are not NaN; 0 for none.", kFloats);

constinit const Op<ReduceAttrs> nanmean = statistic<ReduceAttrs, [](Expr x, const ReduceAttrs& a) {
  const Expr counted = as(op::logical_not(op::is_nan(x)), x.dtype());
  return sum(without_nans(x), a) / sum(counted, a);
}>("nanmean", "Mean over the given axes of the elements that are not NaN; NaN for none.", kFloats);

constinit const Op<VarianceAttrs> variance = statistic<VarianceAttrs, spread>(
    "variance",
    "Sum of (x - mean)^2 over the given axes, divided by n - correction (0 for the population, 1 "
    "for a sample); NaN or inf where that is 0 or less. The mean is taken first (two passes).",
    kFloats);

constinit const Op<VarianceAttrs> std_dev =
    statistic<VarianceAttrs,
              [](Expr x, const VarianceAttrs& a) { return power(spread(x, a), 0.5); }>(
        "std", "Square root of the variance over the given axes. The derivative at 0 is 0.",
        kFloats);

constinit const Op<VectorNormAttrs> norm = statistic<VectorNormAttrs, vector_norm>(
    "norm",
    "Norm of x as a vector over the given axes: sum(|x|^p)^(1/p) for ord p, the largest |x| for "
    "inf, the smallest for -inf, the number of elements other than 0 for 0. The derivative at 0 is "
    "0.",
    kFloats);

constinit const Op<ReduceAttrs> any = counter_of<DType::Bool, fold_truth<op::reduce_max>>(
    "any", "Whether any element over the given axes is other than 0; false for none.", kAllDTypes);

constinit const Op<ReduceAttrs> all = counter_of<DType::Bool, fold_truth<op::reduce_min>>(
    "all", "Whether all elements over the given axes are other than 0; true for none.", kAllDTypes);

constinit const Op<ReduceAttrs> reduce_xor =
    counter_of<DType::Bool,
               [](Builder& b, const Node& n, Operands in) -> Values {
                 const Expr c = count_truth(Expr(b, in[0]), n.get<ReduceAttrs>());
                 return {nonzero(op::rem(c, c.like(2)))};
               }>("reduce_xor",
                  "Whether an odd number of elements over the given axes is true; false for none.",
                  kBools);

constinit const Op<ReduceAttrs> count_nonzero =
    counter_of<DType::I64,
               [](Builder& b, const Node& n, Operands in) -> Values {
                 return {count_truth(nonzero(Expr(b, in[0])), n.get<ReduceAttrs>())};
               }>("count_nonzero",
                  "Number (i64) of elements over the given axes that are other than 0.",
                  kAllDTypes);

}  // namespace op

namespace {
constexpr const OpDef* kStatisticsOps[] = {
    &op::logsumexp, &op::reduce_l1, &op::reduce_l2,  &op::reduce_log_sum, &op::reduce_sum_square,
    &op::nansum,    &op::nanmean,   &op::variance,   &op::std_dev,        &op::norm,
    &op::any,       &op::all,       &op::reduce_xor, &op::count_nonzero,
};
}  // namespace
constinit const Family kStatistics{"statistics", kStatisticsOps};

}  // namespace rlx
