// Binary arithmetic, comparison and logic.
#include <cmath>

#include "rlx/ops/elementwise/elementwise_rules.h"

namespace rlx {
namespace {

constexpr OpDef compare(std::string_view name, std::string_view doc, DTypeSet dtypes, EvalRule eval,
                        ScalarRule scalar, bool commutative = false) {
  OpDef d = binary(name, doc, dtypes, eval, scalar, nullptr, "Compare", commutative);
  d.infer = infer_compare;
  d.not_differentiable = "the result is bool";
  return d;
}

constexpr OpDef logical(std::string_view name, std::string_view doc, EvalRule eval,
                        ScalarRule scalar) {
  OpDef d = compare(name, doc, kBools, eval, scalar, true);
  d.reference = {};
  return d;
}

template <class T, class F>
T wrapping(T x, T y, F f) {
  if constexpr (IntNumber<T>)
    return static_cast<int64_t>(f(static_cast<uint64_t>(x), static_cast<uint64_t>(y)));
  else
    return f(x, y);
}

int64_t int_div(int64_t x, int64_t y) {
  if (y == 0) return 0;
  if (y == -1) return static_cast<int64_t>(0 - static_cast<uint64_t>(x));
  return x / y;
}
int64_t int_rem(int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x % y; }
int64_t int_pow(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
  uint64_t result = 1, base = static_cast<uint64_t>(x);
  for (; y; y >>= 1, base *= base)
    if (y & 1) result *= base;
  return static_cast<int64_t>(result);
}

// t where a wins, half of it where both are equal, else 0.
Value winner(Builder& b, Args a, int i, Value t, const Op<>& wins) {
  Expr mine(b, a.in[static_cast<size_t>(i)]), other(b, a.in[static_cast<size_t>(1 - i)]), e(b, t);
  Value share = op::select(b, op::eq(mine, other), e * 0.5, e.like(0));
  return op::select(b, wins(mine, other), e, share);
}

}  // namespace

namespace op {

constinit const Op<> add = binary(
    "add", "a + b; integers wrap.", kNumbers,
    pointwise<2,
              [](auto x, auto y) { return wrapping(x, y, [](auto p, auto q) { return p + q; }); }>,
    [](const Node&, In x) { return x[0] + x[1]; }, [](Builder&, Args, int, Value t) { return t; },
    "Binary", true);

constinit const Op<> sub = binary(
    "sub", "a - b; integers wrap.", kNumbers,
    pointwise<2,
              [](auto x, auto y) { return wrapping(x, y, [](auto p, auto q) { return p - q; }); }>,
    [](const Node&, In x) { return x[0] - x[1]; },
    [](Builder& b, Args, int i, Value t) -> Value { return i == 0 ? t : Value(-Expr(b, t)); },
    "Binary");

constinit const Op<> mul = binary(
    "mul", "a * b; integers wrap.", kNumbers,
    pointwise<2,
              [](auto x, auto y) { return wrapping(x, y, [](auto p, auto q) { return p * q; }); }>,
    [](const Node&, In x) { return x[0] * x[1]; },
    [](Builder& b, Args a, int i, Value t) -> Value {
      return Expr(b, t) * (i == 0 ? B(b, a) : X(b, a));
    },
    "Binary", true);

constinit const Op<> div = binary(
    "div", "a / b; integers truncate toward zero, x / 0 is 0 and the lowest value / -1 wraps.",
    kNumbers,
    pointwise<2,
              [](auto x, auto y) {
                if constexpr (IntNumber<decltype(x)>)
                  return int_div(x, y);
                else
                  return x / y;
              }>,
    [](const Node&, In x) { return x[0] / x[1]; },
    [](Builder& b, Args a, int i, Value t) -> Value {
      if (i == 0) return Expr(b, t) / B(b, a);
      return -(Expr(b, t) * Expr(b, a.out[0]) / B(b, a));
    },
    "Binary");

constinit const Op<> rem = binary(
    "rem",
    "Remainder of a / b with the sign of a (C's fmod); x rem 0 is 0 for integers, NaN for floats.",
    kReals,
    pointwise<2,
              [](RealNumber auto x, RealNumber auto y) {
                if constexpr (IntNumber<decltype(x)>)
                  return int_rem(x, y);
                else
                  return std::fmod(x, y);
              }>,
    [](const Node&, In x) { return rlx::rem(x[0], x[1]); },
    [](Builder& b, Args a, int i, Value t) -> Value {
      if (i == 0) return t;
      return -(Expr(b, t) * op::trunc(X(b, a) / B(b, a)));
    });

constinit const Op<> pow = sensitive(binary(
    "pow",
    "a to the power b; NaN for a < 0 with a fractional b. Integers wrap; a negative exponent gives "
    "0 unless a is 1 or -1.",
    kReals,
    pointwise<2,
              [](RealNumber auto x, RealNumber auto y) {
                if constexpr (IntNumber<decltype(x)>)
                  return int_pow(x, y);
                else
                  return std::pow(x, y);
              }>,
    [](const Node&, In x) { return rlx::pow(x[0], x[1]); },
    [](Builder& b, Args a, int i, Value t) -> Value {
      Expr x = X(b, a), p = B(b, a), e(b, t), zero = x.like(0);
      if (i ==
          0) {  // p * x^(p-1), and 0 where p is 0; not by way of 0^-1, whose slopes would be NaN times 0
        const Expr pole = op::logical_and(op::eq(p, zero), op::eq(x, zero));
        Expr slope = p * op::pow(x, Expr(b, op::select(b, pole, zero, p - 1.0)));
        return e * Expr(b, op::select(b, op::eq(p, zero), zero, slope));
      }
      // y * log(x), and 0 where x is 0 and p >= 0
      Expr safe(b, op::select(b, op::eq(x, zero), x.like(1), x));
      Expr slope = Expr(b, a.out[0]) * op::log(safe);
      Expr flat = op::logical_and(op::eq(x, zero), op::ge(p, zero));
      return e * Expr(b, op::select(b, flat, zero, slope));
    },
    "Binary"));

constinit const Op<> maximum = binary(
    "maximum", "The larger of a and b; NaN if either is NaN. Equal operands share the gradient.",
    kReals,
    pointwise<2, [](RealNumber auto x,
                    RealNumber auto y) { return x != x   ? x
                                                : y != y ? y
                                                : y < x  ? x
                                                         : y; }>,
    [](const Node&, In x) { return rlx::maximum(x[0], x[1]); },
    [](Builder& b, Args a, int i, Value t) { return winner(b, a, i, t, op::gt); }, "Binary", true);

constinit const Op<> minimum = binary(
    "minimum", "The smaller of a and b; NaN if either is NaN. Equal operands share the gradient.",
    kReals,
    pointwise<2, [](RealNumber auto x,
                    RealNumber auto y) { return x != x   ? x
                                                : y != y ? y
                                                : x < y  ? x
                                                         : y; }>,
    [](const Node&, In x) { return rlx::minimum(x[0], x[1]); },
    [](Builder& b, Args a, int i, Value t) { return winner(b, a, i, t, op::lt); }, "Binary", true);

constinit const Op<> eq = compare(
    "eq", "a == b; NaN equals nothing.", kAllDTypes,
    pointwise<2, [](auto x, auto y) { return x == y; }>,
    [](const Node&, In x) { return x[0] == x[1]; }, true);
constinit const Op<> ne = compare(
    "ne", "a != b; true for NaN.", kAllDTypes, pointwise<2, [](auto x, auto y) { return x != y; }>,
    [](const Node&, In x) { return x[0] != x[1]; }, true);
constinit const Op<> lt =
    compare("lt", "a < b.", kReals | kBools,
            pointwise<2, [](RealNumber auto x, RealNumber auto y) { return x < y; }>,
            [](const Node&, In x) { return x[0] < x[1]; });
constinit const Op<> le =
    compare("le", "a <= b.", kReals | kBools,
            pointwise<2, [](RealNumber auto x, RealNumber auto y) { return x <= y; }>,
            [](const Node&, In x) { return x[0] <= x[1]; });
constinit const Op<> gt =
    compare("gt", "a > b.", kReals | kBools,
            pointwise<2, [](RealNumber auto x, RealNumber auto y) { return y < x; }>,
            [](const Node&, In x) { return x[0] > x[1]; });
constinit const Op<> ge =
    compare("ge", "a >= b.", kReals | kBools,
            pointwise<2, [](RealNumber auto x, RealNumber auto y) { return x >= y; }>,
            [](const Node&, In x) { return x[0] >= x[1]; });

constinit const Op<> logical_and =
    logical("logical_and", "Whether both are true.",
            pointwise<2, [](IntNumber auto x, IntNumber auto y) { return x && y; }>,
            [](const Node&, In x) { return x[0] && x[1]; });
constinit const Op<> logical_or =
    logical("logical_or", "Whether either is true.",
            pointwise<2, [](IntNumber auto x, IntNumber auto y) { return x || y; }>,
            [](const Node&, In x) { return x[0] || x[1]; });
constinit const Op<> logical_xor =
    logical("logical_xor", "Whether exactly one is true.",
            pointwise<2, [](IntNumber auto x, IntNumber auto y) { return !x != !y; }>,
            [](const Node&, In x) { return rlx::logical_xor(x[0], x[1]); });

}  // namespace op

Expr operator+(Expr a, Expr b) { return op::add(a, b); }
Expr operator-(Expr a, Expr b) { return op::sub(a, b); }
Expr operator*(Expr a, Expr b) { return op::mul(a, b); }
Expr operator/(Expr a, Expr b) { return op::div(a, b); }
Expr operator-(Expr a) { return op::neg(a); }

namespace {
constexpr const OpDef* kArithmeticOps[] = {
    &op::add,     &op::sub,     &op::mul,         &op::div,        &op::rem,         &op::pow,
    &op::maximum, &op::minimum, &op::eq,          &op::ne,         &op::lt,          &op::le,
    &op::gt,      &op::ge,      &op::logical_and, &op::logical_or, &op::logical_xor,
};
}  // namespace
constinit const Family kArithmetic{"arithmetic", kArithmeticOps};

}  // namespace rlx
