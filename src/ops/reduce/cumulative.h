// Running sums, products, extrema and logsumexp along an axis, and recurrences that are linear in what came before.
//
//   Value y = op::cumprod(b, x, {.axis = 0});
//   Values m = b.emit(op::cummax.def, CumsumAttrs{.axis = 1}, Values{x});    // values, positions
//
// All take `exclusive` (each element without itself; the first is the neutral element) and
// `reverse` (from the end). Wrong attributes raise "axis-range".
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

struct CumsumAttrs {
  int64_t axis = -1;
  bool exclusive = false, reverse = false;
  static constexpr auto fields() {
    return Fields<&CumsumAttrs::axis, &CumsumAttrs::exclusive, &CumsumAttrs::reverse>();
  }
};

namespace op {
extern const Op<CumsumAttrs> cumsum;
extern const Op<CumsumAttrs> cumprod, cumlogsumexp;
extern const Op<CumsumAttrs> linear_recurrence;  // of a, u
extern const Op<CumsumAttrs> cummax, cummin;     // values, positions (i64, -1 for none)
}  // namespace op

extern const Family kCumulative;

}  // namespace rlx
