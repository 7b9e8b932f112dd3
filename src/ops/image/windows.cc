#include "rlx/ops/image/windows.h"

#include <algorithm>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/movement/movement.h"

namespace rlx {

void fill_window(Ints& stride, Ints& dilation, Ints& low, Ints& high, size_t axes) {
  if (stride.empty()) stride.assign(axes, 1);
  if (dilation.empty()) dilation.assign(axes, 1);
  if (low.empty()) low.assign(axes, 0);
  if (high.empty()) high.assign(axes, 0);
}

void require_window(std::string_view op, const Window& w) {
  const size_t axes = w.axes();
  user_check(axes >= 1 && axes <= 3, "window", "{}: there must be 1, 2 or 3 spatial axes, not {}",
             op, axes);
  for (const Ints* list : {&w.stride, &w.dilation, &w.low, &w.high})
    user_check(list->size() == axes, "window",
               "{}: attributes need one entry for each of the {} spatial axes, not {}", op, axes,
               list->size());
  for (const Ints* list : {&w.kernel, &w.stride, &w.dilation})
    for (int64_t v : *list)
      user_check(v >= 1 && v <= kMaxWindow, "window",
                 "{}: kernel, stride and dilation must be from 1 to {}, not {}", op, kMaxWindow, v);
  for (const Ints* list : {&w.low, &w.high})
    for (int64_t v : *list)
      user_check(v >= -kMaxWindow && v <= kMaxWindow, "window",
                 "{}: padding must be from -{} to {}, not {}", op, kMaxWindow, kMaxWindow, v);
}

int64_t reached_padding(const Window& w, size_t i, bool ceil_mode) {
  if (!ceil_mode) return w.high[i];
  // A window that would begin in the high padding is left out.
  if (w.high[i] >= w.extent(i)) return w.high[i] - 1;
  return std::min(w.high[i] + w.stride[i] - 1, w.extent(i) - 1);
}

Dim count_windows(std::string_view op, const Dim& size, const Window& w, size_t i, bool ceil_mode) {
  user_check(!is_negative(size + w.low[i] + w.high[i] - w.extent(i)), "window",
             "{}: a window over {} positions does not fit into {} with padding {} and {}", op,
             w.extent(i), size, w.low[i], w.high[i]);
  const Dim room = size + w.low[i] + reached_padding(w, i, ceil_mode) - w.extent(i);
  return floor_div(room, w.stride[i]) + 1;
}

namespace {

// The positions of all windows of axis i, as indices into the padded axis: [count, kernel].
Value window_indices(Builder& b, const Window& w, size_t i, const Dim& count) {
  Expr first(b, op::iota(b, {}, {DType::I64, {count, 1}, 0}));
  Expr tap(b, op::iota(b, {}, {DType::I64, {1, w.kernel[i]}, 1}));
  return first * static_cast<double>(w.stride[i]) + tap * static_cast<double>(w.dilation[i]);
}

// Moves the axes count, kernel, count, kernel, .. behind `lead` to count.., kernel.., or back.
Value gather_kernels(Builder& b, Value x, int64_t lead, size_t axes, bool back) {
  Ints perm;
  for (int64_t i = 0; i < lead; ++i) perm.push_back(i);
  const auto n = static_cast<int64_t>(axes);
  for (int64_t i = 0; i < 2 * n; ++i)
    perm.push_back(lead + (back ? i / 2 + i % 2 * n : i % n * 2 + i / n));
  return transpose_to(b, x, perm);
}

}  // namespace

Dim window_reach(const Window& w, size_t i, const Dim& count) {
  return (count - 1) * w.stride[i] + w.extent(i);
}

Value take_windows(Builder& b, Value x, const Window& w, const Shape& count, Value fill) {
  const Shape shape = b.shape(x);
  const size_t lead = shape.size() - w.axes();
  PadAttrs pad{Shape(shape.size(), Dim(0)), Shape(shape.size(), Dim(0))};
  for (size_t i = 0; i < w.axes(); ++i) {
    pad.low[lead + i] = w.low[i];
    pad.high[lead + i] = window_reach(w, i, count[i]) - shape[lead + i] - w.low[i];
  }
  x = op::pad(b, x, fill, pad);
  for (size_t i = 0; i < w.axes(); ++i)
    x = op::gather(b, x, window_indices(b, w, i, count[i]),
                   {.axis = static_cast<int64_t>(lead + 2 * i)});
  return gather_kernels(b, x, static_cast<int64_t>(lead), w.axes(), false);
}

Value sum_windows(Builder& b, Value windows, const Window& w, const Shape& size) {
  const size_t lead = b.shape(windows).size() - 2 * w.axes();
  const Shape windows_shape = b.shape(windows);
  PadAttrs crop{Shape(lead + w.axes(), Dim(0)), Shape(lead + w.axes(), Dim(0))};
  Value x = gather_kernels(b, windows, static_cast<int64_t>(lead), w.axes(), true);
  for (size_t i = w.axes(); i-- > 0;) {
    const Dim& count = windows_shape[lead + i];
    const Dim length = window_reach(w, i, count);
    x = op::scatter_add(b, x, window_indices(b, w, i, count),
                        {static_cast<int64_t>(lead + 2 * i), length});
    crop.low[lead + i] = -w.low[i];
    crop.high[lead + i] = size[i] + w.low[i] - length;
  }
  return op::pad(b, x, b.constant_like(x, 0), crop);
}

Value weighted_gather(Builder& b, Value x, int64_t axis, const Taps& taps) {
  const Value picked = op::gather(b, x, b.constant(taps.indices), {.axis = axis});
  const Ints& sizes = taps.indices.sizes();
  Shape lined_up(b.shape(picked).size() - static_cast<size_t>(axis), Dim(1));
  lined_up[0] = sizes[0], lined_up[1] = sizes[1];
  const Tensor weights = cast_tensor(taps.weights, b.type(x).dtype);
  const Value w = reshape_to(b, b.constant(weights), lined_up);
  return sum_axes(b, op::mul(b, picked, w), {axis + 1});
}

}  // namespace rlx
