// The named gradients (attention's stand with attention).
#include "rlx/ops/elementwise/complex.h"
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/nn/backward.h"
#include "rlx/stages/builders/graph_builder.h"
#include "rlx/stages/builders/window_attributes.h"

namespace rlx {

NodeId GraphBuilder::relu_backward(NodeId x, NodeId dy) {
  return emit(op::relu_backward.def, NoAttrs{}, {x, dy});
}
NodeId GraphBuilder::activation_backward(Activation kind, NodeId x, NodeId dy) {
  return emit(op::activation_backward.def, ActivationAttrs{kind}, {x, dy});
}

NodeId GraphBuilder::layer_norm_backward_input(NodeId x, NodeId gamma, NodeId dy, int64_t axis,
                                               double eps) {
  return emit(op::layer_norm_backward_input.def, NormAttrs{axis, eps}, {x, gamma, dy});
}
NodeId GraphBuilder::layer_norm_backward_gamma(NodeId x, NodeId dy, const Declared& gamma_shape,
                                               int64_t axis, double eps) {
  return emit(op::layer_norm_backward_gamma.def, NormAttrs{axis, eps}, {x, dy}, gamma_shape);
}
NodeId GraphBuilder::rms_norm_backward_input(NodeId x, NodeId gamma, NodeId beta, NodeId dy,
                                             int64_t axis, double eps) {
  return emit(op::rms_norm_backward_input.def, NormAttrs{axis, eps}, {x, gamma, beta, dy});
}
NodeId GraphBuilder::rms_norm_backward_gamma(NodeId x, NodeId gamma, NodeId beta, NodeId dy,
                                             int64_t axis, double eps) {
  return emit(op::rms_norm_backward_gamma.def, NormAttrs{axis, eps}, {x, gamma, beta, dy});
}
NodeId GraphBuilder::rms_norm_backward_beta(NodeId x, NodeId gamma, NodeId beta, NodeId dy,
                                            int64_t axis, double eps) {
  return emit(op::rms_norm_backward_beta.def, NormAttrs{axis, eps}, {x, gamma, beta, dy});
}

NodeId GraphBuilder::rope_backward(NodeId dy, NodeId cos, NodeId sin, int64_t head_dim,
                                   int64_t n_rot) {
  return emit(op::rope_backward.def, RopeAttrs{.head_dim = head_dim, .n_rot = n_rot},
              {dy, cos, sin});
}
NodeId GraphBuilder::cumsum_backward(NodeId dy, const Declared& out_shape, int64_t axis,
                                     bool exclusive) {
  return emit(op::cumsum_backward.def, CumsumAttrs{.axis = axis, .exclusive = exclusive}, {dy},
              out_shape);
}
NodeId GraphBuilder::gather_backward(NodeId dy, NodeId indices, const Type& table_shape,
                                     int64_t axis) {
  axis = normalise_axis(axis, table_shape.rank(), "gather_backward");
  return emit(op::gather_backward.def,
              ScatterAttrs{axis, table_shape.shape[static_cast<size_t>(axis)]}, {dy, indices},
              table_shape);
}

NodeId GraphBuilder::group_norm_backward_input(NodeId x, NodeId gamma, NodeId beta, NodeId dy,
                                               int64_t num_groups, double eps) {
  return emit(op::group_norm_backward_input.def, GroupNormAttrs{num_groups, eps},
              {x, gamma, beta, dy});
}
NodeId GraphBuilder::group_norm_backward_gamma(NodeId x, NodeId dy, const Declared& gamma_shape,
                                               int64_t num_groups, double eps) {
  return emit(op::group_norm_backward_gamma.def, GroupNormAttrs{num_groups, eps}, {x, dy},
              gamma_shape);
}
NodeId GraphBuilder::group_norm_backward_beta(NodeId x, NodeId dy, const Declared& beta_shape,
                                              int64_t num_groups, double eps) {
  return emit(op::group_norm_backward_beta.def, GroupNormAttrs{num_groups, eps}, {x, dy},
              beta_shape);
}

NodeId GraphBuilder::maxpool2d_backward(NodeId x, NodeId dy, const Ints& kernel, const Ints& stride,
                                        const Ints& padding) {
  return emit(op::max_pool_backward.def, pool_attributes(PoolKind::max, kernel, stride, padding),
              {x, dy});
}

NodeId GraphBuilder::conv2d_backward_input(NodeId dy, NodeId w, const Type& x_shape,
                                           const Ints& kernel, const Ints& stride,
                                           const Ints& padding, const Ints& dilation,
                                           int64_t groups) {
  check_kernel("conv2d_backward_input", kernel, shape(w));
  user_check(x_shape.rank() >= 2, "conv-shape", "conv2d_backward_input: the input cannot be {}",
             x_shape);
  ConvBackwardInputAttrs a;
  static_cast<ConvAttrs&>(a) = conv_attributes(stride, padding, dilation, groups);
  a.size = Shape(x_shape.shape.begin() + 2, x_shape.shape.end());
  return emit(op::conv_backward_input.def, a, {dy, w}, x_shape);
}

NodeId GraphBuilder::conv2d_backward_weight(NodeId x, NodeId dy, const Type& w_shape,
                                            const Ints& kernel, const Ints& stride,
                                            const Ints& padding, const Ints& dilation,
                                            int64_t groups) {
  ConvBackwardWeightAttrs a;
  static_cast<ConvAttrs&>(a) = conv_attributes(stride, padding, dilation, groups);
  a.kernel = kernel;
  return emit(op::conv_backward_weight.def, a, {x, dy}, w_shape);
}

NodeId GraphBuilder::softmax_cross_entropy_with_logits(NodeId logits, NodeId labels) {
  return emit(op::softmax_cross_entropy.def, NoAttrs{}, {logits, labels});
}
NodeId GraphBuilder::softmax_cross_entropy_backward(NodeId logits, NodeId labels, NodeId d_loss) {
  return emit(op::softmax_cross_entropy_backward.def, NoAttrs{}, {logits, labels, d_loss});
}

NodeId GraphBuilder::complex_norm_sq(NodeId z) {
  return emit(op::complex_norm_sq.def, NoAttrs{}, {z});
}
NodeId GraphBuilder::complex_norm_sq_backward(NodeId z, NodeId g) {
  return emit(op::complex_norm_sq_backward.def, NoAttrs{}, {z, g});
}
NodeId GraphBuilder::conjugate(NodeId z) { return emit(op::conj.def, NoAttrs{}, {z}); }

}  // namespace rlx
