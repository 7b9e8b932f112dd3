// The loop that measure_fma_peak times. Included only by the machine_limits_<isa>.cc files.
#pragma once

#include "rlx/backend/cpu/kernels/machine_limits_loop.h"
#include "rlx/backend/cpu/kernels/simd.h"

namespace rlx::cpu {

template <int W>
[[gnu::always_inline]] inline void keep_in_register(Vec<float, W>& v) {
#if defined(__AVX512F__)
  asm volatile("" : "+v"(v));
#elif defined(__x86_64__)
  asm volatile("" : "+x"(v));
#else
  asm volatile("" : "+w"(v));
#endif
}

template <int W>
void fma_loop(int64_t rounds) {
  using V = Vec<float, W>;
  V sum[kFmaChains];
  for (V& s : sum) s = splat<float, W>(1.f);
  V factor = splat<float, W>(0.999f), term = splat<float, W>(0.001f);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (V& s : sum) s = s * factor + term;
      // The values must look used, or the loop would be dropped.
#pragma GCC unroll 16
    for (V& s : sum) keep_in_register<W>(s);
  }
}

}  // namespace rlx::cpu
