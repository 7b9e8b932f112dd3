// The loops of extremes.h. Included only by the extremes_<isa>.cc files.
#pragma once

#include "rlx/backend/cpu/kernels/indexing/extremes.h"
#include "rlx/backend/cpu/kernels/simd.h"

namespace rlx::cpu {

// The numbers by which elements of S are compared: themselves, and integers for the halves and bool.
template <class S>
struct Ordered {
  using T = S;
  static constexpr bool kFloat = __is_same(S, float) || __is_same(S, double);
};
template <>
struct Ordered<f16_t> {
  using T = int16_t;
  static constexpr bool kFloat = false;
};
template <>
struct Ordered<bf16_t> : Ordered<f16_t> {};
template <>
struct Ordered<bool_t> {
  using T = uint8_t;
  static constexpr bool kFloat = false;
};

template <int bytes>
struct Integer {
  using type = int32_t;
};
template <>
struct Integer<8> {
  using type = int64_t;
};

template <class M>
[[gnu::always_inline]] inline bool any(const M& mask) {
#if defined(__AVX512F__)
  if constexpr (sizeof(M) == 64) {
    const auto m = reinterpret_cast<__m512i>(mask);
    return _mm512_test_epi64_mask(m, m) != 0;
  }
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(M) == 32) {
    const auto m = reinterpret_cast<__m256i>(mask);
    return _mm256_testz_si256(m, m) == 0;
  }
#endif
#if defined(__x86_64__)
  if constexpr (sizeof(M) == 16) return _mm_movemask_epi8(reinterpret_cast<__m128i>(mask)) != 0;
#endif
  long long words[sizeof(M) / sizeof(long long)], all = 0;
  __builtin_memcpy(words, &mask, sizeof(M));
  for (const long long w : words) all |= w;
  return all != 0;
}

// nan_first: NaN is the smallest instead of the largest; of floats it is neither.
template <class S, int W, bool nan_first>
struct Extremes {
  using T = typename Ordered<S>::T;
  using V = Vec<T, W>;
  static constexpr int L = kLanes<T, W>;
  static constexpr bool kFloat = Ordered<S>::kFloat;

  [[gnu::always_inline]] static V values(const S* p) {
    V v;
    __builtin_memcpy(&v, p, W);
    if constexpr (__is_same(S, f16_t) || __is_same(S, bf16_t)) {
      const V size = v & splat<T, W>(0x7fff);
      const V nan = size > splat<T, W>(__is_same(S, f16_t) ? 0x7c00 : 0x7f80);
      const V ordered = v < 0 ? -size : size;
      return nan ? splat<T, W>(nan_first ? -0x8000 : 0x7fff) : ordered;
    } else {
      return v;
    }
  }
  [[gnu::always_inline]] static T value(S x) {
    if constexpr (__is_same(S, f16_t) || __is_same(S, bf16_t)) {
      const int16_t v = half_order<__is_same(S, f16_t)>(static_cast<int16_t>(x.bits));
      return nan_first && v == 0x7fff ? int16_t{-0x8000} : v;
    } else if constexpr (__is_same(S, bool_t)) {
      return x.byte;
    } else {
      return x;
    }
  }

  // Whether x is beyond b, or one of them is NaN.
  template <bool minimum, class A>
  [[gnu::always_inline]] static auto beyond(const A& x, const A& b) {
    if constexpr (kFloat)
      return minimum ? !(x >= b) : !(x <= b);
    else
      return minimum ? x < b : x > b;
  }

  template <bool minimum>
  static int64_t next(const S* x, int64_t from, int64_t n, S limit) {
    const T least = value(limit);
    const V bound = splat<T, W>(least);
    int64_t i = from;
    for (; i + 4 * L <= n; i += 4 * L) {
      auto found = beyond<minimum>(values(x + i), bound);
#pragma GCC unroll 3
      for (int v = 1; v < 4; ++v) found |= beyond<minimum>(values(x + i + v * L), bound);
      if (any(found)) break;
    }
    for (; i + L <= n; i += L)
      if (any(beyond<minimum>(values(x + i), bound))) break;
    for (; i < n; ++i)
      if (beyond<minimum>(value(x[i]), least)) break;
    return i;
  }

  template <bool minimum>
  [[gnu::always_inline]] static V better(const V& x, const V& b) {
    return (minimum ? x < b : x > b) ? x : b;
  }

  // The best of x[0, n), of NaN one.
  template <bool minimum>
  [[gnu::always_inline]] static T best_of(const S* x, int64_t n) {
    T best = value(x[0]);
    int64_t i = 0;
    if (n >= 4 * L) {
      V b[4];
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) b[v] = values(x + v * L);
      auto nan = b[0] != b[0];
#pragma GCC unroll 3
      for (int v = 1; v < 4; ++v) nan |= b[v] != b[v];
      for (i = 4 * L; i + 4 * L <= n; i += 4 * L) {
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) {
          const V now = values(x + i + v * L);
          b[v] = better<minimum>(now, b[v]);
          if constexpr (kFloat) nan |= now != now;
        }
      }
      if (any(nan)) return best_nan();
      T lanes[L];
      store<T, W>(lanes, better<minimum>(better<minimum>(b[0], b[1]), better<minimum>(b[2], b[3])));
#pragma GCC unroll 6
      for (int half = L / 2; half > 0; half /= 2)
#pragma GCC unroll 32
        for (int l = 0; l < half; ++l)
          lanes[l] = (minimum ? lanes[l] < lanes[l + half] : lanes[l] > lanes[l + half])
                         ? lanes[l]
                         : lanes[l + half];
      best = lanes[0];
    }
    for (; i < n; ++i) {
      const T now = value(x[i]);
      if (now != now) return now;
      if (minimum ? now < best : now > best) best = now;
    }
    return best;
  }
  [[gnu::always_inline]] static T best_nan() {
    if constexpr (__is_same(S, float))
      return __builtin_nanf("");
    else if constexpr (__is_same(S, double))
      return __builtin_nan("");
    else
      return T{};
  }

  [[gnu::always_inline]] static bool same(T a, T b) { return a == b || (a != a && b != b); }

  // The best is found a block at a time, then where it is in the first (last) block that has it.
  template <bool minimum, bool last>
  static int64_t position(const S* x, int64_t n) {
    constexpr int64_t kBlock = 16 * L;
    T best = value(x[0]);
    int64_t where = 0;
    for (int64_t i = 0; i < n; i += kBlock) {
      const T now = best_of<minimum>(x + i, n - i < kBlock ? n - i : kBlock);
      const bool better = best == best && (now != now || (minimum ? now < best : now > best));
      if (better || (last && same(now, best))) best = now, where = i;
      if (!last && best != best) break;
    }
    const int64_t end = n - where < kBlock ? n : where + kBlock;
    const V wanted = splat<T, W>(best);
    int64_t from = where, to = end;
    if constexpr (last) {
      while (to - from >= L && !any(equal(values(x + to - L), wanted))) to -= L;
      while (to > from && !same(value(x[to - 1]), best)) --to;
      return to - 1;
    } else {
      while (to - from >= L && !any(equal(values(x + from), wanted))) from += L;
      while (from < to && !same(value(x[from]), best)) ++from;
      return from;
    }
  }
  [[gnu::always_inline]] static auto equal(const V& a, const V& b) {
    if constexpr (kFloat)
      return (a == b) | ((a != a) & (b != b));
    else
      return a == b;
  }

  // N vectors of lines. Positions are integers as wide as the elements.
  template <int N, bool minimum, bool last>
  [[gnu::always_inline]] static void lines(const S* x, int64_t n, int64_t step, int64_t* results) {
    using I = typename Integer<sizeof(T)>::type;
    V best[N];
    Vec<I, W> where[N] = {};
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) best[v] = values(x + v * L);
    for (int64_t i = 1; i < n; ++i) {
      const Vec<I, W> now = splat<I, W>(static_cast<I>(i));
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) {
        const V y = values(x + i * step + v * L);
        auto wins =
            last ? (minimum ? y <= best[v] : y >= best[v]) : (minimum ? y < best[v] : y > best[v]);
        if constexpr (kFloat)  // nothing compares as better than a NaN, so it stays
          wins |= last ? y != y : (y != y) & (best[v] == best[v]);
        best[v] = wins ? y : best[v];
        where[v] = wins ? now : where[v];
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v)
      for (int l = 0; l < L; ++l) results[v * L + l] = where[v][l];
  }
  template <bool minimum, bool last>
  static int64_t columns(const S* x, int64_t n, int64_t step, int64_t count, int64_t* results) {
    int64_t c = 0;
    if constexpr (sizeof(T) >= 4) {
      if (sizeof(T) == 4 && n > 0x7fffffff) return 0;
      for (; c + 4 * L <= count; c += 4 * L) lines<4, minimum, last>(x + c, n, step, results + c);
      for (; c + L <= count; c += L) lines<1, minimum, last>(x + c, n, step, results + c);
    }
    return c;
  }
};

template <class S, int W>
ExtremeFns<S> extreme_fns_of() {
  using Largest = Extremes<S, W, false>;
  using Smallest = Extremes<S, W, true>;
  return {&Largest::template next<false>,
          &Largest::template next<true>,
          {{&Largest::template position<false, false>, &Largest::template position<false, true>},
           {&Smallest::template position<true, false>, &Smallest::template position<true, true>}},
          {{&Largest::template columns<false, false>, &Largest::template columns<false, true>},
           {&Smallest::template columns<true, false>, &Smallest::template columns<true, true>}}};
}

template ExtremeFns<float> extreme_fns_of<float, kVectorBytes>();
template ExtremeFns<double> extreme_fns_of<double, kVectorBytes>();
template ExtremeFns<f16_t> extreme_fns_of<f16_t, kVectorBytes>();
template ExtremeFns<bf16_t> extreme_fns_of<bf16_t, kVectorBytes>();
template ExtremeFns<int8_t> extreme_fns_of<int8_t, kVectorBytes>();
template ExtremeFns<int16_t> extreme_fns_of<int16_t, kVectorBytes>();
template ExtremeFns<int32_t> extreme_fns_of<int32_t, kVectorBytes>();
template ExtremeFns<int64_t> extreme_fns_of<int64_t, kVectorBytes>();
template ExtremeFns<uint8_t> extreme_fns_of<uint8_t, kVectorBytes>();
template ExtremeFns<uint32_t> extreme_fns_of<uint32_t, kVectorBytes>();
template ExtremeFns<bool_t> extreme_fns_of<bool_t, kVectorBytes>();

}  // namespace rlx::cpu
