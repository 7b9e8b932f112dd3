// Bytes as vectors of 32-bit numbers. Included only by the files compiled for one instruction set (simd.h says why).
#pragma once

#include "rlx/backend/cpu/kernels/simd.h"

namespace rlx::cpu {

// W / 4 bytes from p. Compilers take the general conversion of vectors apart.
template <int W, bool kSigned>
[[gnu::always_inline]] inline Vec<int32_t, W> widened(const void* p) {
  using V = Vec<int32_t, W>;
#if defined(__AVX512F__)
  if constexpr (W == 64) {
    const __m128i v = _mm_loadu_si128(static_cast<const __m128i_u*>(p));
    return reinterpret_cast<V>(kSigned ? _mm512_maskz_cvtepi8_epi32(0xffff, v)
                                       : _mm512_maskz_cvtepu8_epi32(0xffff, v));
  }
#endif
#if defined(__AVX2__)
  if constexpr (W == 32) {
    const __m128i v = _mm_loadl_epi64(static_cast<const __m128i_u*>(p));
    return reinterpret_cast<V>(kSigned ? _mm256_cvtepi8_epi32(v) : _mm256_cvtepu8_epi32(v));
  }
#endif
  V out;
  const auto* byte = static_cast<const uint8_t*>(p);
#pragma GCC unroll 16
  for (int i = 0; i < W / 4; ++i)
    out[i] = kSigned ? static_cast<int8_t>(byte[i]) : static_cast<int32_t>(byte[i]);
  return out;
}

}  // namespace rlx::cpu
