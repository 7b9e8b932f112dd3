// The geometry of convolutions and pools as the builders are given it: the same padding on both sides.
#pragma once

#include <algorithm>

#include "rlx/ops/image/conv.h"
#include "rlx/ops/image/pool.h"

namespace rlx {

inline ConvAttrs conv_attributes(const Ints& stride, const Ints& padding, const Ints& dilation,
                                 int64_t groups) {
  return {
      .stride = stride, .dilation = dilation, .low = padding, .high = padding, .groups = groups};
}

inline PoolAttrs pool_attributes(PoolKind kind, const Ints& kernel, const Ints& stride,
                                 const Ints& padding) {
  PoolAttrs a;
  a.kind = kind;
  a.kernel = kernel;
  a.stride = stride;
  a.low = a.high = padding;
  return a;
}

// The kernel is stated twice, by the argument and by the weight [.., .., k..]: they must agree.
// Raises "conv-kernel".
inline void check_kernel(std::string_view name, const Ints& kernel, const Type& weight) {
  const bool fits = weight.rank() == static_cast<int64_t>(kernel.size()) + 2 &&
                    std::equal(kernel.begin(), kernel.end(), weight.shape.begin() + 2,
                               [](int64_t k, const Dim& d) { return Dim(k) == d; });
  user_check(fits, "conv-kernel", "{}: a kernel of [{}] does not fit the weight {}", name,
             fmt::join(kernel, ", "), weight);
}

}  // namespace rlx
