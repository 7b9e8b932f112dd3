// The named gradients of other ops, as ops of their own: any transform applies to them again.
//
//   Value dx = op::activation_backward(b, x, dy, {.kind = Activation::gelu});
//   Value dg = op::layer_norm_backward_gamma(b, x, dy, {.axis = -1, .eps = 1e-5});
//
// Each is a composite whose decomposition asks the forward op for its own rule, so that a gradient is
// stated once. dy has the shape of the forward op's result. Errors: those of the forward op, and
// "gradient-shape" when dy does not fit. Gradients of convolution, pooling, attention, quantisation,
// complex norms and scans stand in those families.
#pragma once

#include "rlx/ops/elementwise/activations.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/nn/nn.h"
#include "rlx/ops/nn/norms.h"
#include "rlx/ops/reduce/cumulative.h"

namespace rlx {

struct ActivationAttrs {
  Activation kind = Activation::gelu;
  static constexpr auto fields() { return Fields<&ActivationAttrs::kind>(); }
};

namespace op {
extern const Op<> relu_backward;                       // x, dy
extern const Op<ActivationAttrs> activation_backward;  // x, dy
extern const Op<NormAttrs> layer_norm_backward_input;  // x, gamma [D], dy
extern const Op<NormAttrs> layer_norm_backward_gamma;  // x, dy -> [D]
extern const Op<NormAttrs> rms_norm_backward_input, rms_norm_backward_gamma,
    rms_norm_backward_beta;                                 // x, gamma [D], beta [D], dy
extern const Op<GroupNormAttrs> group_norm_backward_input;  // x [N, C, ..], gamma [C],
                                                            // beta [C], dy
extern const Op<GroupNormAttrs> group_norm_backward_gamma,
    group_norm_backward_beta;                      // x, dy -> [C]
extern const Op<RopeAttrs> rope_backward;          // dy, cos, sin
extern const Op<CumsumAttrs> cumsum_backward;      // dy; the attributes of the forward op
extern const Op<ScatterAttrs> gather_backward;     // dy, indices; the table's axis and its size
extern const Op<> softmax_cross_entropy_backward;  // logits [.., C], labels [..], d_loss [..]
}  // namespace op

extern const Family kBackward;

}  // namespace rlx
