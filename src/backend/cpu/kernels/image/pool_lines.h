// Pools of planes line by line: the interface between pool.cc and the code compiled per instruction set.
#pragma once

#include <cstdint>

namespace rlx::cpu {

enum class PoolFold : uint8_t { Max, Mean, Sum, Min, Prod };  // as PoolKind of the op

// A line of results from the fold of some lines of x, `column`, around whose elements stands what changes no fold.
struct PoolTaps {
  int64_t results, taps, stride, dilation;
  int64_t first;  // where tap 0 of result 0 is in `column`
};

// Of one fold, all but products; x and y in one storage type, folded in f32.
struct PoolLineFns {
  // column[i] = the fold of the lines, of n elements each, with what is there unless `fresh`.
  void (*fold_lines)(const void* const* lines, int64_t count, int64_t n, bool fresh, float* column);
  // y[i] = the fold of the taps, divided by others * counts[i] where there are any. Reads up to two vectors behind the
  // last tap.
  void (*fold_taps)(const PoolTaps& p, const float* column, float others, const float* counts,
                    void* y);
  float initial;  // what changes no fold
};
template <class S, int W>
PoolLineFns pool_line_fns(PoolFold fold);

}  // namespace rlx::cpu
