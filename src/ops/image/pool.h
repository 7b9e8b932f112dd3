// Pooling: folds windows along the last 1, 2 or 3 axes; all axes before them are kept.
//
//   Value y = op::pool(b, x, {.kind = PoolKind::max, .kernel = {3, 3}, .stride = {2, 2},
//                             .low = {1, 1}, .high = {1, 1}});         // x [N, C, H, W]
//
// Empty lists mean stride 1, dilation 1 and no padding. Padding takes no part: a window with nothing
// else gives -inf (max), +inf (min), the lowest or highest integer, 0 (sum) or 1 (prod). f16 and
// bf16 are folded in f32 or wider, integers wrap, and the mean of integers is cut off.
//
// Positions of maxima are indices into the pooled axes taken together, in row-major order (the
// convention of PyTorch), -1 for a window of padding alone.
//
// Raises Error(user): "window" (windows.h), "pool-shape", "pool-kind", "pool-size", "pool-p"; an
// index out of range raises "index-range" when the program runs.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

enum class PoolKind : uint8_t { max, mean, sum, min, prod };
inline std::span<const std::string_view> enum_names(PoolKind) {
  static constexpr std::string_view names[] = {"max", "mean", "sum", "min", "prod"};
  return names;
}
// ceil_mode adds a window that runs over the end, if it begins before the end. The mean divides by
// the number of positions in the window, padding included or not; what lies behind the padding never
// counts.
struct PoolAttrs {
  PoolKind kind = PoolKind::max;
  Ints kernel, stride, dilation, low, high;
  bool ceil_mode = false, count_include_pad = true;
  static constexpr auto fields() {
    return Fields<&PoolAttrs::kind, &PoolAttrs::kernel, &PoolAttrs::stride, &PoolAttrs::dilation,
                  &PoolAttrs::low, &PoolAttrs::high, &PoolAttrs::ceil_mode,
                  &PoolAttrs::count_include_pad>();
  }
};
struct LpPoolAttrs {
  double p = 2;
  Ints kernel, stride, dilation, low, high;
  bool ceil_mode = false;
  static constexpr auto fields() {
    return Fields<&LpPoolAttrs::p, &LpPoolAttrs::kernel, &LpPoolAttrs::stride,
                  &LpPoolAttrs::dilation, &LpPoolAttrs::low, &LpPoolAttrs::high,
                  &LpPoolAttrs::ceil_mode>();
  }
};
struct UnpoolAttrs {
  Shape size;  // of the last axes of the result
  static constexpr auto fields() { return Fields<&UnpoolAttrs::size>(); }
};
struct AdaptivePoolAttrs {
  Ints size;  // of the last axes of the result
  static constexpr auto fields() { return Fields<&AdaptivePoolAttrs::size>(); }
};

namespace op {
extern const Op<PoolAttrs> pool;
extern const Op<PoolAttrs> pool_channels_last;     // over the axes in front of the last one
extern const Op<PoolAttrs> max_pool_with_indices;  // kind max or min -> values, positions (i64)
extern const Op<PoolAttrs> max_pool_backward;      // x, dy -> dx; kind max or min
extern const Op<UnpoolAttrs> max_unpool;           // values, positions
extern const Op<LpPoolAttrs> lp_pool;
extern const Op<AdaptivePoolAttrs> adaptive_avg_pool, adaptive_max_pool;
extern const Op<> global_avg_pool, global_max_pool;  // x [N, C, ..] -> [N, C, 1, ..]
}  // namespace op

extern const Family kPool;

}  // namespace rlx
