// Reductions, argmax and argmin. Running ones are in cumulative.h.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

struct ReduceAttrs {  // empty axes: nothing is reduced
  Ints axes;
  bool keepdims = false;
  static constexpr auto fields() { return Fields<&ReduceAttrs::axes, &ReduceAttrs::keepdims>(); }
};
struct ArgmaxAttrs {
  int64_t axis = -1;
  bool keepdims = false, select_last = false;
  static constexpr auto fields() {
    return Fields<&ArgmaxAttrs::axis, &ArgmaxAttrs::keepdims, &ArgmaxAttrs::select_last>();
  }
};

namespace op {
extern const Op<ReduceAttrs> reduce_sum, reduce_max, reduce_min, reduce_prod;  // primitives
extern const Op<ReduceAttrs> reduce_mean;     // composite: sum / count
extern const Op<ArgmaxAttrs> argmax, argmin;  // i64; first of equals; NaN wins
}  // namespace op

extern const Family kReduce;

}  // namespace rlx
