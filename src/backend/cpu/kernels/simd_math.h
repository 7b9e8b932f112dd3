// Vector exp2, and reductions of a vector to one number. Included only by files compiled for one
// instruction set.
#pragma once

#include "rlx/backend/cpu/kernels/simd.h"

namespace rlx::cpu {

// The larger of each pair of lanes; b where either is NaN (one instruction on x86).
template <class T, int W>
[[gnu::always_inline]] inline Vec<T, W> larger(Vec<T, W> a, Vec<T, W> b) {
#if defined(__AVX512F__)
  if constexpr (W == 64 && sizeof(T) == 4) {
    return reinterpret_cast<Vec<T, W>>(
        _mm512_maskz_max_ps(0xffff, reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
  } else if constexpr (W == 64) {
    return reinterpret_cast<Vec<T, W>>(
        _mm512_maskz_max_pd(0xff, reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(b)));
  }
#endif
#if defined(__AVX__)
  if constexpr (W == 32 && sizeof(T) == 4) {
    return reinterpret_cast<Vec<T, W>>(
        _mm256_max_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
  } else if constexpr (W == 32) {
    return reinterpret_cast<Vec<T, W>>(
        _mm256_max_pd(reinterpret_cast<__m256d>(a), reinterpret_cast<__m256d>(b)));
  }
#endif
  return a > b ? a : b;
}

// Constants of 2^x for |x| <= 1/2: (2^x - 1) / x interpolated at Chebyshev points (relative error
// below 6e-9 for float, 2e-19 for double).
template <class T>
struct Exp2;
template <>
struct Exp2<float> {
  using Bits = int32_t;
  static constexpr float kCoefficients[] = {0.693147188026f,   0.240226507606f,
                                            0.0555035711422f,  0.00961808255728f,
                                            0.00133908633647f, 0.000154531629451f};
  // Adding it rounds to a whole number and leaves that number plus the exponent's bias in the low
  // bits.
  static constexpr float kRound = 0x1.8p23f + 127;
  static constexpr int kMantissa = 23;
  static constexpr float kLowest = -127;  // becomes exponent 0: the number zero
  static constexpr float kHighest = 128;  // becomes the largest exponent: infinity
};
template <>
struct Exp2<double> {
  using Bits = int64_t;
  static constexpr double kCoefficients[] = {
      0.69314718055994530925,     0.24022650695910071233,   0.055504108664821627039,
      0.0096181291076284794928,   0.0013333558146406470697, 0.00015403530393370733411,
      0.000015252733841556772589, 1.321548680870556279e-6,  1.0178057087733941105e-7,
      7.0548973041554992774e-9,   4.455817908336064493e-10, 2.5729324177362304214e-11};
  static constexpr double kRound = 0x1.8p52 + 1023;
  static constexpr int kMantissa = 52;
  static constexpr double kLowest = -1023;
  static constexpr double kHighest = 1024;
};

// 2^x = scale * (1 + fraction), for x clamped to the range of exponents.
template <class T, int W>
struct Exp2Parts {
  Vec<T, W> fraction, scale;
};
template <class T, int W>
[[gnu::always_inline]] inline Exp2Parts<T, W> exp2_parts(Vec<T, W> x) {
  using E = Exp2<T>;
  using Int = Vec<typename E::Bits, W>;
  const Vec<T, W> highest = splat<T, W>(E::kHighest);
  const Vec<T, W> t = larger<T, W>(splat<T, W>(E::kLowest), x > highest ? highest : x);
  const Vec<T, W> shifted = t + E::kRound;
  const Vec<T, W> f = t - (shifted - E::kRound);
  constexpr int n = sizeof(E::kCoefficients) / sizeof(T);
  Vec<T, W> p = splat<T, W>(E::kCoefficients[n - 1]);
#pragma GCC unroll 16
  for (int i = n - 2; i >= 0; --i) p = p * f + E::kCoefficients[i];
  return {p * f, reinterpret_cast<Vec<T, W>>(reinterpret_cast<Int>(shifted) << E::kMantissa)};
}

// 2^x, within 2 units in the last place for results that are normal numbers; smaller ones lose bits
// and become 0 below half the smallest normal number. Infinite from half a power below the largest
// exponent on. NaN gives NaN.
template <class T, int W>
[[gnu::always_inline]] inline Vec<T, W> exp2(Vec<T, W> x) {
  const Exp2Parts<T, W> e = exp2_parts<T, W>(x);
  return (e.fraction + T{1}) * e.scale;
}

// 2^x - 1 for |x| <= 64, to a few units in the last place, near 0, too.
template <class T, int W>
[[gnu::always_inline]] inline Vec<T, W> exp2_minus_one(Vec<T, W> x) {
  const Exp2Parts<T, W> e = exp2_parts<T, W>(x);
  return e.fraction * e.scale + (e.scale - T{1});
}

template <class T>
[[gnu::always_inline]] inline T exp2(T x) {
  const Vec<T, 16> v = splat<T, 16>(x);
  return exp2<T, 16>(v)[0];
}

struct Sum {
  template <class V>
  [[gnu::always_inline]] static V apply(V a, V b) {
    return a + b;
  }
};
struct Max {
  template <class V>
  [[gnu::always_inline]] static V apply(V a, V b) {
    return a > b ? a : b;
  }
};

// Reduces by halves.
template <class Op, class T, int W>
[[gnu::always_inline]] inline T reduce(Vec<T, W> v) {
  constexpr int L = kLanes<T, W>;
  if constexpr (L == 2) {
    return Op::apply(v[0], v[1]);
  } else if constexpr (W == 16) {
    const T a = Op::apply(v[0], v[2]), b = Op::apply(v[1], v[3]);
    return Op::apply(a, b);
  } else {
    Vec<T, W / 2> low, high;
    __builtin_memcpy(&low, &v, W / 2);
    __builtin_memcpy(&high, reinterpret_cast<const char*>(&v) + W / 2, W / 2);
    return reduce<Op, T, W / 2>(Op::apply(low, high));
  }
}

// Lanes 0, 1, 2, ...
template <class T, int W>
[[gnu::always_inline]] inline Vec<typename Exp2<T>::Bits, W> lane_numbers() {
  Vec<typename Exp2<T>::Bits, W> v{};
#pragma GCC unroll 16
  for (int i = 0; i < kLanes<T, W>; ++i) v[i] = i;
  return v;
}

// v in the first `count` lanes, `other` in the rest.
template <class T, int W>
[[gnu::always_inline]] inline Vec<T, W> first_lanes(Vec<T, W> v, int64_t count, Vec<T, W> other) {
  using Bits = typename Exp2<T>::Bits;
  return lane_numbers<T, W>() < static_cast<Bits>(count) ? v : other;
}

}  // namespace rlx::cpu
