// BlockSpan: which part of an operand a block of a kernel touches; the arithmetic behind chains and
// their proof.
#pragma once

#include <cstdint>

namespace rlx {

// Block b touches only the elements [stride * b + low, stride * b + high], counted in memory from
// the first element of the operand's view. high < low: none.
struct BlockSpan {
  int64_t stride = 0, low = 0, high = -1;

  bool empty() const { return high < low; }
  // What all of `blocks` blocks touch, as a span that does not depend on the block.
  BlockSpan hull(int64_t blocks) const;
  bool operator==(const BlockSpan&) const = default;
};

// The span of blocks that touch a and b.
BlockSpan joined(const BlockSpan& a, const BlockSpan& b, int64_t blocks);

// Whether no block touches in a what another block touches in b; both count from the same place, in
// the same unit.
bool apart(const BlockSpan& a, const BlockSpan& b, int64_t blocks);

}  // namespace rlx
