// Normalisations beyond layer_norm and rms_norm: composites, each defined by its decomposition.
//
//   Value y = op::group_norm(b, x, gamma, beta, {.num_groups = 8});             // x [N, C, ..]
//   Values r = b.emit(op::batch_norm_training.def, ChannelNormAttrs{}, Values{x, gamma, beta});
//
// Images are [N, C, spatial..] with any number of spatial axes, gamma and beta are [C]. Variances
// are biased (divided by the count) and computed in two passes; f16 and bf16 are computed in f32
// and rounded once. Wrong operands raise Error(user) with the codes "norm-shape", "norm-eps",
// "norm-groups", "norm-p", "norm-size", "dtype-mixed", "axis-range".
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

struct GroupNormAttrs {
  int64_t num_groups = 1;
  double eps = 1e-5;
  static constexpr auto fields() {
    return Fields<&GroupNormAttrs::num_groups, &GroupNormAttrs::eps>();
  }
};
struct ChannelNormAttrs {
  double eps = 1e-5;
  static constexpr auto fields() { return Fields<&ChannelNormAttrs::eps>(); }
};
struct LrnAttrs {
  int64_t size = 5;
  double alpha = 1e-4, beta = 0.75, k = 1;
  static constexpr auto fields() {
    return Fields<&LrnAttrs::size, &LrnAttrs::alpha, &LrnAttrs::beta, &LrnAttrs::k>();
  }
};
struct NormaliseAttrs {  // p >= 1, inf for the largest magnitude
  double p = 2;
  Ints axes{-1};
  double eps = 1e-12;
  static constexpr auto fields() {
    return Fields<&NormaliseAttrs::p, &NormaliseAttrs::axes, &NormaliseAttrs::eps>();
  }
};
struct WeightNormAttrs {
  int64_t axis = 0;
  static constexpr auto fields() { return Fields<&WeightNormAttrs::axis>(); }
};

namespace op {
extern const Op<GroupNormAttrs> group_norm;       // x, gamma, beta
extern const Op<ChannelNormAttrs> instance_norm;  // x, gamma, beta: each channel of each image
extern const Op<ChannelNormAttrs> layer_norm2d;   // x, gamma, beta: across C at every pixel
extern const Op<ChannelNormAttrs> batch_norm;     // x, gamma, beta, mean, variance
extern const Op<ChannelNormAttrs> batch_norm_training;  // x, gamma, beta -> out, mean, variance
extern const Op<LrnAttrs> local_response_norm;
extern const Op<NormaliseAttrs> normalize;
extern const Op<WeightNormAttrs> weight_norm;  // v, g: one length per slice of the axis
}  // namespace op

extern const Family kNorms;

}  // namespace rlx
