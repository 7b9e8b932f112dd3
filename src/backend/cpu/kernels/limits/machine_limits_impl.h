// The loop that measure_fma_peak times. Included only by the machine_limits_<isa>.cc files.
#pragma once

#include "rlx/backend/cpu/kernels/limits/machine_limits_loop.h"
#include "rlx/backend/cpu/kernels/simd.h"

namespace rlx::cpu {

template <int W>
float fma_loop(int64_t rounds, float seed) {
  using V = Vec<float, W>;
  V sum[kFmaChains];
#pragma GCC unroll 16
  for (int j = 0; j < kFmaChains; ++j) sum[j] = splat<float, W>(seed + static_cast<float>(j));
  const V factor = splat<float, W>(0.999f), term = splat<float, W>(0.001f);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kFmaChains; ++j) sum[j] = sum[j] * factor + term;
  }
  V total{};
#pragma GCC unroll 16
  for (int j = 0; j < kFmaChains; ++j) total += sum[j];
  return total[0];
}

template float fma_loop<kVectorBytes>(int64_t rounds, float seed);

}  // namespace rlx::cpu
