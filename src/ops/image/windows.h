// Sliding windows along spatial axes: what convolutions, pools and unfolding share.
//
//   Window w{.kernel = {3, 3}, .stride = {2, 2}, .dilation = {1, 1}, .low = {1, 1}, .high = {1, 1}};
//   count_windows("conv", 224, w, 0);      // 112
//
// Window o of an axis reads the positions o * stride + k * dilation - low, k < kernel; those outside
// [0, size) are padding. Padding may be negative: it crops.
#pragma once

#include "rlx/ops/rules.h"

namespace rlx {

struct Window {
  Ints kernel, stride, dilation, low, high;  // one entry per axis
  size_t axes() const { return kernel.size(); }
  // From the first to the last position of a window, both counted.
  int64_t extent(size_t i) const { return dilation[i] * (kernel[i] - 1) + 1; }
};

// Empty lists become their defaults: stride and dilation 1, padding 0.
void fill_window(Ints& stride, Ints& dilation, Ints& low, Ints& high, size_t axes);

// The largest kernel, stride, dilation and padding: an extent then fits in 64 bits.
inline constexpr int64_t kMaxWindow = (int64_t{1} << 31) - 1;

// Raises "window", naming the op, when there are not 1 to 3 axes, a list has another length, or a kernel, stride or
// dilation is not in [1, kMaxWindow] or a padding not in [-kMaxWindow, kMaxWindow].
void require_window(std::string_view op, const Window& w);

// How many windows fit along axis i of this size; with `ceil_mode` also one that runs over the end,
// if it begins before it. Raises "window" when not even one fits.
Dim count_windows(std::string_view op, const Dim& size, const Window& w, size_t i,
                  bool ceil_mode = false);
// The padding behind axis i with which as many windows fit without `ceil_mode`.
int64_t reached_padding(const Window& w, size_t i, bool ceil_mode);

// x [lead.., s..] -> [lead.., count.., kernel..]: all windows along the last axes, with `fill` (rank
// 0) in the place of padding.
Value take_windows(Builder& b, Value x, const Window& w, const Shape& count, Value fill);
// The transpose of take_windows: [lead.., count.., kernel..] is summed into [lead.., size..].
Value sum_windows(Builder& b, Value windows, const Window& w, const Shape& size);

// Where the windows along axis i end, counted from the beginning of the low padding.
Dim window_reach(const Window& w, size_t i, const Dim& count);

// Sums of elements along an axis: result o is the sum over t of weights[o, t] * x[indices[o, t]].
struct Taps {
  Tensor indices;  // i64 [results, taps]
  Tensor weights;  // f64 [results, taps]
};
Value weighted_gather(Builder& b, Value x, int64_t axis, const Taps& taps);

}  // namespace rlx
