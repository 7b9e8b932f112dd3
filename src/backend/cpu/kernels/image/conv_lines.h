// Which elements of x a tap of the kernel meets along a line of results: what the kernels of
// convolution share.
#pragma once

#include <algorithm>

#include "rlx/backend/cpu/kernels/image/conv.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {

// The positions i < count of a line for which 0 <= start + i * stride < size.
struct Valid {
  int64_t begin, end;
  Valid(int64_t start, int64_t stride, int64_t size, int64_t count) {
    begin = std::min(count, start < 0 ? ceil_div(-start, stride) : 0);
    end = std::clamp<int64_t>(start < size ? (size - 1 - start) / stride + 1 : 0, begin, count);
  }
};

// One line of results and one kernel tap: where the line of x lies that it reads, or nullptr.
struct Tap {
  int64_t depth, row, column;
};
inline Tap tap_of(const ConvProblem& p, int64_t k) {
  return {k / (p.kernel[1] * p.kernel[2]), k / p.kernel[2] % p.kernel[1], k % p.kernel[2]};
}
template <class E>
E* line_of(const ConvProblem& p, E* plane, const Tap& t, int64_t line) {
  const int64_t d = line / p.y[1] * p.stride[0] + t.depth * p.dilation[0] - p.low[0];
  const int64_t h = line % p.y[1] * p.stride[1] + t.row * p.dilation[1] - p.low[1];
  if (d < 0 || d >= p.x[0] || h < 0 || h >= p.x[1]) return nullptr;
  return plane + (d * p.x[1] + h) * p.x[2];
}
inline int64_t start_of(const ConvProblem& p, const Tap& t, int64_t column) {
  return column * p.stride[2] + t.column * p.dilation[2] - p.low[2];
}

// A convolution with one channel in and one out per group, summed line by line.
std::unique_ptr<const ConvPlan> make_direct_conv(const ConvProblem& p, ConvSum sum, Isa isa);

}  // namespace rlx::cpu
