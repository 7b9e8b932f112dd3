#include "rlx/ops/nn/losses.h"

#include <cmath>
#include <numeric>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/nn/nn.h"
#include "rlx/ops/nn/nn_rules.h"
#include "rlx/ops/reduce/reduce_rules.h"

namespace rlx {
namespace {

// ---- what all losses share

Expr sum_all(Expr x) {
  Ints axes(static_cast<size_t>(x.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  return {x.builder(), sum_axes(x.builder(), x, axes)};
}

Expr mean_all(Expr x) {
  Dim count(1);
  for (const Dim& d : x.shape()) count = count * d;
  return sum_all(x) / Expr(x.builder(), dim_value(x.builder(), count, x.dtype()));
}

Expr reduced(Expr loss, Reduction how) {
  if (how == Reduction::none) return loss;
  return how == Reduction::sum ? sum_all(loss) : mean_all(loss);
}

Types result_of(const InferArgs& a, const Shape& each, Reduction how) {
  return {{a.in[0].dtype, how == Reduction::none ? each : Shape{}}};
}

template <class A>
Types infer_elementwise(const InferArgs& a) {
  return result_of(a, infer_broadcast(a)[0].shape, a.get<A>().reduction);
}

void require_attr(const InferArgs& a, bool good, std::string_view what, double value) {
  if (!good) bad_operands(a, "loss-attr", fmt::format("{}, not {}", what, value));
}

constexpr OpDef loss(std::string_view name, std::string_view doc, int arity, InferRule infer,
                     DecomposeRule decompose) {
  OpDef d{.name = name, .doc = doc, .kind = Kind::composite, .arity = arity, .dtypes = kFloats};
  d.numerics = Numerics::exact;
  d.infer = infer;
  d.decompose = decompose;
  return d;
}

// A loss of each element by F(attributes, x) -> Expr, then reduced.
template <class A, auto F>
constexpr OpDef pointwise_loss(std::string_view name, std::string_view doc, int arity = 2) {
  return loss(name, doc, arity, infer_elementwise<A>, by_formula<[](const Node& n, Exprs x) {
                const A& attrs = n.get<A>();
                return reduced(F(attrs, x), attrs.reduction);
              }>);
}

// ---- formulas

Expr sum_last(Expr x) { return {x.builder(), sum_axes(x.builder(), x, {x.rank() - 1})}; }

// max(log p, -100); the derivative is 0 where that holds it.
Expr bounded_log(Expr p) {
  Expr inside = op::gt(p, p.like(std::exp(-100.0)));
  return where(inside, op::log(where(inside, p, 1.0)), where(op::is_nan(p), p, -100.0));
}

// t * log t, and 0 at 0.
Expr entropy_term(Expr t) {
  Expr some = op::ne(t, t.like(0));
  return where(some, t * op::log(where(some, t, 1.0)), 0.0);
}

// log t! by Stirling's formula above 1, else 0.
Expr stirling(Expr t) {
  Expr large = op::gt(t, t.like(1));
  Expr s = where(large, t, 2.0);
  return where(large, s * op::log(s) - s + op::log(s * (2 * M_PI)) * 0.5, 0.0);
}

Expr distance(Expr x, Expr y, const TripletAttrs& a) {
  Expr d = op::abs(x - y + a.eps);
  if (a.p == 1) return sum_last(d);
  return power(sum_last(a.p == 2 ? d * d : power(d, a.p)), 1 / a.p);
}

Expr smooth_l1(Expr difference, double beta) {
  Expr d = op::abs(difference);
  if (beta == 0) return d;
  return where(op::lt(d, d.like(beta)), difference * difference * (0.5 / beta), d - 0.5 * beta);
}

// ---- rows: [.., D] operands, one loss per row

template <class A>
Types infer_rows(const InferArgs& a, size_t rows) {
  require_same_dtype(a);
  std::optional<Shape> shape = a.in[0].shape;
  for (size_t i = 0; i < rows; ++i) {
    if (a.in[i].rank() == 0) bad_operands(a, "loss-shape", "the vectors must be [.., D]");
    shape = broadcast_shapes(*shape, a.in[i].shape);
    if (!shape) bad_operands(a, "broadcast", "the vectors do not broadcast");
  }
  shape->pop_back();
  for (const Type& t : a.in.subspan(rows)) {
    shape = broadcast_shapes(*shape, t.shape);
    if (!shape) bad_operands(a, "broadcast", "the target does not broadcast with the rows");
  }
  return result_of(a, *shape, a.get<A>().reduction);
}

// ---- classes

Shape without_axis(Shape shape, int64_t axis) {
  shape.erase(shape.begin() + axis);
  return shape;
}

void require_class_weight(const InferArgs& a, int64_t axis) {
  if (a.in.size() < 3) return;
  const Type& w = a.in[2];
  const Dim& classes = a.in[0].shape[static_cast<size_t>(axis)];
  if (w.dtype != a.in[0].dtype || w.rank() != 1 || differ(w.shape[0], classes))
    bad_operands(a, "loss-shape", fmt::format("the weight must be {}[{}]", a.in[0].dtype, classes));
}

void require_smoothing(const InferArgs& a, double s) {
  require_attr(a, s >= 0 && s <= 1, "label_smoothing must be in [0, 1]", s);
}

Types infer_class_loss(const InferArgs& a) {
  const auto& attrs = a.get<ClassLossAttrs>();
  const Type &x = a.in[0], &labels = a.in[1];
  if (!is_int(labels.dtype) && labels.dtype != DType::F32 && labels.dtype != DType::F64)
    bad_operands(a, "labels", "labels must be integers or f32/f64-encoded ids");
  const Shape each = without_axis(x.shape, attrs.axis);
  bool fits = labels.rank() == each.rank();
  for (size_t i = 0; fits && i < each.size(); ++i) fits = !differ(labels.shape[i], each[i]);
  if (!fits)
    bad_operands(a, "labels",
                 fmt::format("labels must have the shape of x without axis {}", attrs.axis));
  require_class_weight(a, attrs.axis);
  require_smoothing(a, attrs.label_smoothing);
  return result_of(a, each, attrs.reduction);
}

Types infer_soft_target(const InferArgs& a) {
  const auto& attrs = a.get<SoftTargetAttrs>();
  require_same_dtype(a);
  bool fits = a.in[0].rank() == a.in[1].rank();
  for (size_t i = 0; fits && i < a.in[0].shape.size(); ++i)
    fits = !differ(a.in[0].shape[i], a.in[1].shape[i]);
  if (!fits) bad_operands(a, "loss-shape", "the target must have the shape of the logits");
  require_class_weight(a, attrs.axis);
  require_smoothing(a, attrs.label_smoothing);
  return result_of(a, without_axis(a.in[0].shape, attrs.axis), attrs.reduction);
}

Expr sum_classes(Expr x, int64_t axis) { return {x.builder(), sum_axes(x.builder(), x, {axis})}; }

// Labels as [.., 1, ..] ids in [0, C), and whether each counts. Looking an id up in 0, 1, .. C-1 raises
// "index-range" where there is none.
struct ClassLabels {
  Expr ids, counts;
};
ClassLabels read_labels(Builder& b, Value labels, const Dim& classes, int64_t axis,
                        int64_t ignore_index) {
  Expr given(b, is_int(b.type(labels).dtype) ? cast_to(b, labels, DType::I64) : labels);
  Expr counts = op::ne(given, given.like(static_cast<double>(ignore_index)));
  const Value all = op::iota(b, {}, {DType::I64, {classes}, 0});
  const Value ids = op::gather(b, all, where(counts, given, 0.0), AxisAttrs{0});
  Shape shape = b.shape(labels);
  shape.insert(shape.begin() + axis, Dim(1));
  return {{b, reshape_to(b, ids, shape)}, counts};
}

// With logp the log-probabilities, w the weights and y the label:
//   loss = -(1 - s) w[y] logp[y] - s / C * sum_c w[c] logp[c]
// and the mean divides by the sum of w[y].
Values class_loss(Builder& b, const Node& n, Operands in, Expr logp) {
  const auto& attrs = n.get<ClassLossAttrs>();
  const int64_t axis = attrs.axis, rank = logp.rank();
  const Dim classes = logp.shape()[static_cast<size_t>(axis)];
  const ClassLabels labels = read_labels(b, in[1], classes, axis, attrs.ignore_index);
  Expr range(b, op::iota(b, {}, {DType::I64, {classes}, 0}));
  Expr hot = op::eq(labels.ids, line_up(range, rank, axis));
  const bool weighted = in.size() > 2;
  Expr weight = weighted ? line_up(widen(b, in[2]), rank, axis) : logp.like(1);
  Expr scored = weighted ? logp * weight : logp;
  Expr each = -sum_classes(where(hot, scored, 0.0), axis);
  if (attrs.label_smoothing != 0) {
    Expr count(b, dim_value(b, classes, logp.dtype()));
    Expr spread = sum_classes(scored, axis) * attrs.label_smoothing / count;
    each = each * (1 - attrs.label_smoothing) - spread;
  }
  each = where(labels.counts, each, 0.0);
  if (attrs.reduction != Reduction::mean)
    return {narrow(reduced(each, attrs.reduction), n.type().dtype)};
  Expr own = weighted ? sum_classes(where(hot, weight, 0.0), axis) : each.like(1);
  Expr total = sum_all(where(labels.counts, own, 0.0));
  return {narrow(sum_all(each) / total, n.type().dtype)};
}

Expr soft_cross_entropy_of(const Node& n, Exprs x) {
  const auto& [reduction, axis, smoothing] = n.get<SoftTargetAttrs>();
  Builder& b = x[0].builder();
  Expr logp = op::log_softmax(x[0], {axis}), target = x[1];
  if (smoothing != 0) {
    Expr count(b, dim_value(b, logp.shape()[static_cast<size_t>(axis)], logp.dtype()));
    target = target * (1 - smoothing) + smoothing / count;
  }
  if (x.size() > 2) target = target * line_up(x[2], logp.rank(), axis);
  return reduced(-sum_classes(target * logp, axis), reduction);
}

template <class A>
constexpr OpDef over_classes(OpDef d) {
  d.min_arity = 2;
  d.normalise = normalise_axis_of<A>;
  return d;
}

template <class A, auto check>
constexpr OpDef checked(OpDef d) {
  d.infer = [](const InferArgs& a) {
    check(a, a.get<A>());
    return infer_elementwise<A>(a);
  };
  return d;
}

}  // namespace

namespace op {

constinit const Op<LossAttrs> mse_loss = named(
    "x, target",
    pointwise_loss<LossAttrs, [](const LossAttrs&, Exprs x) { return op::square(x[0] - x[1]); }>(
        "mse_loss", "(x - target)^2, reduced."));

constinit const Op<LossAttrs> l1_loss =
    named("x, target",
          pointwise_loss<LossAttrs, [](const LossAttrs&, Exprs x) { return op::abs(x[0] - x[1]); }>(
              "l1_loss", "|x - target|, reduced."));

constinit const Op<SmoothL1Attrs> smooth_l1_loss = named(
    "x, target",
    checked<SmoothL1Attrs,
            [](const InferArgs& a, const SmoothL1Attrs& s) {
              require_attr(a, s.beta >= 0, "beta must be at least 0", s.beta);
            }>(pointwise_loss<SmoothL1Attrs,
                              [](const SmoothL1Attrs& a, Exprs x) {
                                return smooth_l1(x[0] - x[1], a.beta);
                              }>(
        "smooth_l1_loss",
        "d^2 / (2 beta) where |d| < beta, else |d| - beta / 2, with d = x - target; reduced.")));

constinit const Op<HuberAttrs> huber_loss = named(
    "x, target", checked<HuberAttrs,
                         [](const InferArgs& a, const HuberAttrs& h) {
                           require_attr(a, 0 < h.delta, "delta must be above 0", h.delta);
                         }>(pointwise_loss<HuberAttrs,
                                           [](const HuberAttrs& a, Exprs x) {
                                             return smooth_l1(x[0] - x[1], a.delta) * a.delta;
                                           }>("huber_loss",
                                              "d^2 / 2 where |d| < delta, else delta * (|d| - "
                                              "delta / 2), with d = x - target; reduced.")));

constinit const Op<LossAttrs> bce_loss =
    named("x, target", pointwise_loss<LossAttrs,
                                      [](const LossAttrs&, Exprs x) {
                                        return -(x[1] * bounded_log(x[0]) +
                                                 (1.0 - x[1]) * bounded_log(1.0 - x[0]));
                                      }>("bce_loss",
                                         "-(t log p + (1 - t) log(1 - p)), reduced; the logarithms "
                                         "are held at -100, with derivative 0 "
                                         "there."));

constinit const Op<LossAttrs> bce_with_logits_loss = named("x, target, pos_weight?", [] {
  OpDef d = pointwise_loss<LossAttrs,
                           [](const LossAttrs&, Exprs x) {
                             Expr yes = x[1] * op::softplus(-x[0]);
                             if (2 < x.size()) yes = yes * x[2];
                             return yes + (1.0 - x[1]) * op::softplus(x[0]);
                           }>("bce_with_logits_loss",
                              "The binary cross entropy of sigmoid(x), w t log(1 + exp(-x)) + (1 - "
                              "t) log(1 + exp(x)), with a "
                              "weight w of the positive class where given; reduced.",
                              3);
  d.min_arity = 2;
  return d;
}());

constinit const Op<KlDivAttrs> kl_div_loss = named(
    "x, target",
    pointwise_loss<KlDivAttrs,
                   [](const KlDivAttrs& a, Exprs x) {
                     if (a.log_target) return op::exp(x[1]) * (x[1] - x[0]);
                     return entropy_term(x[1]) - x[1] * x[0];
                   }>(
        "kl_div_loss",
        "t (log t - x) for log-probabilities x, exp(t) (t - x) when the target is logarithmic, "
        "reduced; 0 log 0 is 0. The mean is over elements: for the divergence per sample divide "
        "the "
        "sum by the batch's size."));

constinit const Op<HingeAttrs> hinge_loss =
    named("x, target", pointwise_loss<HingeAttrs, [](const HingeAttrs& a, Exprs x) {
            return op::relu(a.margin - x[0] * x[1]);
          }>("hinge_loss", "max(0, margin - x * target), reduced."));

constinit const Op<HingeAttrs> hinge_embedding_loss = named(
    "x, target", pointwise_loss<HingeAttrs,
                                [](const HingeAttrs& a, Exprs x) {
                                  Expr one = x[1].like(1);
                                  return where(op::ne(x[1], one), op::relu(a.margin - x[0]), 0.0) +
                                         where(op::ne(x[1], -one), x[0], 0.0);
                                }>("hinge_embedding_loss",
                                   "x where the target is 1, max(0, margin - x) where it is -1, "
                                   "reduced. Other targets get the "
                                   "sum of both."));

constinit const Op<MarginAttrs> margin_ranking_loss =
    named("x1, x2, target", pointwise_loss<MarginAttrs, [](const MarginAttrs& a, Exprs x) {
            return op::relu(a.margin - x[2] * (x[0] - x[1]));
          }>("margin_ranking_loss", "max(0, margin - target * (x1 - x2)), reduced.", 3));

constinit const Op<MarginAttrs> cosine_embedding_loss = named(
    "x1, x2, target",
    loss(
        "cosine_embedding_loss",
        "1 - cos(x1, x2) where the target is 1, max(0, cos(x1, x2) - margin) where it is -1, and 0 "
        "elsewhere; reduced. 1e-12 is added to the squared norms.",
        3, [](const InferArgs& a) { return infer_rows<MarginAttrs>(a, 2); },
        by_formula<[](const Node& n, Exprs x) {
          const auto& [reduction, margin] = n.get<MarginAttrs>();
          constexpr double kEps = 1e-12;
          Expr norms = (sum_last(x[0] * x[0]) + kEps) * (sum_last(x[1] * x[1]) + kEps);
          Expr cosine = sum_last(x[0] * x[1]) / op::sqrt(norms), one = x[2].like(1);
          Expr apart = where(op::eq(x[2], -one), op::relu(cosine - margin), 0.0);
          return reduced(where(op::eq(x[2], one), 1.0 - cosine, apart), reduction);
        }>));

constinit const Op<TripletAttrs> triplet_margin_loss = named(
    "anchor, positive, negative",
    loss(
        "triplet_margin_loss",
        "max(0, d(anchor, positive) - d(anchor, negative) + margin), reduced, with d(x, y) the "
        "p-norm "
        "of x - y + eps along the last axis; with swap d(positive, negative) counts where it is "
        "smaller than d(anchor, negative).",
        3,
        [](const InferArgs& a) {
          const double p = a.get<TripletAttrs>().p;
          require_attr(a, p > 0 && std::isfinite(p), "p must be positive and finite", p);
          return infer_rows<TripletAttrs>(a, 3);
        },
        by_formula<[](const Node& n, Exprs x) {
          const auto& a = n.get<TripletAttrs>();
          Expr far = distance(x[0], x[2], a);
          if (a.swap) far = op::minimum(far, distance(x[1], x[2], a));
          return reduced(op::relu(distance(x[0], x[1], a) - far + a.margin), a.reduction);
        }>));

constinit const Op<PoissonAttrs> poisson_nll_loss = named(
    "x, target", pointwise_loss<PoissonAttrs,
                                [](const PoissonAttrs& a, Exprs x) {
                                  Expr each = a.log_input ? op::exp(x[0]) - x[1] * x[0]
                                                          : x[0] - x[1] * op::log(x[0] + a.eps);
                                  return a.full ? each + stirling(x[1]) : each;
                                }>("poisson_nll_loss",
                                   "exp(x) - t x, or x - t log(x + eps) without log_input; with "
                                   "full also Stirling's t log t - "
                                   "t + log(2 pi t) / 2 where t > 1. Reduced."));

constinit const Op<GaussianAttrs> gaussian_nll_loss = named(
    "x, target, variance",
    checked<GaussianAttrs,
            [](const InferArgs& a, const GaussianAttrs& g) {
              require_attr(a, 0 < g.eps, "eps must be above 0", g.eps);
            }>(pointwise_loss<GaussianAttrs,
                              [](const GaussianAttrs& a, Exprs x) {
                                Expr variance = op::maximum(x[2], x[2].like(a.eps));
                                Expr each =
                                    (op::log(variance) + op::square(x[0] - x[1]) / variance) * 0.5;
                                return a.full ? each + 0.5 * std::log(2 * M_PI) : each;
                              }>(
        "gaussian_nll_loss",
        "(log v + (x - t)^2 / v) / 2 with v = max(variance, eps), with full + log(2 pi) / 2; "
        "reduced.",
        3)));

constinit const Op<ClassLossAttrs> nll_loss = named(
    "x, labels, weight?",
    over_classes<ClassLossAttrs>(loss(
        "nll_loss",
        "-w[y] x[y] for log-probabilities x along the axis and labels y, 0 where y is "
        "ignore_index; the mean divides by the sum of the w[y] that count. With label_smoothing s "
        "as cross_entropy.",
        3, infer_class_loss, [](Builder& b, const Node& n, Operands in) {
          return class_loss(b, n, in, widen(b, in[0]));
        })));

constinit const Op<ClassLossAttrs> cross_entropy = named(
    "x, labels, weight?",
    over_classes<ClassLossAttrs>(loss(
        "cross_entropy",
        "nll_loss of log_softmax(x): -(1 - s) w[y] logp[y] - s / C * sum_c w[c] logp[c], 0 where y "
        "is ignore_index; the mean divides by the sum of the w[y] that count.",
        3, infer_class_loss, [](Builder& b, const Node& n, Operands in) {
          Expr x = widen(b, in[0]);
          return class_loss(b, n, in, op::log_softmax(x, {n.get<ClassLossAttrs>().axis}));
        })));

constinit const Op<SoftTargetAttrs> soft_cross_entropy = named(
    "x, target, weight?",
    over_classes<SoftTargetAttrs>(loss(
        "soft_cross_entropy",
        "-sum_c w[c] t[c] logp[c] with logp = log_softmax(x) along the axis and t = (1 - s) target "
        "+ s / C; the mean divides by the number of rows.",
        3, infer_soft_target, by_formula<soft_cross_entropy_of>)));

}  // namespace op

namespace {
constexpr const OpDef* kLossesOps[] = {
    &op::mse_loss,
    &op::l1_loss,
    &op::smooth_l1_loss,
    &op::huber_loss,
    &op::bce_loss,
    &op::bce_with_logits_loss,
    &op::kl_div_loss,
    &op::hinge_loss,
    &op::hinge_embedding_loss,
    &op::margin_ranking_loss,
    &op::cosine_embedding_loss,
    &op::triplet_margin_loss,
    &op::poisson_nll_loss,
    &op::gaussian_nll_loss,
    &op::nll_loss,
    &op::cross_entropy,
    &op::soft_cross_entropy,
};
}  // namespace
constinit const Family kLosses{"losses", kLossesOps};

}  // namespace rlx
