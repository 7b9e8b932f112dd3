// BlockAccess: what the blocks of a kernel touch, read off the addresses of its loads and stores.
// The one answer to "which rows does block b read of this operand" and "may this result lie in the
// memory of that operand"; shapes do not come into it.
//
//   const BlockAccess access(kernel, sizes, blocks);
//   access.span(x);              // block b reads [4096 * b, 4096 * b + 4095]
//   access.may_overwrite(x, y);  // y[i] is written by the iteration that reads x[i], afterwards
#pragma once

#include <map>
#include <optional>
#include <span>

#include "rlx/codegen/kernel.h"
#include "rlx/lower/lir.h"

namespace rlx::codegen {

class BlockAccess {
 public:
  // `sizes` are the ABI's size arguments, `blocks` the iterations of the block loop.
  BlockAccess(const Kernel& kernel, std::span<const int64_t> sizes, int64_t blocks);

  // nullopt: an address depends on values in memory.
  std::optional<BlockSpan> span(BufferId buffer) const;

  // Whether `written` may start where `read` starts: no element is read after it was written,
  // whichever blocks run first.
  bool may_overwrite(BufferId read, BufferId written) const;

 private:
  // constant + the sum of coefficient * value over its terms. Values are loop indices, quotients
  // and whatever else is no sum; terms with coefficient 0 are dropped.
  struct Linear {
    std::map<int32_t, int64_t> terms;
    int64_t constant = 0;
    bool operator==(const Linear&) const = default;
  };
  struct Access {
    int32_t at = 0;    // in the body
    int32_t loop = 0;  // the innermost loop around it; -1: none
    BufferId buffer;
    Linear address;
  };
  struct Quotient {
    Linear of;
    int64_t by = 1;
  };
  struct Range {
    int64_t low = 0, high = 0;
    void add(const Range& r, int64_t factor);
  };

  int64_t value(Size s) const;
  static void add(Linear& to, const Linear& from, int64_t factor);
  static int64_t factor_of(const Linear& part, const Linear& x);
  const Linear& linear(ValueId v);
  Linear compute(ValueId v);

  std::optional<Range> bounds(Linear x) const;
  std::optional<Range> atom_bounds(int32_t atom) const;
  void take_remainders(Linear& x, Range& rest) const;
  void join_tiles(Linear& x, Range& rest) const;

  std::optional<BlockSpan> span(const Access& a) const;
  std::vector<int32_t> loops_around(const Access& a) const;
  bool is_injective(const Access& a) const;
  bool reads_before(const Access& load, const Access& store) const;

  const Kernel& k_;
  std::span<const int64_t> sizes_;
  int64_t blocks_;
  int32_t block_ = -1;           // the block loop
  std::vector<int32_t> parent_;  // of loops
  std::vector<Access> accesses_;
  std::map<int32_t, Linear> memo_;
  std::map<int32_t, Quotient> quotients_;
};

}  // namespace rlx::codegen
