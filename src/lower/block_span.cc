#include "rlx/lower/block_span.h"

#include <algorithm>
#include <cstdlib>

namespace rlx {

namespace {

int64_t floor_div(int64_t a, int64_t positive) { return a / positive - (a % positive < 0); }

}  // namespace

BlockSpan BlockSpan::hull(int64_t blocks) const {
  if (empty()) return {};
  const int64_t last = stride * (std::max<int64_t>(blocks, 1) - 1);
  return {0, low + std::min<int64_t>(last, 0), high + std::max<int64_t>(last, 0)};
}

BlockSpan joined(const BlockSpan& a, const BlockSpan& b, int64_t blocks) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  if (a.stride != b.stride) return joined(a.hull(blocks), b.hull(blocks), blocks);
  return {a.stride, std::min(a.low, b.low), std::max(a.high, b.high)};
}

bool apart(const BlockSpan& a, const BlockSpan& b, int64_t blocks) {
  if (a.empty() || b.empty() || blocks <= 1) return true;
  if (a.stride != b.stride || a.stride == 0) {
    const BlockSpan x = a.hull(blocks), y = b.hull(blocks);
    return x.high < y.low || y.high < x.low;
  }
  // Block t of a meets block t + d of b where b.low + p * d <= a.high and b.high + p * d >= a.low.
  const int64_t p = std::abs(a.stride);
  const int64_t first = std::max(-floor_div(b.high - a.low, p), -(blocks - 1)),
                last = std::min(floor_div(a.high - b.low, p), blocks - 1);
  return first > last || (first == 0 && last == 0);
}

}  // namespace rlx
