// The larger of two errors, of which NaN is the largest: what is NaN where a number is wanted is as far off as can be, and
// std::max would pass over it.
//
//   for (..) worst = worse(worst, std::fabs(got - want));
#pragma once

namespace rlx::testing {

inline double worse(double a, double b) { return b > a || b != b ? b : a; }

}  // namespace rlx::testing
