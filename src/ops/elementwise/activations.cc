#include "rlx/ops/elementwise/activations.h"

#include <cmath>

#include "rlx/ops/elementwise/elementwise_rules.h"
#include "rlx/ops/elementwise/scalar_math.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/nn/nn_rules.h"

namespace rlx {

const OpDef& op_of(Activation kind) {
  static constexpr const OpDef* kActivationsOps[] = {
      &op::gelu,
      &op::gelu_tanh,
      &op::silu,
      &op::relu,
      &op::sigmoid,
      &op::tanh,
      &op::exp,
      &op::log,
      &op::sqrt,
      &op::rsqrt,
      &op::neg,
      &op::abs,
      &op::sin,
      &op::cos,
      &op::tan,
      &op::atan,
      &op::round_straight_through,
  };
  return *kActivationsOps[static_cast<size_t>(kind)];
}

namespace {

constexpr OpDef activation(std::string_view name, std::string_view doc, DecomposeRule decompose) {
  OpDef d{.name = name, .doc = doc, .kind = Kind::composite, .arity = 1, .dtypes = kFloats};
  d.infer = infer_same;
  d.decompose = decompose;
  d.vmap = vmap_elementwise;
  return d;
}

constexpr OpDef with_two_operands(OpDef d) {
  d.arity = 2;
  d.infer = infer_broadcast;
  return d;
}

// The middle of the range passes; at and beyond the ends the result is the end and the slope 0.
Expr between(Expr x, double low, double high) {
  return where(op::le(x, x.like(low)), low, where(op::ge(x, x.like(high)), high, x));
}

// x where it is positive, else alpha * (exp(x / width) - 1). What is not used does not overflow.
Expr exponential_tail(Expr x, double alpha, double width) {
  Expr positive = op::gt(x, x.like(0));
  Expr tail = where(positive, 0.0, x);
  if (width != 1) tail = tail / width;
  return where(positive, x, op::expm1(tail) * alpha);
}

Expr hard_sigmoid_of(Expr x, double alpha, double beta) { return between(x * alpha + beta, 0, 1); }

// Twice the artanh of 2x - 1 in the middle, where log would cancel.
Expr logit_of(Expr x) {
  Expr middle = op::lt(op::abs(x - 0.5), x.like(0.25));
  Expr inner = where(middle, x, 0.5), outer = where(middle, 0.5, x);
  return where(middle, op::log1p((inner * 2.0 - 1.0) / (1.0 - inner)),
               op::log(outer / (1.0 - outer)));
}

// 1 / (x (1 - x)), in the middle by the distance from 1/2, in which its own slope is linear.
Expr logit_slope(Expr x) {
  Expr middle = op::lt(op::abs(x - 0.5), x.like(0.25));
  Expr inner = where(middle, x - 0.5, 0.0), outer = where(middle, 0.5, x);
  return where(middle, 1.0 / (0.25 - inner * inner), 1.0 / outer / (1.0 - outer));
}

Types infer_celu(const InferArgs& a) {
  if (a.get<AlphaAttrs>().alpha == 0) bad_operands(a, "alpha", "alpha must not be 0");
  return {a.in[0]};
}

Types infer_shrink(const InferArgs& a) {
  const double lambd = a.get<ShrinkAttrs>().lambd;
  if (!(lambd >= 0))
    bad_operands(a, "alpha", fmt::format("lambd must be at least 0, not {}", lambd));
  return {a.in[0]};
}

Types infer_hard_tanh(const InferArgs& a) {
  const auto& [low, high] = a.get<HardTanhAttrs>();
  if (!(low <= high))
    bad_operands(a, "alpha", fmt::format("low ({}) must not be above high ({})", low, high));
  return {a.in[0]};
}

Types infer_glu(const InferArgs& a) {
  Type t = a.in[0];
  Dim& size = t.shape[static_cast<size_t>(a.get<SoftmaxAttrs>().axis)];
  const auto half = size.divide(Dim(2));
  if (!half)
    bad_operands(
        a, "glu-shape",
        fmt::format("axis {} has size {}, which is not even", a.get<SoftmaxAttrs>().axis, size));
  size = *half;
  return {t};
}

Expr slice_axis(Expr x, int64_t axis, const Dim& from, const Dim& to) {
  Shape start(x.shape().size(), Dim(0)), limit = x.shape();
  start[static_cast<size_t>(axis)] = from, limit[static_cast<size_t>(axis)] = to;
  return op::slice(x, {start, limit, {}});
}

constexpr double kSeluAlpha = 1.6732632423543772848170429916717;
constexpr double kSeluScale = 1.0507009873554804934193349852946;

constexpr OpDef checked(OpDef d, InferRule infer) {
  d.infer = infer;
  return d;
}

}  // namespace

namespace op {

constinit const Op<> relu6 =
    activation("relu6", "min(max(x, 0), 6); the derivative at 0 and 6 is 0.",
               by_formula<[](const Node&, Exprs x) { return between(x[0], 0, 6); }>);

constinit const Op<LeakyReluAttrs> leaky_relu = activation(
    "leaky_relu", "x where x > 0, else alpha * x; the derivative at 0 is alpha.",
    by_formula<[](const Node& n, Exprs x) {
      return where(op::gt(x[0], x[0].like(0)), x[0], x[0] * n.get<LeakyReluAttrs>().alpha);
    }>);

constinit const Op<> prelu =
    named("x, slope",
          with_two_operands(activation(
              "prelu", "x where x > 0, else slope * x; the slope broadcasts like NumPy's operands.",
              by_formula<[](const Node&, Exprs x) {
                return where(op::gt(x[0], x[0].like(0)), x[0], x[1] * x[0]);
              }>)));

constinit const Op<AlphaAttrs> elu = activation(
    "elu", "x where x > 0, else alpha * (exp(x) - 1).", by_formula<[](const Node& n, Exprs x) {
      return exponential_tail(x[0], n.get<AlphaAttrs>().alpha, 1);
    }>);

constinit const Op<AlphaAttrs> celu =
    checked(activation("celu", "x where x > 0, else alpha * (exp(x / alpha) - 1); alpha is not 0.",
                       by_formula<[](const Node& n, Exprs x) {
                         const double alpha = n.get<AlphaAttrs>().alpha;
                         return exponential_tail(x[0], alpha, alpha);
                       }>),
            infer_celu);

constinit const Op<> selu = activation(
    "selu",
    "1.0507.. * (x where x > 0, else 1.6732.. * (exp(x) - 1)), the constants that keep mean 0 and "
    "variance 1.",
    by_formula<[](const Node&, Exprs x) {
      return exponential_tail(x[0], kSeluAlpha, 1) * kSeluScale;
    }>);

constinit const Op<HardSigmoidAttrs> hard_sigmoid = activation(
    "hard_sigmoid", "alpha * x + beta, held between 0 and 1; the derivative at both ends is 0.",
    by_formula<[](const Node& n, Exprs x) {
      const auto& [alpha, beta] = n.get<HardSigmoidAttrs>();
      return hard_sigmoid_of(x[0], alpha, beta);
    }>);

constinit const Op<> hard_swish = activation(
    "hard_swish", "x * min(max(x + 3, 0), 6) / 6.",
    by_formula<[](const Node&, Exprs x) { return x[0] * hard_sigmoid_of(x[0], 1.0 / 6, 0.5); }>);

constinit const Op<HardTanhAttrs> hard_tanh = checked(
    activation("hard_tanh", "x held between low and high; the derivative at both ends is 0.",
               by_formula<[](const Node& n, Exprs x) {
                 const auto& [low, high] = n.get<HardTanhAttrs>();
                 return between(x[0], low, high);
               }>),
    infer_hard_tanh);

constinit const Op<> mish = activation(
    "mish", "x * tanh(log(1 + exp(x))).",
    by_formula<[](const Node&, Exprs x) { return x[0] * op::tanh(op::softplus(x[0])); }>);

constinit const Op<ShrinkAttrs> softshrink = checked(
    activation("softshrink",
               "x moved toward 0 by lambd, and 0 where |x| <= lambd (the derivative there is 0).",
               by_formula<[](const Node& n, Exprs x) {
                 const double lambd = n.get<ShrinkAttrs>().lambd;
                 return where(op::le(op::abs(x[0]), x[0].like(lambd)), 0.0,
                              x[0] - op::sign(x[0]) * lambd);
               }>),
    infer_shrink);

constinit const Op<ShrinkAttrs> hardshrink =
    checked(activation("hardshrink", "x, and 0 where |x| <= lambd (the derivative there is 0).",
                       by_formula<[](const Node& n, Exprs x) {
                         return where(op::le(op::abs(x[0]), x[0].like(n.get<ShrinkAttrs>().lambd)),
                                      0.0, x[0]);
                       }>),
            infer_shrink);

constinit const Op<> tanhshrink = unary(
    "tanhshrink", "x - tanh(x), accurate near 0.", kFloats,
    pointwise<1, [](FloatNumber auto x) { return math::tanhshrink(x); }>,
    [](const Node&, In x) { return math::tanhshrink(x[0]); },
    [](Builder& b, const JvpArgs& a, int, Value t) -> Value {  // 1 - (1 - y^2) would cancel
      const Expr y = op::tanh(Expr(b, a.in[0]));
      return Expr(b, t) * (y * y);
    });

constinit const Op<ThresholdAttrs> threshold =
    activation("threshold", "x where x > threshold, else value (the derivative there is 0).",
               by_formula<[](const Node& n, Exprs x) {
                 const auto& [limit, value] = n.get<ThresholdAttrs>();
                 return where(op::le(x[0], x[0].like(limit)), value, x[0]);
               }>);

constinit const Op<AlphaAttrs> thresholded_relu =
    activation("thresholded_relu", "x where x > alpha, else 0 (the derivative there is 0).",
               by_formula<[](const Node& n, Exprs x) {
                 return where(op::le(x[0], x[0].like(n.get<AlphaAttrs>().alpha)), 0.0, x[0]);
               }>);

constinit const Op<> quick_gelu =
    activation("quick_gelu", "x * sigmoid(1.702 x).",
               by_formula<[](const Node&, Exprs x) { return x[0] * op::sigmoid(x[0] * 1.702); }>);

constinit const Op<> log_sigmoid =
    activation("log_sigmoid", "log(1 / (1 + exp(-x))), without overflow.",
               by_formula<[](const Node&, Exprs x) { return -op::softplus(-x[0]); }>);

constinit const Op<> logit = [] {
  OpDef d = activation(
      "logit", "log(x / (1 - x)), the inverse of sigmoid; -inf at 0, inf at 1, NaN outside.",
      by_formula<[](const Node&, Exprs x) { return logit_of(x[0]); }>);
  d.derivative = [](Builder& b, const JvpArgs& a, int, Value t) -> Value {
    return narrow(widen(b, t) * logit_slope(widen(b, a.in[0])), a.node.type().dtype);
  };
  return d;
}();

constinit const Op<> swiglu =
    named("gate, up",
          with_two_operands(activation(
              "swiglu", "silu(gate) * up.",
              by_formula<[](const Node&, Exprs x) { return x[0] * op::sigmoid(x[0]) * x[1]; }>)));

constinit const Op<SoftmaxAttrs> glu = [] {
  OpDef d = activation("glu", "The first half of x along the axis times sigmoid of the second.",
                       by_formula<[](const Node& n, Exprs x) {
                         const int64_t axis = n.get<SoftmaxAttrs>().axis;
                         const Dim half = n.type().shape[static_cast<size_t>(axis)];
                         return slice_axis(x[0], axis, 0, half) *
                                op::sigmoid(slice_axis(x[0], axis, half, half + half));
                       }>);
  d.infer = infer_glu;
  d.normalise = normalise_axis_of<SoftmaxAttrs>;
  d.vmap = nullptr;
  return d;
}();

}  // namespace op

namespace {
constexpr const OpDef* kActivationsOps[] = {
    &op::relu6,      &op::leaky_relu,   &op::prelu,      &op::elu,       &op::celu,
    &op::selu,       &op::hard_sigmoid, &op::hard_swish, &op::hard_tanh, &op::mish,
    &op::softshrink, &op::hardshrink,   &op::tanhshrink, &op::threshold, &op::thresholded_relu,
    &op::quick_gelu, &op::log_sigmoid,  &op::logit,      &op::swiglu,    &op::glu,
};
}  // namespace
constinit const Family kActivations{"activations", kActivationsOps};

}  // namespace rlx
