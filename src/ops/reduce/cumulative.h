// Running products, extrema and logsumexp along an axis (cumsum is in reduce.h).
//
//   Value y = op::cumprod(b, x, {.axis = 0});
//   Values m = b.emit(op::cummax.def, CumsumAttrs{.axis = 1}, Values{x});    // values, positions
//
// All take `exclusive` (each element without itself; the first is the neutral element) and
// `reverse` (from the end). Wrong attributes raise "axis-range".
#pragma once

#include "rlx/ops/reduce/reduce.h"

namespace rlx {

namespace op {
extern const Op<CumsumAttrs> cumprod, cumlogsumexp;
extern const Op<CumsumAttrs> cummax, cummin;  // values, positions (i64, -1 for none)
}  // namespace op

extern const Family kCumulative;

}  // namespace rlx
