// Convolutions and their transposes in 1, 2 and 3 dimensions.
//
//   Value y = op::conv(b, x, w, {.stride = {2, 2}, .low = {1, 1}, .high = {1, 1}});
//   // x [N, C_in, H, W], w [C_out, C_in / groups, kH, kW] -> [N, C_out, H', W']
//
// No flip of the kernel (cross-correlation), zero padding, `low` in front of and `high` behind each
// spatial axis (negative padding crops); empty lists mean stride 1, dilation 1 and no padding. Group
// g of the outputs reads group g of the inputs. The three sums of products
//   y[n, o, p] += x[n, c, p * stride + k * dilation - low] * w[o, c, k]
// over the same terms, by y (conv), by x (conv_backward_input) and by w (conv_backward_weight), are
// each other's derivatives, so every order of derivative is one of them. f16 and bf16 are summed in
// f32 or wider, integers wrap.
//
// Raises Error(user): "conv-shape" (operands that do not fit each other), "conv-groups" (groups that
// do not divide the channels), "conv-kernel" (a kernel of unknown size), "window" (windows.h),
// "dtype-mixed".
//
// conv_channels_last is the same sum with channels behind the spatial axes, as the kernels like it best:
// passes/channels_last.cc makes it of conv.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

struct ConvAttrs {
  Ints stride, dilation, low, high;
  Dim groups = 1;
  static constexpr auto fields() {
    return Fields<&ConvAttrs::stride, &ConvAttrs::dilation, &ConvAttrs::low, &ConvAttrs::high,
                  &ConvAttrs::groups>();
  }
};
struct ConvTransposeAttrs : ConvAttrs {
  Ints output_padding;  // makes the result larger at the end; empty: 0
  static constexpr auto fields() {
    return join(ConvAttrs::fields(), Fields<&ConvTransposeAttrs::output_padding>());
  }
};
struct ConvBackwardInputAttrs : ConvAttrs {
  Shape size;  // the spatial sizes of the convolution's input
  static constexpr auto fields() {
    return join(ConvAttrs::fields(), Fields<&ConvBackwardInputAttrs::size>());
  }
};
struct ConvBackwardWeightAttrs : ConvAttrs {
  Ints kernel;  // the spatial sizes of the convolution's weight
  static constexpr auto fields() {
    return join(ConvAttrs::fields(), Fields<&ConvBackwardWeightAttrs::kernel>());
  }
};

namespace op {
extern const Op<ConvAttrs> conv;  // x, w
// x [N, .., C_in], w [k.., C_in / groups, C_out] -> [N, .., C_out]
extern const Op<ConvAttrs> conv_channels_last;
// x [N, C_in, ..], w [C_in, C_out / groups, k..] -> [N, C_out, (size - 1) * stride + dilation * (k -
// 1) + 1 + output_padding - low - high]
extern const Op<ConvTransposeAttrs> conv_transpose;
extern const Op<ConvBackwardInputAttrs> conv_backward_input;    // dy, w -> dx
extern const Op<ConvBackwardWeightAttrs> conv_backward_weight;  // x, dy -> dw
}  // namespace op

// What ops that convolve other dtypes share with conv: the shape of its result, by the shapes of x and
// w, which may differ in dtype; and the defaults of empty lists, for an x of this rank.
Shape conv_shape(const InferArgs& a, const ConvAttrs& c);
void fill_window(ConvAttrs& c, int64_t rank);

// The axes of a value with channels last taken from one with channels first, [0, 2, .., 1], and back, [0, rank - 1, 1, ..].
Ints channels_to_last(int64_t rank);
Ints channels_to_first(int64_t rank);

extern const Family kConv;

}  // namespace rlx
