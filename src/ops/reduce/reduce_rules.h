// What ops along axes share (reduce.cc, statistics.cc, cumulative.cc, sorting.cc, norms.cc, losses.cc).
#pragma once

#include <algorithm>

#include "rlx/ops/reduce/reduce.h"
#include "rlx/ops/rules.h"

namespace rlx {

// x's shape with the axes (ascending) folded: dropped, or kept with size 1.
Shape reduced_shape(const Shape& x, const Ints& axes, bool keepdims);
// Raises "reduce-empty" when one of the axes is known to have no elements.
void require_elements(const InferArgs& a, const Ints& axes);

// The highest or lowest value of an integer dtype.
int64_t integer_limit(DType d, bool highest);

// Integers wrap.
struct WrappingSum {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (IntNumber<T>)
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    else
      return a + b;
  }
};
struct WrappingProduct {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (IntNumber<T>)
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else
      return a * b;
  }
};

// x^p for x >= 0 and p other than 0; its derivatives at 0 are taken as 0.
Expr power(Expr x, double p);

// The same node on batched operands, with its axis moved by one.
template <class A>
Values vmap_axis(Builder& b, const VmapArgs& a) {
  A attrs = a.node.get<A>();
  ++attrs.axis;
  Values in(a.in.begin(), a.in.end());
  for (size_t i = 0; i < in.size(); ++i)
    if (!a.batched[i]) in[i] = batch_operand(b, in[i], a.size);
  return b.emit(*a.node.op, attrs, in);
}
// The same node on a batched operand, with its axes moved by one.
template <class A>
Values vmap_axes(Builder& b, const VmapArgs& a) {
  A attrs = a.node.get<A>();
  for (int64_t& axis : attrs.axes) ++axis;
  return b.emit(*a.node.op, attrs, a.in);
}

// Calls f(first, step, n) for every line of a tensor along an axis, in row-major order.
template <class F>
void for_each_line(const Ints& sizes, int64_t axis, F f) {
  const Ints strides = row_major_strides(sizes);
  const auto a = static_cast<size_t>(axis);
  Ints others = sizes;
  others[a] = 1;
  for_each_index(others, [&](const Ints& index) {
    int64_t first = 0;
    for (size_t i = 0; i < index.size(); ++i) first += index[i] * strides[i];
    f(first, strides[a], sizes[a]);
  });
}

}  // namespace rlx
