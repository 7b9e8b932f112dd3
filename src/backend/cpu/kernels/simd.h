// Vectors of W bytes as the compilers' own vector types, and the few operations that the kernels
// need.
//
// Everything here is a template over W, and a given W is instantiated only in the files that are
// compiled for the instruction set of that width. So a function compiled for AVX-512 can never be
// linked into a path that runs on a machine without it. For the same reason the files that do so
// include nothing of the standard library that has inline functions.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdint>

#include "rlx/backend/cpu/kernels/element.h"

namespace rlx::cpu {

// What this file is compiled for. Not inline: it differs between files.
#if defined(__AVX512F__)
constexpr int kWidestVector = 64;
#elif defined(__AVX2__)
constexpr int kWidestVector = 32;
#else
constexpr int kWidestVector = 16;
#endif

template <class T, int W>
struct VecType {
  static_assert(W <= kWidestVector, "this file is not compiled for vectors of W bytes");
  typedef T type __attribute__((vector_size(W)));
};
template <class T, int W>
using Vec = typename VecType<T, W>::type;

template <class T, int W>
inline constexpr int kLanes = W / static_cast<int>(sizeof(T));

template <class T, int W>
[[gnu::always_inline]] inline Vec<T, W> load(const T* p) {
  Vec<T, W> v;
  __builtin_memcpy(&v, p, W);
  return v;
}

template <class T, int W>
[[gnu::always_inline]] inline void store(T* p, Vec<T, W> v) {
  __builtin_memcpy(p, &v, W);
}

template <class T, int W>
[[gnu::always_inline]] inline Vec<T, W> splat(T x) {
  return x - Vec<T, W>{};  // x - 0 is x for every x, also for -0 and NaN
}

// kLanes elements of storage type S, as compute values.
template <class S, int W>
[[gnu::always_inline]] inline Vec<Compute<S>, W> load_as(const S* p) {
  using T = Compute<S>;
  if constexpr (sizeof(S) == sizeof(T) && __is_same(S, T)) {
    return load<T, W>(p);
  } else {
#if defined(__AVX512F__)
    if constexpr (__is_same(S, f16_t) && W == 64) {
      return reinterpret_cast<Vec<T, W>>(
          _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(p))));
    }
#endif
#if defined(__F16C__)
    if constexpr (__is_same(S, f16_t) && W == 32) {
      return reinterpret_cast<Vec<T, W>>(
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(p))));
    }
#endif
    T lanes[kLanes<T, W>];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes<T, W>; ++i) lanes[i] = Element<S>::get(p[i]);
    return load<T, W>(lanes);
  }
}

// `count` elements as compute values, zeros behind them; reads no further.
template <class S, int W>
[[gnu::always_inline]] inline Vec<Compute<S>, W> load_first(const S* p, int64_t count) {
  using T = Compute<S>;
  if (count >= kLanes<T, W>) return load_as<S, W>(p);
#if defined(__AVX512F__)
  if constexpr (__is_same(S, float) && W == 64)
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p);
#endif
  T lanes[kLanes<T, W>] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = Element<S>::get(p[i]);
  return load<T, W>(lanes);
}

// Writes kLanes compute values as storage type S.
template <class S, int W>
[[gnu::always_inline]] inline void store_as(S* p, Vec<Compute<S>, W> v) {
  using T = Compute<S>;
  if constexpr (__is_same(S, T)) {
    store<T, W>(p, v);
  } else {
#if defined(__AVX512F__)
    if constexpr (__is_same(S, f16_t) && W == 64) {
      _mm256_storeu_si256(
          reinterpret_cast<__m256i_u*>(p),
          _mm512_maskz_cvtps_ph(0xffff, reinterpret_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
      return;
    }
#endif
#if defined(__F16C__)
    if constexpr (__is_same(S, f16_t) && W == 32) {
      _mm_storeu_si128(reinterpret_cast<__m128i_u*>(p),
                       _mm256_cvtps_ph(reinterpret_cast<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
      return;
    }
#endif
    T lanes[kLanes<T, W>];
    store<T, W>(lanes, v);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes<T, W>; ++i) p[i] = Element<S>::put(lanes[i]);
  }
}

// The first `count` of them (all when there are fewer).
template <class S, int W>
[[gnu::always_inline]] inline void store_first(S* p, Vec<Compute<S>, W> v, int64_t count) {
  if (count >= kLanes<Compute<S>, W>) {
    store_as<S, W>(p, v);
#if defined(__AVX512F__)
  } else if constexpr (__is_same(S, float) && W == 64) {
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1), v);
#endif
  } else {
    for (int64_t i = 0; i < count; ++i) p[i] = Element<S>::put(v[i]);
  }
}

// One step of a transposition: the low (or high) halves of a and b, lanes taken in turn.
template <class T, int W, int Offset>
[[gnu::always_inline]] inline Vec<T, W> interleave(Vec<T, W> a, Vec<T, W> b) {
  constexpr int L = kLanes<T, W>;
  constexpr int o = Offset;
  if constexpr (L == 2) {
    return __builtin_shufflevector(a, b, o, L + o);
  } else if constexpr (L == 4) {
    return __builtin_shufflevector(a, b, o, L + o, o + 1, L + o + 1);
  } else if constexpr (L == 8) {
    return __builtin_shufflevector(a, b, o, L + o, o + 1, L + o + 1, o + 2, L + o + 2, o + 3,
                                   L + o + 3);
  } else {
    static_assert(L == 16);
    return __builtin_shufflevector(a, b, o, L + o, o + 1, L + o + 1, o + 2, L + o + 2, o + 3,
                                   L + o + 3, o + 4, L + o + 4, o + 5, L + o + 5, o + 6, L + o + 6,
                                   o + 7, L + o + 7);
  }
}

// Transposes the L x L matrix whose rows are v: log2(L) rounds of interleaving row i with row i +
// L/2.
template <class T, int W>
[[gnu::always_inline]] inline void transpose(Vec<T, W>* v) {
  constexpr int L = kLanes<T, W>;
#pragma GCC unroll 4
  for (int step = 1; step < L; step *= 2) {
    Vec<T, W> t[L];
#pragma GCC unroll 16
    for (int i = 0; i < L / 2; ++i) {
      t[2 * i] = interleave<T, W, 0>(v[i], v[i + L / 2]);
      t[2 * i + 1] = interleave<T, W, L / 2>(v[i], v[i + L / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) v[i] = t[i];
  }
}

}  // namespace rlx::cpu
