// Elementwise ops: result[i] is a function of operands[i]; operands broadcast like NumPy and have
// one dtype.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

struct CastAttrs {
  DType to = DType::F32;
  static constexpr auto fields() { return Fields<&CastAttrs::to>(); }
};

namespace op {
extern const Op<> neg, abs, sign, exp, log, log1p, expm1, sqrt, rsqrt, square, reciprocal, sin, cos,
    tan, atan, tanh, sigmoid, relu, erf, softplus, softsign, floor, ceil, round,
    round_straight_through, trunc, logical_not, is_nan, is_inf, is_finite, stop_gradient, conj,
    real, imag;
extern const Op<> add, sub, mul, div, rem, pow, maximum, minimum, eq, ne, lt, le, gt, ge,
    logical_and, logical_or, logical_xor;
extern const Op<> select, clamp;
extern const Op<CastAttrs> cast;
}  // namespace op

extern const Family kElementwise, kArithmetic;

}  // namespace rlx
