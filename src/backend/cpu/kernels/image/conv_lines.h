// Which elements of x a tap of the kernel meets along a line of results: what the kernels of
// convolution share.
#pragma once

#include <algorithm>

#include "rlx/backend/cpu/kernels/image/conv.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {

inline constexpr int64_t kBlocksWanted = 8, kStep = 16;

// n cut into parts of `step`, the last one shorter.
struct Parts {
  int64_t n = 0, step = 1;
  int64_t count() const { return ceil_div(n, step); }
  int64_t first(int64_t i) const { return i * step; }
  int64_t size(int64_t i) const { return std::min(step, n - i * step); }
  bool is_last(int64_t i) const { return size(i) != step; }
};
inline Parts cut(int64_t n, int64_t step) {
  return {n, std::clamp<int64_t>(step, 1, std::max<int64_t>(n, 1))};
}
// Parts of at least `least`, about `parts` of them.
inline Parts share(int64_t n, int64_t parts, int64_t least) {
  return cut(n, std::max(least, align_up(ceil_div(n, std::max<int64_t>(parts, 1)), kStep)));
}

// Calls f(line, first column, count, offset) for the pieces of lines in positions [begin, end).
template <class F>
void for_each_piece(const ConvProblem& p, int64_t begin, int64_t end, F f) {
  for (int64_t at = begin; at < end;) {
    const int64_t column = at % p.y[2], count = std::min(p.y[2] - column, end - at);
    f(at / p.y[2], column, count, at - begin);
    at += count;
  }
}

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
