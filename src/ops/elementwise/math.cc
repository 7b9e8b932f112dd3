// Elementary and special functions. Integers and bits are in math_integers.cc.
#include "rlx/ops/elementwise/math.h"

#include <cmath>

#include "rlx/ops/elementwise/elementwise_rules.h"
#include "rlx/ops/elementwise/scalar_math.h"
#include "rlx/ops/nn/nn_rules.h"

namespace rlx {
namespace {

Expr T(Builder& b, Value t) { return {b, t}; }

// 1 - x^2 with the value of (1 - x) (1 + x), which does not cancel near 1, and the slope -2 x, which does not near 0.
Expr one_minus_square(Expr x) {
  Expr plain = 1.0 - op::square(x);
  return plain + op::stop_gradient((1.0 - x) * (1.0 + x) - plain);
}

// x / sqrt(x^2 + y^2), given the root, such that the slope does not cancel either: that of x / root does where |x| > |y|.
Expr cosine(Expr x, Expr y, Expr root) {
  Expr flat = op::gt(op::abs(x), op::abs(y)), none = op::eq(root, root.like(0));
  Expr slope = where(flat, y, 0.0) / where(flat, x, 1.0);
  return where(flat, op::sign(x) * op::rsqrt(1.0 + slope * slope), x / where(none, 1.0, root));
}

// cos(pi x) with an error of pi x reduced, and the derivative of sinc. Near 0, where cos(pi x) - sinc(x) cancels, its series:
// the sum over k of (-1)^k 2k / (2k + 1)! pi^(2k) x^(2k - 1).
Expr cos_pi(Expr x) { return op::cos((x - op::round(x * 0.5) * 2.0) * M_PI); }
Expr sinc_slope(Expr x) {
  Expr small = op::lt(op::abs(x), x.like(0.5)), near = where(small, x, 0.0);
  Expr far = where(small, 1.0, x), z = near * near;
  constexpr int kTerms = 11;
  double terms[kTerms], power = 1;  // power = (-1)^k pi^(2k) / (2k + 1)!
  for (int k = 1; k <= kTerms; ++k) {
    power *= -M_PI * M_PI / ((2.0 * k) * (2.0 * k + 1));
    terms[k - 1] = 2 * k * power;
  }
  Expr series = z.like(terms[kTerms - 1]);
  for (int k = kTerms - 1; k-- > 0;) series = series * z + terms[k];
  return where(small, near * series, (cos_pi(far) - op::sinc(far)) / far);
}

// 0 where the slope has a pole that the function does not have.
Expr zero_where(Expr condition, Expr otherwise) { return where(condition, 0.0, otherwise); }

Types infer_polygamma(const InferArgs& a) {
  const int64_t n = a.get<PolygammaAttrs>().n;
  if (n < 0 || n > 20)
    bad_operands(a, "polygamma-order", fmt::format("n must be in [0, 20], not {}", n));
  return {a.in[0]};
}

Tensors eval_polygamma(const EvalArgs& e) {
  Tensor out = e.make();
  for (int64_t i = 0; i < out.elements(); ++i)
    out.set_float(i, math::polygamma(e.get<PolygammaAttrs>().n, e.in[0].get_float(i)));
  return {out};
}

Value next_polygamma(Builder& b, Args a, int64_t n, Value t) {
  return T(b, t) * op::polygamma(X(b, a), {n + 1});
}

}  // namespace

namespace op {

// ---- exponentials and logarithms

constinit const Op<> exp2 = sensitive(unary(
    "exp2", "2 to the power x.", kFloats,
    pointwise<1, [](FloatNumber auto x) { return std::exp2(x); }>,
    [](const Node&, In x) { return rlx::pow(2.0, x[0]); },
    [](Builder& b, Args a, int, Value t) -> Value { return T(b, t) * (Y(b, a) * M_LN2); }));

constinit const Op<> log2 = sensitive(
    unary("log2", "Logarithm to base 2; NaN for x < 0, -inf at 0.", kFloats,
          pointwise<1, [](FloatNumber auto x) { return std::log2(x); }>,
          in_double<[](Scalar x) { return rlx::log(x) * M_LOG2E; }>,
          [](Builder& b, Args a, int, Value t) -> Value { return T(b, t) / (X(b, a) * M_LN2); }));

constinit const Op<> log10 = sensitive(
    unary("log10", "Logarithm to base 10; NaN for x < 0, -inf at 0.", kFloats,
          pointwise<1, [](FloatNumber auto x) { return std::log10(x); }>,
          in_double<[](Scalar x) { return rlx::log(x) * M_LOG10E; }>,
          [](Builder& b, Args a, int, Value t) -> Value { return T(b, t) / (X(b, a) * M_LN10); }));

constinit const Op<> logaddexp = sensitive(binary(
    "logaddexp", "log(exp(a) + exp(b)), without overflow.", kFloats,
    pointwise<2, [](FloatNumber auto x, FloatNumber auto y) { return math::logaddexp(x, y); }>,
    in_double<[](Scalar x, Scalar y) { return math::logaddexp(x, y); }>,
    [](Builder& b, Args a, int i, Value t) -> Value {  // equal infinities have no difference
      Expr mine = i == 0 ? X(b, a) : B(b, a), other = i == 0 ? B(b, a) : X(b, a);
      Expr none = op::logical_and(op::eq(mine, other), op::is_inf(mine));
      return T(b, t) * op::sigmoid(zero_where(none, mine - other));
    },
    {}, true));

constinit const Op<> xlogy = sensitive(binary(
    "xlogy", "a * log(b), and 0 where a is 0 and b is not NaN.", kFloats,
    pointwise<2, [](FloatNumber auto x,
                    FloatNumber auto y) { return x == 0 && y == y ? 0.0 : x * std::log(y); }>,
    [](const Node&, In x) {
      return rlx::select((x[0] == 0.0) && (x[1] == x[1]), 0.0, x[0] * rlx::log(x[1]));
    },
    [](Builder& b, Args a, int i, Value t) -> Value {
      Expr x = X(b, a), y = B(b, a);
      if (i == 1) return T(b, t) * (x / y);
      Expr none = op::logical_and(op::eq(x, x.like(0)), op::le(y, y.like(0)));
      return T(b, t) * zero_where(none, op::log(where(none, 1.0, y)));
    }));

// ---- hyperbolic functions and inverse ones; complex ones have C's branch cuts

constinit const Op<> sinh = sensitive(
    unary("sinh", "Hyperbolic sine.", kInexact,
          pointwise<1, [](InexactNumber auto x) { return std::sinh(x); }>,
          in_double<[](Scalar x) { return math::sinh(x); }>,
          [](Builder& b, Args a, int, Value t) -> Value { return T(b, t) * op::cosh(X(b, a)); }));

constinit const Op<> cosh = sensitive(
    unary("cosh", "Hyperbolic cosine.", kInexact,
          pointwise<1, [](InexactNumber auto x) { return std::cosh(x); }>,
          in_double<[](Scalar x) { return math::cosh(x); }>,
          [](Builder& b, Args a, int, Value t) -> Value { return T(b, t) * op::sinh(X(b, a)); }));

constinit const Op<> asinh = unary("asinh", "Inverse hyperbolic sine.", kInexact,
                                   pointwise<1, [](InexactNumber auto x) { return std::asinh(x); }>,
                                   in_double<[](Scalar x) { return math::asinh(x); }>,
                                   [](Builder& b, Args a, int, Value t) -> Value {
                                     Expr x = X(b, a);
                                     if (is_complex(x.dtype()))
                                       return T(b, t) / op::sqrt(op::square(x) + 1.0);
                                     return T(b, t) / op::hypot(x, x.like(1));
                                   });

constinit const Op<> acosh =
    unary("acosh", "Inverse hyperbolic cosine; NaN for real x < 1.", kInexact,
          pointwise<1, [](InexactNumber auto x) { return std::acosh(x); }>,
          in_double<[](Scalar x) { return math::acosh(x); }>,
          [](Builder& b, Args a, int, Value t) -> Value {
            return T(b, t) / (op::sqrt(X(b, a) - 1.0) * op::sqrt(X(b, a) + 1.0));
          });

constinit const Op<> atanh = sensitive(unary(
    "atanh", "Inverse hyperbolic tangent; infinite at -1 and 1, NaN for real |x| > 1.", kInexact,
    pointwise<1, [](InexactNumber auto x) { return std::atanh(x); }>,
    in_double<[](Scalar x) { return math::atanh(x); }>,
    [](Builder& b, Args a, int, Value t) -> Value { return T(b, t) / one_minus_square(X(b, a)); }));

constinit const Op<> asin =
    sensitive(unary("asin", "Inverse sine, in [-pi/2, pi/2]; NaN for real |x| > 1.", kInexact,
                    pointwise<1, [](InexactNumber auto x) { return std::asin(x); }>,
                    in_double<[](Scalar x) { return math::asin(x); }>,
                    [](Builder& b, Args a, int, Value t) -> Value {
                      return T(b, t) / op::sqrt(one_minus_square(X(b, a)));
                    }));

constinit const Op<> acos =
    sensitive(unary("acos", "Inverse cosine, in [0, pi]; NaN for real |x| > 1.", kInexact,
                    pointwise<1, [](InexactNumber auto x) { return std::acos(x); }>,
                    in_double<[](Scalar x) { return math::acos(x); }>,
                    [](Builder& b, Args a, int, Value t) -> Value {
                      return -(T(b, t) / op::sqrt(one_minus_square(X(b, a))));
                    }));

constinit const Op<> atan2 = named(
    "y, x",
    binary("atan2", "The angle of the point (x, y) in [-pi, pi]; zeros and infinities as in C.",
           kFloats,
           pointwise<2, [](FloatNumber auto y, FloatNumber auto x) { return std::atan2(y, x); }>,
           in_double<[](Scalar y, Scalar x) { return math::atan2(y, x); }>,
           [](Builder& b, Args a, int i, Value t) -> Value {
             Expr y = X(b, a), x = B(b, a), length = op::hypot(x, y);
             return T(b, t) * ((i == 0 ? x : -y) / length / length);
           }));

// ---- special functions

constinit const Op<> erfc = unary("erfc", "1 - erf(x), accurate where that is small.", kFloats,
                                  pointwise<1, [](FloatNumber auto x) { return std::erfc(x); }>,
                                  in_double<[](Scalar x) { return math::erfc(x); }>,
                                  [](Builder& b, Args a, int, Value t) -> Value {
                                    return T(b, t) * (exp_of_minus_square(X(b, a)) * -M_2_SQRTPI);
                                  });

constinit const Op<> erfinv =
    sensitive(unary("erfinv", "The inverse of erf; infinite at -1 and 1, NaN for |x| > 1.", kFloats,
                    pointwise<1, [](FloatNumber auto x) { return math::erfinv(x); }>,
                    in_double<[](Scalar x) { return math::erfinv(x); }>,
                    [](Builder& b, Args a, int, Value t) -> Value {
                      return T(b, t) * (op::exp(op::square(Y(b, a))) / M_2_SQRTPI);
                    }));

constinit const Op<> normal_cdf = unary(
    "normal_cdf",
    "The probability that a standard normal number is below x: erfc(-x / sqrt 2) / 2, accurate "
    "where that is small.",
    kFloats, pointwise<1, [](FloatNumber auto x) { return math::normal_cdf(x); }>,
    [](const Node&, In x) { return math::normal_cdf(x[0]); },
    [](Builder& b, Args a, int, Value t) -> Value { return T(b, t) * op::normal_pdf(X(b, a)); });

constinit const Op<> normal_pdf = unary(
    "normal_pdf", "The density of the standard normal distribution: exp(-x^2 / 2) / sqrt(2 pi).",
    kFloats, pointwise<1, [](FloatNumber auto x) { return math::normal_pdf(x); }>,
    [](const Node&, In x) { return math::normal_pdf(x[0]); },
    [](Builder& b, Args a, int, Value t) -> Value { return -(T(b, t) * (X(b, a) * Y(b, a))); });

constinit const Op<> logistic_pdf = unary(
    "logistic_pdf",
    "The density of the logistic distribution, the derivative of sigmoid: exp(-x) / (1 + "
    "exp(-x))^2, accurate where that is small.",
    kFloats, pointwise<1, [](FloatNumber auto x) { return math::logistic_pdf(x); }>,
    [](const Node&, In x) { return math::logistic_pdf(x[0]); },
    [](Builder& b, Args a, int, Value t) -> Value {
      return -(T(b, t) * (Y(b, a) * op::tanh(X(b, a) * 0.5)));
    });

constinit const Op<> lgamma = sensitive(unary(
    "lgamma", "log |Gamma(x)|; inf at 0, -1, -2, .. .", kFloats,
    pointwise<1, [](FloatNumber auto x) { return math::lgamma(x); }>,
    in_double<[](Scalar x) { return math::lgamma(x); }>,
    [](Builder& b, Args a, int, Value t) -> Value { return T(b, t) * op::digamma(X(b, a)); }));

constinit const Op<> digamma = sensitive(
    unary("digamma", "The derivative of lgamma; -inf at 0, inf at -0, NaN at -1, -2, .. .", kFloats,
          pointwise<1, [](FloatNumber auto x) { return math::polygamma(0, x); }>,
          in_double<[](Scalar x) { return math::polygamma(0, x); }>,
          [](Builder& b, Args a, int, Value t) { return next_polygamma(b, a, 0, t); }));

constinit const Op<PolygammaAttrs> polygamma = [] {
  OpDef d = unary(
      "polygamma",
      "The n-th derivative of digamma, n in [0, 20]. At -1, -2, .. inf for odd n and NaN for even "
      "n.",
      kFloats, eval_polygamma,
      [](const Node& n, In x) {
        const Scalar wide = rlx::cast(x[0], DType::F64);
        return rlx::cast(math::polygamma(n.get<PolygammaAttrs>().n, wide), x[0].dtype);
      },
      [](Builder& b, Args a, int, Value t) {
        return next_polygamma(b, a, a.node.get<PolygammaAttrs>().n, t);
      });
  d.infer = infer_polygamma;
  d.numerics = Numerics::sensitive;
  return d;
}();

constinit const Op<> sinc =
    unary("sinc", "sin(pi x) / (pi x), and 1 at 0.", kFloats,
          pointwise<1, [](FloatNumber auto x) { return math::sinc(x); }>,
          in_double<[](Scalar x) { return math::sinc(x); }>,
          [](Builder& b, Args a, int, Value t) -> Value { return T(b, t) * sinc_slope(X(b, a)); });

// ---- roots, parts and signs

constinit const Op<> cbrt = unary("cbrt", "The real cube root.", kFloats,
                                  pointwise<1, [](FloatNumber auto x) { return std::cbrt(x); }>,
                                  in_double<[](Scalar x) { return math::cbrt(x); }>,
                                  [](Builder& b, Args a, int, Value t) -> Value {
                                    return T(b, t) / (op::square(Y(b, a)) * 3.0);
                                  });

constinit const Op<> hypot = binary(
    "hypot", "sqrt(a^2 + b^2), without overflow; the derivative at (0, 0) is 0.", kFloats,
    pointwise<2, [](FloatNumber auto x, FloatNumber auto y) { return std::hypot(x, y); }>,
    in_double<[](Scalar x, Scalar y) { return math::hypot(x, y); }>,
    [](Builder& b, Args a, int i, Value t) -> Value {
      Expr mine = i == 0 ? X(b, a) : B(b, a), other = i == 0 ? B(b, a) : X(b, a);
      return T(b, t) * cosine(mine, other, Y(b, a));
    },
    {}, true);

constinit const Op<> frac = unary(
    "frac", "x - trunc(x), with the sign of x; NaN for an infinity.", kFloats,
    pointwise<1, [](FloatNumber auto x) { return x - std::trunc(x); }>,
    [](const Node&, In x) { return x[0] - rlx::trunc(x[0]); },
    [](Builder&, Args, int, Value t) { return t; });

constinit const Op<> deg2rad =
    unary("deg2rad", "x * pi / 180.", kFloats,
          pointwise<1, [](FloatNumber auto x) { return x * (M_PI / 180); }>,
          in_double<[](Scalar x) { return x * (M_PI / 180); }>,
          [](Builder& b, Args, int, Value t) -> Value { return T(b, t) * (M_PI / 180); });

constinit const Op<> rad2deg =
    unary("rad2deg", "x * 180 / pi.", kFloats,
          pointwise<1, [](FloatNumber auto x) { return x * (180 / M_PI); }>,
          in_double<[](Scalar x) { return x * (180 / M_PI); }>,
          [](Builder& b, Args, int, Value t) -> Value { return T(b, t) * (180 / M_PI); });

constinit const Op<> round_away =
    step("round_away", "Nearest integer, halves away from zero.", kFloats,
         pointwise<1, [](FloatNumber auto x) { return std::round(x); }>, [](const Node&, In x) {
           Scalar whole = rlx::trunc(x[0]), more = rlx::copysign(scalar_like(x[0], 1.0), x[0]);
           return rlx::select(rlx::abs(x[0] - whole) >= 0.5, whole + more, whole);
         });

constinit const Op<> copysign = binary(
    "copysign", "|a| with the sign of b, also where b is a zero.", kFloats,
    pointwise<2, [](FloatNumber auto x, FloatNumber auto y) { return std::copysign(x, y); }>,
    [](const Node&, In x) { return rlx::copysign(x[0], x[1]); },
    [](Builder& b, Args a, int i, Value t) -> Value {
      if (i == 1) return kNone;
      Expr one = X(b, a).like(1);
      return T(b, t) * (op::sign(X(b, a)) * op::copysign(one, B(b, a)));
    });

constinit const Op<> heaviside = binary(
    "heaviside", "0 for a < 0, 1 for a > 0, b where a is 0; NaN for NaN.", kReals,
    pointwise<2,
              [](RealNumber auto x, RealNumber auto y) {
                using N = decltype(x);
                return x != x ? x : x < 0 ? N(0) : 0 < x ? N(1) : y;
              }>,
    [](const Node&, In x) {
      Scalar sides = rlx::select(x[0] < 0.0, 0.0, rlx::select(x[0] > 0.0, 1.0, x[1]));
      return rlx::select(x[0] != x[0], x[0], sides);
    },
    [](Builder& b, Args a, int i, Value t) -> Value {
      if (i == 0) return kNone;
      return where(Expr(op::eq(X(b, a), X(b, a).like(0))), T(b, t), 0.0);
    });

constinit const Op<NanToNumAttrs> nan_to_num = OpDef{
    .name = "nan_to_num",
    .doc =
        "x with NaN and the infinities replaced; by default NaN by 0 and infinities by the largest "
        "and lowest finite number.",
    .arity = 1,
    .dtypes = kFloats,
    .infer = infer_same,
    .decompose = [](Builder& b, const Node& n, Operands in) -> Values {
      const auto& [nan, posinf, neginf] = n.get<NanToNumAttrs>();
      Expr x(b, in[0]);
      const double limit = info(x.dtype()).largest;
      Expr low = where(op::is_neg_inf(x), neginf.value_or(-limit), x);
      Expr both = where(op::is_pos_inf(x), posinf.value_or(limit), low);
      return {where(op::is_nan(x), nan, both)};
    },
    .vmap = vmap_elementwise,
};

constinit const Op<> is_pos_inf =
    predicate("is_pos_inf", "Whether x is +inf.", kFloats,
              pointwise<1, [](FloatNumber auto x) { return x == INFINITY; }>,
              [](const Node&, In x) { return x[0] == INFINITY; });
constinit const Op<> is_neg_inf =
    predicate("is_neg_inf", "Whether x is -inf.", kFloats,
              pointwise<1, [](FloatNumber auto x) { return x == -INFINITY; }>,
              [](const Node&, In x) { return x[0] == -INFINITY; });

constinit const Op<> lerp = OpDef{
    .name = "lerp",
    .doc = "a + weight * (b - a), computed from the nearer end so that weight 1 gives b.",
    .arity = 3,
    .operands = "a, b, weight",
    .dtypes = kFloats,
    .infer = infer_broadcast,
    .decompose = by_formula<[](const Node&, Exprs x) {
      Expr way = x[1] - x[0];
      return where(op::lt(op::abs(x[2]), x[2].like(0.5)), x[0] + x[2] * way,
                   x[1] - way * (1.0 - x[2]));
    }>,
    .vmap = vmap_elementwise,
};

}  // namespace op

namespace {
constexpr const OpDef* kMathOps[] = {
    &op::exp2,
    &op::log2,
    &op::log10,
    &op::logaddexp,
    &op::xlogy,
    &op::sinh,
    &op::cosh,
    &op::asinh,
    &op::acosh,
    &op::atanh,
    &op::asin,
    &op::acos,
    &op::atan2,
    &op::erfc,
    &op::erfinv,
    &op::normal_cdf,
    &op::normal_pdf,
    &op::logistic_pdf,
    &op::lgamma,
    &op::digamma,
    &op::polygamma,
    &op::sinc,
    &op::cbrt,
    &op::hypot,
    &op::frac,
    &op::deg2rad,
    &op::rad2deg,
    &op::round_away,
    &op::copysign,
    &op::heaviside,
    &op::nan_to_num,
    &op::is_pos_inf,
    &op::is_neg_inf,
    &op::lerp,
    &op::floor_div,
    &op::mod,
    &op::bitwise_and,
    &op::bitwise_or,
    &op::bitwise_xor,
    &op::bitwise_not,
    &op::shift_left,
    &op::shift_right,
    &op::shift_right_logical,
    &op::population_count,
    &op::count_leading_zeros,
};
}  // namespace
constinit const Family kMath{"math", kMathOps};

}  // namespace rlx
