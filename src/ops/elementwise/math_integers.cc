// Division toward -inf, and bits. Shifts by the width or more, or by a negative amount, move all bits
// out.
#include <bit>
#include <cmath>

#include "rlx/ops/elementwise/elementwise_rules.h"
#include "rlx/ops/elementwise/math.h"
#include "rlx/ops/elementwise/scalar_math.h"

namespace rlx {
namespace {

constexpr DTypeSet kBits = kInts | kBools;

// ---- division

int64_t floored_mod(int64_t x, int64_t y) {
  if (y == 0 || y == -1) return 0;
  const int64_t r = x % y;
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
int64_t floored_div(int64_t x, int64_t y) {
  if (y == 0) return 0;
  if (y == -1) return static_cast<int64_t>(0 - static_cast<uint64_t>(x));
  return x / y - (x % y != 0 && (x % y < 0) != (y < 0));
}

// The same for floats, from r = fmod(x, y). A zero has the sign of y.
template <class T>
T mod_from_rem(T y, T r) {
  using namespace math;
  return select(r == 0.0, copysign(r, y), select((r < 0.0) == (y < 0.0), r, r + y));
}
// As Python: the quotient of x less its remainder, which is nearly an integer, made one.
template <class T>
T div_from_rem(T x, T y, T r) {
  using namespace math;
  T near = (x - r) / y;
  T q = select((r == 0.0) || ((r < 0.0) == (y < 0.0)), near, near - 1.0);
  T whole = floor(q);
  T fixed = select(q - whole > 0.5, whole + 1.0, whole);
  T zero = copysign(like(x, 0.0), x / y);
  return select(y == 0.0, x / y, select(q == 0.0, zero, fixed));
}

Scalar mod_scalar(const Node&, In x) {
  const Scalar r = rlx::rem(x[0], x[1]);
  if (is_float(x[0].dtype)) return mod_from_rem(x[1], r);
  const Scalar off = (r != 0.0) && logical_xor(r < 0.0, x[1] < 0.0);
  return rlx::select(off, r + x[1], r);
}
Scalar floor_div_scalar(const Node& n, In x) {
  if (is_float(x[0].dtype))
    return in_double<[](Scalar a, Scalar b) { return div_from_rem(a, b, rlx::rem(a, b)); }>(n, x);
  const Scalar q = x[0] / x[1], r = rlx::rem(x[0], x[1]);
  const Scalar off = (r != 0.0) && logical_xor(r < 0.0, x[1] < 0.0);
  return rlx::select(off, q - 1.0, q);
}

// ---- bits

constexpr OpDef bits(OpDef d) {
  d.not_differentiable = "integers have no derivative";
  return d;
}

int width_of(DType d) { return 8 * size_of(d); }
int64_t highest(DType d) {
  return static_cast<int64_t>(~uint64_t{0} >> (64 - width_of(d) + (info(d).is_signed ? 1 : 0)));
}

int64_t left(int64_t x, int64_t by) {
  return by < 0 || by > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(x) << by);
}
int64_t right(int64_t x, int64_t by) { return x >> (by < 0 || by > 63 ? 63 : by); }

// The value's own bits, without the sign extension.
template <int width>
uint64_t own_bits(int64_t x) {
  return static_cast<uint64_t>(x) << (64 - width) >> (64 - width);
}
template <int width>
struct LogicalRight {
  int64_t operator()(int64_t x, int64_t by) const {
    return by < 0 || by >= width ? 0 : static_cast<int64_t>(own_bits<width>(x) >> by);
  }
};
template <int width>
struct Ones {
  int64_t operator()(int64_t x) const { return std::popcount(own_bits<width>(x)); }
};
template <int width>
struct LeadingZeros {
  int64_t operator()(int64_t x) const {
    return std::countl_zero(own_bits<width>(x)) - (64 - width);
  }
};

template <int arity, template <int> class F>
Tensors by_width(const EvalArgs& e) {
  switch (size_of(e.in[0].dtype())) {
    case 1:
      return pointwise<arity, F<8>{}>(e);
    case 2:
      return pointwise<arity, F<16>{}>(e);
    case 4:
      return pointwise<arity, F<32>{}>(e);
    default:
      return pointwise<arity, F<64>{}>(e);
  }
}

// A signed shift to the right fills with the sign; the mask takes it away again.
Scalar logical_right(const Node&, In x) {
  if (!info(x[0].dtype).is_signed) return x[0] >> x[1];
  const Scalar mask = scalar_int_like(x[0], highest(x[0].dtype)) >> (x[1] - 1.0);
  return rlx::select(x[1] == 0.0, x[0], (x[0] >> x[1]) & mask);
}

// A byte repeated over the width.
Scalar repeated(Scalar x, uint64_t byte) {
  return scalar_int_like(x, static_cast<int64_t>(byte * 0x0101010101010101u));
}

// Sums of neighbouring bits, pairs and nibbles side by side; the masks drop what a signed shift fills
// in. A product adds the bytes into the highest one.
Scalar ones(Scalar x) {
  x = x - ((x >> 1.0) & repeated(x, 0x55));
  x = (x & repeated(x, 0x33)) + ((x >> 2.0) & repeated(x, 0x33));
  x = (x + (x >> 4.0)) & repeated(x, 0x0f);
  const int width = width_of(x.dtype);
  return width == 8 ? x : (x * repeated(x, 0x01)) >> (width - 8.0);
}

// All bits from the highest one down are set, then the others counted.
Scalar leading_zeros(const Node&, In in) {
  Scalar x = in[0];
  const int width = width_of(x.dtype);
  for (int by = 1; by < width; by *= 2) x = x | (x >> static_cast<double>(by));
  return ones(~x);
}

}  // namespace

namespace op {

constinit const Op<> floor_div = [] {
  OpDef d =
      binary("floor_div",
             "floor(a / b), exactly; integers: x / 0 is 0 and the lowest value / -1 wraps.", kReals,
             pointwise<2,
                       [](RealNumber auto x, RealNumber auto y) {
                         if constexpr (IntNumber<decltype(x)>)
                           return floored_div(x, y);
                         else
                           return div_from_rem(x, y, std::fmod(x, y));
                       }>,
             floor_div_scalar, nullptr);
  d.not_differentiable = "piecewise constant: its derivative is zero almost everywhere";
  return d;
}();

constinit const Op<> mod = binary(
    "mod",
    "a - floor(a / b) * b, with the sign of b (Python's %); x mod 0 is 0 for integers, NaN for "
    "floats.",
    kReals,
    pointwise<2,
              [](RealNumber auto x, RealNumber auto y) {
                if constexpr (IntNumber<decltype(x)>)
                  return floored_mod(x, y);
                else
                  return mod_from_rem(y, std::fmod(x, y));
              }>,
    mod_scalar, [](Builder& b, Args a, int i, Value t) -> Value {
      if (i == 0) return t;
      return -(Expr(b, t) * op::floor_div(X(b, a), B(b, a)));
    });

constinit const Op<> bitwise_and = bits(binary(
    "bitwise_and", "The bits set in both; logical for bool.", kBits,
    pointwise<2, [](IntNumber auto x, IntNumber auto y) { return x & y; }>,
    [](const Node&, In x) { return x[0] & x[1]; }, nullptr, {}, true));
constinit const Op<> bitwise_or = bits(binary(
    "bitwise_or", "The bits set in either; logical for bool.", kBits,
    pointwise<2, [](IntNumber auto x, IntNumber auto y) { return x | y; }>,
    [](const Node&, In x) { return x[0] | x[1]; }, nullptr, {}, true));
constinit const Op<> bitwise_xor = bits(binary(
    "bitwise_xor", "The bits set in exactly one; logical for bool.", kBits,
    pointwise<2, [](IntNumber auto x, IntNumber auto y) { return x ^ y; }>,
    [](const Node&, In x) { return x[0] ^ x[1]; }, nullptr, {}, true));

constinit const Op<> bitwise_not = bits(unary(
    "bitwise_not", "Every bit inverted; logical for bool.", kBits,
    [](const EvalArgs& e) -> Tensors {
      return is_bool(e.in[0].dtype()) ? pointwise<1, [](IntNumber auto x) { return x == 0; }>(e)
                                      : pointwise<1, [](IntNumber auto x) { return ~x; }>(e);
    },
    [](const Node&, In x) { return ~x[0]; }, nullptr));

constinit const Op<> shift_left = bits(binary(
    "shift_left", "a * 2^b, wrapping; 0 for b outside [0, width).", kInts,
    pointwise<2, [](IntNumber auto x, IntNumber auto y) { return left(x, y); }>,
    [](const Node&, In x) { return x[0] << x[1]; }, nullptr));
constinit const Op<> shift_right = bits(binary(
    "shift_right",
    "floor(a / 2^b): arithmetic for signed, logical for unsigned integers; for b outside [0, "
    "width) "
    "0, and -1 for negative a.",
    kInts, pointwise<2, [](IntNumber auto x, IntNumber auto y) { return right(x, y); }>,
    [](const Node&, In x) { return x[0] >> x[1]; }, nullptr));
constinit const Op<> shift_right_logical =
    bits(binary("shift_right_logical",
                "The bits of a moved down by b, zeros moved in; 0 for b outside [0, width).", kInts,
                by_width<2, LogicalRight>, logical_right, nullptr));

constinit const Op<> population_count = bits(unary(
    "population_count", "How many bits are set.", kInts, by_width<1, Ones>,
    [](const Node&, In x) { return ones(x[0]); }, nullptr));
constinit const Op<> count_leading_zeros =
    bits(unary("count_leading_zeros", "How many bits stand above the highest one that is set.",
               kInts, by_width<1, LeadingZeros>, leading_zeros, nullptr));

}  // namespace op

}  // namespace rlx
