// Unary functions, casts and selection. Binary arithmetic and comparison are in arithmetic.cc.
#include "rlx/ops/elementwise/elementwise.h"

#include <cmath>

#include "rlx/ops/elementwise/elementwise_rules.h"
#include "rlx/ops/elementwise/math.h"
#include "rlx/ops/elementwise/scalar_math.h"

namespace rlx {
namespace {

int64_t wrap_neg(int64_t x) { return static_cast<int64_t>(0 - static_cast<uint64_t>(x)); }
int64_t wrap_mul(int64_t x, int64_t y) {
  return static_cast<int64_t>(static_cast<uint64_t>(x) * static_cast<uint64_t>(y));
}

}  // namespace

namespace op {

constinit const Op<> neg = unary(
    "neg", "-x; integers wrap.", kNumbers,
    pointwise<1,
              [](auto x) {
                if constexpr (IntNumber<decltype(x)>)
                  return wrap_neg(x);
                else
                  return -x;
              }>,
    [](const Node&, In x) { return -x[0]; },
    [](Builder& b, Args, int, Value t) -> Value { return -Expr(b, t); }, "Activation");

constinit const Op<> abs = unary(
    "abs", "|x|; the derivative at 0 is 0.", kReals,
    pointwise<1,
              [](RealNumber auto x) {
                if constexpr (IntNumber<decltype(x)>)
                  return x < 0 ? wrap_neg(x) : x;
                else
                  return std::fabs(x);
              }>,
    [](const Node&, In x) { return rlx::abs(x[0]); },
    [](Builder& b, Args a, int, Value t) -> Value { return Expr(b, t) * op::sign(X(b, a)); },
    "Activation");

constinit const Op<> sign =
    step("sign", "-1, 0 or 1; NaN stays NaN, -0 stays -0.", kReals,
         pointwise<1,
                   [](RealNumber auto x) {
                     if constexpr (IntNumber<decltype(x)>)
                       return int64_t{(x > 0) - (x < 0)};
                     else
                       return 0 < x ? 1.0 : x < 0 ? -1.0 : x;
                   }>,
         [](const Node&, In x) {
           return rlx::select(x[0] > 0, 1.0, rlx::select(x[0] < 0, -1.0, x[0]));
         });

constinit const Op<> exp = sensitive(unary(
    "exp", "e to the power x.", kInexact,
    pointwise<1, [](InexactNumber auto x) { return std::exp(x); }>,
    [](const Node&, In x) { return rlx::exp(x[0]); },
    [](Builder& b, Args a, int, Value t) -> Value { return Expr(b, t) * Y(b, a); }, "Activation"));

constinit const Op<> log = sensitive(unary(
    "log", "Natural logarithm; NaN for x < 0, -inf at 0.", kInexact,
    pointwise<1, [](InexactNumber auto x) { return std::log(x); }>,
    [](const Node&, In x) { return rlx::log(x[0]); },
    [](Builder& b, Args a, int, Value t) -> Value { return Expr(b, t) / X(b, a); }, "Activation"));

constinit const Op<> log1p = sensitive(unary(
    "log1p", "log(1 + x), accurate near 0.", kFloats,
    pointwise<1, [](FloatNumber auto x) { return std::log1p(x); }>,
    [](const Node&, In x) { return rlx::log1p(x[0]); },
    [](Builder& b, Args a, int, Value t) -> Value { return Expr(b, t) / (X(b, a) + 1.0); }));

constinit const Op<> expm1 = sensitive(unary(
    "expm1", "exp(x) - 1, accurate near 0.", kFloats,
    pointwise<1, [](FloatNumber auto x) { return std::expm1(x); }>,
    [](const Node&, In x) { return rlx::expm1(x[0]); },
    [](Builder& b, Args a, int, Value t) -> Value {  // not the result + 1, which cancels below 0
      return Expr(b, t) * op::exp(X(b, a));
    }));

constinit const Op<> sqrt = unary(
    "sqrt", "Square root; NaN for x < 0.", kInexact,
    pointwise<1, [](InexactNumber auto x) { return std::sqrt(x); }>,
    [](const Node&, In x) { return rlx::sqrt(x[0]); },
    [](Builder& b, Args a, int, Value t) -> Value { return Expr(b, t) * 0.5 / Y(b, a); },
    "Activation");

constinit const Op<> rsqrt = sensitive(unary(
    "rsqrt", "1 / sqrt(x).", kFloats,
    pointwise<1, [](FloatNumber auto x) { return 1.0 / std::sqrt(x); }>,
    [](const Node&, In x) { return 1.0 / rlx::sqrt(x[0]); },
    [](Builder& b, Args a, int, Value t) -> Value { return Expr(b, t) * -0.5 * Y(b, a) / X(b, a); },
    "Activation"));

constinit const Op<> square = sensitive(unary(
    "square", "x * x.", kNumbers,
    pointwise<1,
              [](auto x) {
                if constexpr (IntNumber<decltype(x)>)
                  return wrap_mul(x, x);
                else
                  return x * x;
              }>,
    [](const Node&, In x) { return x[0] * x[0]; },
    [](Builder& b, Args a, int, Value t) -> Value { return Expr(b, t) * (X(b, a) * 2.0); }));

constinit const Op<> reciprocal = sensitive(unary(
    "reciprocal", "1 / x.", kInexact,
    pointwise<1, [](InexactNumber auto x) { return decltype(x)(1.0) / x; }>,
    [](const Node&, In x) { return 1.0 / x[0]; },
    [](Builder& b, Args a, int, Value t) -> Value { return -(Expr(b, t) * (Y(b, a) * Y(b, a))); }));

constinit const Op<> sin = unary(
    "sin", "Sine of x in radians.", kInexact,
    pointwise<1, [](InexactNumber auto x) { return std::sin(x); }>,
    [](const Node&, In x) { return rlx::sin(x[0]); },
    [](Builder& b, Args a, int, Value t) -> Value { return Expr(b, t) * op::cos(X(b, a)); },
    "Activation");

constinit const Op<> cos = unary(
    "cos", "Cosine of x in radians.", kInexact,
    pointwise<1, [](InexactNumber auto x) { return std::cos(x); }>,
    [](const Node&, In x) { return rlx::cos(x[0]); },
    [](Builder& b, Args a, int, Value t) -> Value { return -(Expr(b, t) * op::sin(X(b, a))); },
    "Activation");

constinit const Op<> tan = sensitive(unary(
    "tan", "Tangent of x in radians.", kFloats,
    pointwise<1, [](FloatNumber auto x) { return std::tan(x); }>,
    [](const Node&, In x) { return rlx::sin(x[0]) / rlx::cos(x[0]); },
    [](Builder& b, Args a, int, Value t) -> Value {
      return Expr(b, t) * (Y(b, a) * Y(b, a) + 1.0);
    },
    "Activation"));

constinit const Op<> atan = unary(
    "atan", "Inverse tangent, in (-pi/2, pi/2).", kFloats,
    pointwise<1, [](FloatNumber auto x) { return std::atan(x); }>,
    [](const Node&, In x) { return rlx::atan(x[0]); },
    [](Builder& b, Args a, int, Value t) -> Value {  // 1 / (1 + x^2) without its overflow
      Expr length = op::hypot(X(b, a), X(b, a).like(1));
      return Expr(b, t) / length / length;
    },
    "Activation");

constinit const Op<> tanh = unary(
    "tanh", "Hyperbolic tangent.", kInexact,
    pointwise<1, [](InexactNumber auto x) { return std::tanh(x); }>,
    [](const Node&, In x) { return rlx::tanh(x[0]); },
    [](Builder& b, Args a, int, Value t) -> Value {  // for real x not 1 - y^2, which cancels
      if (is_complex(X(b, a).dtype())) return Expr(b, t) * (1.0 - Y(b, a) * Y(b, a));
      return Expr(b, t) * (op::logistic_pdf(X(b, a) * 2.0) * 4.0);
    },
    "Activation");

constinit const Op<> sigmoid = unary(
    "sigmoid", "1 / (1 + exp(-x)).", kFloats,
    pointwise<1, [](FloatNumber auto x) { return 1.0 / (1.0 + std::exp(-x)); }>,
    [](const Node&, In x) {  // exp(-x) would overflow where the result is still a number
      const Scalar e = rlx::exp(-rlx::abs(x[0]));
      return rlx::select(x[0] < 0.0, e, 1.0) / (1.0 + e);
    },
    [](Builder& b, Args a, int, Value t) -> Value {  // not y (1 - y), which cancels
      return Expr(b, t) * op::logistic_pdf(X(b, a));
    },
    "Activation");

constinit const Op<> relu = unary(
    "relu", "max(x, 0); NaN stays NaN; the derivative at 0 is 0.", kReals,
    pointwise<1, [](RealNumber auto x) { return 0 < x || x != x ? x : decltype(x)(0); }>,
    [](const Node&, In x) { return rlx::maximum(x[0], 0.0); },
    [](Builder& b, Args a, int, Value t) -> Value {
      Expr e(b, t);
      return op::select(b, op::gt(X(b, a), X(b, a).like(0)), e, e.like(0));
    },
    "Activation");

constinit const Op<> erf = unary(
    "erf", "Error function.", kFloats, pointwise<1, [](FloatNumber auto x) { return std::erf(x); }>,
    [](const Node&, In x) { return rlx::erf(x[0]); },
    [](Builder& b, Args a, int, Value t) -> Value {
      return Expr(b, t) * (exp_of_minus_square(X(b, a)) * M_2_SQRTPI);
    });

constinit const Op<> softplus = sensitive(unary(
    "softplus", "log(1 + exp(x)), without overflow.", kFloats,
    pointwise<1,
              [](FloatNumber auto x) {
                return x != x ? x : std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
              }>,
    [](const Node&, In x) {
      return rlx::maximum(x[0], 0.0) + rlx::log1p(rlx::exp(-rlx::abs(x[0])));
    },
    [](Builder& b, Args a, int, Value t) -> Value { return Expr(b, t) * op::sigmoid(X(b, a)); }));

constinit const Op<> softsign = unary(
    "softsign", "x / (1 + |x|).", kFloats,
    pointwise<1, [](FloatNumber auto x) { return x / (1.0 + std::fabs(x)); }>,
    [](const Node&, In x) { return x[0] / (1.0 + rlx::abs(x[0])); },
    [](Builder& b, Args a, int, Value t) -> Value {
      Expr size = 1.0 + op::abs(X(b, a));
      return Expr(b, t) / size / size;
    });

constinit const Op<> floor = step("floor", "Largest integer not above x.", kFloats,
                                  pointwise<1, [](FloatNumber auto x) { return std::floor(x); }>,
                                  [](const Node&, In x) { return rlx::floor(x[0]); });
constinit const Op<> ceil = step("ceil", "Smallest integer not below x.", kFloats,
                                 pointwise<1, [](FloatNumber auto x) { return std::ceil(x); }>,
                                 [](const Node&, In x) { return rlx::ceil(x[0]); });
constinit const Op<> trunc = step("trunc", "x without its fraction.", kFloats,
                                  pointwise<1, [](FloatNumber auto x) { return std::trunc(x); }>,
                                  [](const Node&, In x) { return rlx::trunc(x[0]); });

constinit const Op<> round = [] {
  OpDef d = step("round", "Nearest integer, halves to even.", kFloats,
                 pointwise<1, [](FloatNumber auto x) { return std::nearbyint(x); }>,
                 [](const Node&, In x) { return rlx::rint(x[0]); });
  d.since = 2;
  return d;
}();

constinit const Op<> round_straight_through = [] {
  OpDef d = unary(
      "round_straight_through", "round(x) with the derivative of x itself, 1.", kFloats,
      pointwise<1, [](FloatNumber auto x) { return std::nearbyint(x); }>,
      [](const Node&, In x) { return rlx::rint(x[0]); },
      [](Builder&, Args, int, Value t) { return t; }, "Activation");
  d.since = 2;
  d.formerly = "round";
  return d;
}();

constinit const Op<> logical_not = predicate("logical_not", "Whether x is false.", kBools,
                                             pointwise<1, [](IntNumber auto x) { return x == 0; }>,
                                             [](const Node&, In x) { return !x[0]; });
constinit const Op<> is_nan =
    predicate("is_nan", "Whether x is NaN.", kFloats,
              pointwise<1, [](FloatNumber auto x) { return std::isnan(x); }>,
              [](const Node&, In x) { return x[0] != x[0]; });
constinit const Op<> is_inf =
    predicate("is_inf", "Whether x is an infinity.", kFloats,
              pointwise<1, [](FloatNumber auto x) { return std::isinf(x); }>,
              [](const Node&, In x) { return rlx::abs(x[0]) == INFINITY; });
constinit const Op<> is_finite =
    predicate("is_finite", "Whether x is neither NaN nor an infinity.", kFloats,
              pointwise<1, [](FloatNumber auto x) { return std::isfinite(x); }>,
              [](const Node&, In x) { return rlx::abs(x[0]) < INFINITY; });

constinit const Op<> stop_gradient = [] {
  OpDef d = unary(
      "stop_gradient", "x; derivatives do not pass.", kAllDTypes,
      pointwise<1, [](auto x) { return x; }>, [](const Node&, In x) { return x[0]; }, nullptr);
  d.not_differentiable = "declared: its purpose is to stop derivatives";
  return d;
}();

// conj, real and imag are linear over the reals, not over the complex numbers; cotangents follow
// PyTorch's convention.
constinit const Op<> conj = named("z", [] {
  OpDef d = unary(
      "conj", "Complex conjugate; x itself for real x.", kNumbers,
      pointwise<1,
                [](auto x) {
                  if constexpr (RealNumber<decltype(x)>)
                    return x;
                  else
                    return std::conj(x);
                }>,
      [](const Node&, In x) { return x[0]; }, nullptr, "Conjugate");
  d.jvp = [](Builder& b, const JvpArgs& a) { return single(op::conj(b, a.tangents[0])); };
  d.vjp = [](Builder& b, const VjpArgs& a) { return single(op::conj(b, a.cotangents[0])); };
  return d;
}());

namespace {
Types infer_part(const InferArgs& a) { return {{DType::F32, a.in[0].shape}}; }
// real(z) has the cotangent g + 0i; imag(z) = real(-i z) has i g.
Values part_vjp(Builder& b, const VjpArgs& a, Complex factor) {
  Value g = cast_to(b, a.cotangents[0], DType::C64);
  return {op::mul(b, g, b.constant(DType::C64, factor))};
}
}  // namespace

constinit const Op<> real = named("z", [] {
  OpDef d = unary("real", "Real part of a complex tensor.", kComplex,
                  pointwise<1,
                            [](auto x) {
                              if constexpr (std::is_same_v<decltype(x), Complex>)
                                return x.real();
                              else
                                return x;
                            }>,
                  nullptr, nullptr);
  d.infer = infer_part;
  d.jvp = [](Builder& b, const JvpArgs& a) { return single(op::real(b, a.tangents[0])); };
  d.vjp = [](Builder& b, const VjpArgs& a) { return part_vjp(b, a, 1.0); };
  return d;
}());

constinit const Op<> imag = named("z", [] {
  OpDef d = unary("imag", "Imaginary part of a complex tensor.", kComplex,
                  pointwise<1,
                            [](auto x) {
                              if constexpr (std::is_same_v<decltype(x), Complex>)
                                return x.imag();
                              else
                                return x;
                            }>,
                  nullptr, nullptr);
  d.infer = infer_part;
  d.jvp = [](Builder& b, const JvpArgs& a) { return single(op::imag(b, a.tangents[0])); };
  d.vjp = [](Builder& b, const VjpArgs& a) { return part_vjp(b, a, Complex(0, 1)); };
  return d;
}());

// Real to complex takes the real part of the cotangent back; through integers and f8 nothing flows.
constinit const Op<CastAttrs> cast = OpDef{
    .name = "cast",
    .doc =
        "x converted to another dtype. Float to int truncates toward zero and saturates, NaN gives "
        "0; int to int wraps; "
        "anything to bool is x != 0; to narrower floats rounds once, to nearest even, and overflow "
        "gives an infinity (in "
        "f8e4m3fn, which has none, NaN); complex to real drops the imaginary part.",
    .reference = "Cast",
    .kind = Kind::elementwise,
    .infer = [](const InferArgs& a) -> Types { return {{a.get<CastAttrs>().to, a.in[0].shape}}; },
    .eval = [](const EvalArgs& e) -> Tensors {
      return {cast_tensor(e.in[0], e.get<CastAttrs>().to)};
    },
    .jvp = [](Builder& b, const JvpArgs& a) -> Values {
      const DType to = a.node.get<CastAttrs>().to;
      return {is_differentiable(to) && is_differentiable(b.type(a.in[0]).dtype)
                  ? cast_to(b, a.tangents[0], to)
                  : kNone};
    },
    .vjp = [](Builder& b, const VjpArgs& a) -> Values {
      const DType from = b.type(a.in[0]).dtype;
      return {is_differentiable(from) && is_differentiable(a.node.type().dtype)
                  ? cast_to(b, a.cotangents[0], from)
                  : kNone};
    },
    .scalar = [](const Node& n, In x) { return rlx::cast(x[0], n.get<CastAttrs>().to); },
};

constinit const Op<> select = OpDef{
    .name = "select",
    .doc = "a where the condition (bool) is true, else b; all three broadcast.",
    .reference = "Where",
    .kind = Kind::elementwise,
    .arity = 3,
    .operands = "condition, a, b",
    .dtypes = kBools,
    .passes_codes = true,
    .infer = [](const InferArgs& a) -> Types {
      if (a.in[1].dtype != a.in[2].dtype)
        bad_operands(a, "dtype-mixed", "a and b must have one dtype");
      auto ab = broadcast_shapes(a.in[1].shape, a.in[2].shape);
      auto all = ab ? broadcast_shapes(a.in[0].shape, *ab) : ab;
      if (!all) bad_operands(a, "broadcast", "the shapes do not broadcast");
      return {{a.in[1].dtype, *all}};
    },
    .eval = [](const EvalArgs& e) -> Tensors {
      Tensor out = e.make();
      const size_t bytes = static_cast<size_t>(size_of(out.dtype()));
      Ints strides[3];
      for (int k = 0; k < 3; ++k)
        strides[k] = broadcast_strides(e.in[static_cast<size_t>(k)].sizes(), out.sizes());
      int64_t position = 0;
      for_each_index(out.sizes(), [&](const Ints& index) {
        int64_t at[3] = {};
        for (size_t axis = 0; axis < index.size(); ++axis)
          for (int k = 0; k < 3; ++k) at[k] += index[axis] * strides[k][axis];
        const int pick = e.in[0].get_int(at[0]) ? 1 : 2;
        std::memcpy(out.mutable_raw() + static_cast<size_t>(position++) * bytes,
                    e.in[static_cast<size_t>(pick)].raw() + static_cast<size_t>(at[pick]) * bytes,
                    bytes);
      });
      return {out};
    },
    .derivative = [](Builder& b, Args a, int i, Value t) -> Value {
      if (i == 0) return kNone;
      const Value zero = b.constant_like(t, 0);
      return i == 1 ? op::select(b, a.in[0], t, zero) : op::select(b, a.in[0], zero, t);
    },
    .scalar = [](const Node&, In x) { return rlx::select(x[0], x[1], x[2]); },
};

constinit const Op<> clamp = OpDef{
    .name = "clamp",
    .doc = "min(max(x, lo), hi).",
    .arity = 3,
    .operands = "x, lo, hi",
    .dtypes = kReals,
    .infer = infer_broadcast,
    .decompose = [](Builder& b, const Node&, Operands in) -> Values {
      return {op::minimum(b, op::maximum(b, in[0], in[1]), in[2])};
    },
};

}  // namespace op

namespace {
constexpr const OpDef* kElementwiseOps[] = {
    &op::neg,           &op::abs,
    &op::sign,          &op::exp,
    &op::log,           &op::log1p,
    &op::expm1,         &op::sqrt,
    &op::rsqrt,         &op::square,
    &op::reciprocal,    &op::sin,
    &op::cos,           &op::tan,
    &op::atan,          &op::tanh,
    &op::sigmoid,       &op::relu,
    &op::erf,           &op::softplus,
    &op::softsign,      &op::floor,
    &op::ceil,          &op::trunc,
    &op::round,         &op::round_straight_through,
    &op::logical_not,   &op::is_nan,
    &op::is_inf,        &op::is_finite,
    &op::stop_gradient, &op::conj,
    &op::real,          &op::imag,
    &op::cast,          &op::select,
    &op::clamp,
};
}  // namespace
constinit const Family kElementwise{"elementwise", kElementwiseOps};

}  // namespace rlx
