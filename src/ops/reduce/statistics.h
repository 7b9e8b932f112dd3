// Reductions made of others: logsumexp, tests and counts, variance, norms. All take any set of axes
// (none: nothing is reduced) and keepdims.
//
//   Value v = op::variance(b, x, {.axes = {0}, .correction = 1});
//   Value l = op::norm(b, x, {.axes = {-1}, .ord = 2});
//
// f16 and bf16 are computed in f32 and rounded once. Wrong attributes raise "axis-range" and
// "axis-repeated".
#pragma once

#include "rlx/ops/reduce/reduce.h"

namespace rlx {

struct VarianceAttrs {
  Ints axes;
  bool keepdims = false;
  double correction = 0;  // the sum of squares is divided by n - correction
  static constexpr auto fields() {
    return Fields<&VarianceAttrs::axes, &VarianceAttrs::keepdims, &VarianceAttrs::correction>();
  }
};
struct VectorNormAttrs {
  Ints axes;
  bool keepdims = false;
  double ord = 2;
  static constexpr auto fields() {
    return Fields<&VectorNormAttrs::axes, &VectorNormAttrs::keepdims, &VectorNormAttrs::ord>();
  }
};

namespace op {
extern const Op<ReduceAttrs> logsumexp, reduce_l1, reduce_l2, reduce_log_sum, reduce_sum_square,
    nansum, nanmean;
extern const Op<ReduceAttrs> any, all, reduce_xor;  // bool
extern const Op<ReduceAttrs> count_nonzero;         // i64
extern const Op<VarianceAttrs> variance;
extern const Op<VarianceAttrs> std_dev;  // "std"
extern const Op<VectorNormAttrs> norm;
}  // namespace op

extern const Family kStatistics;

}  // namespace rlx
