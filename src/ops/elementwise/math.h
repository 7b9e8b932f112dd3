// Elementary and special functions, integer and bit arithmetic beyond the core.
//
//   Value p = op::erfc(b, x);
//   Value low = op::bitwise_and(b, bits, b.constant(DType::I32, 0xff));
//   Value q = op::floor_div(b, i, b.constant(DType::I64, 8));
//
// Functions are computed in binary64 and rounded once: f16, bf16 and f32 are correctly rounded but for
// rare ties, f64 is good to 8 units in the last place (lgamma and digamma near their zeros: absolutely).
// Integers wrap; x / 0 and x mod 0 are 0. A shift by the width of the dtype or more, or by a negative
// amount, moves all bits out: 0, or -1 for an arithmetic shift of a negative number to the right.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

struct PolygammaAttrs {
  int64_t n = 1;
  static constexpr auto fields() { return Fields<&PolygammaAttrs::n>(); }
};
struct NanToNumAttrs {  // none: the largest and the lowest finite number of the dtype
  double nan = 0;
  std::optional<double> posinf = std::nullopt, neginf = std::nullopt;
  static constexpr auto fields() {
    return Fields<&NanToNumAttrs::nan, &NanToNumAttrs::posinf, &NanToNumAttrs::neginf>();
  }
};

namespace op {
extern const Op<> exp2, log2, log10, sinh, cosh, asinh, acosh, atanh, asin, acos, erfc, erfinv,
    normal_cdf, normal_pdf, logistic_pdf, lgamma, digamma, cbrt, sinc, frac, deg2rad, rad2deg,
    round_away, is_pos_inf, is_neg_inf;
extern const Op<PolygammaAttrs> polygamma;
extern const Op<NanToNumAttrs> nan_to_num;
extern const Op<> atan2, logaddexp, hypot, xlogy, copysign, heaviside;  // broadcast
extern const Op<> lerp;                                                 // a, b, weight
extern const Op<> floor_div, mod;  // rounded toward -inf; div and rem truncate
extern const Op<> bitwise_and, bitwise_or, bitwise_xor, bitwise_not, shift_left, shift_right,
    shift_right_logical, population_count, count_leading_zeros;
}  // namespace op

extern const Family kMath;

}  // namespace rlx
