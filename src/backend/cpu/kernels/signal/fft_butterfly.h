// Transforms of R complex numbers in registers, W bytes of lines side by side. Natural order in and
// out. Included only by fft_impl.h.
#pragma once

#include "rlx/backend/cpu/kernels/signal/fft_tables.h"
#include "rlx/backend/cpu/kernels/simd.h"

namespace rlx::cpu {

template <class T, int W>
struct FftButterfly {
  static constexpr int L = kLanes<T, W>;
  using V = Vec<T, W>;
  struct C {
    V re, im;
  };

  [[gnu::always_inline]] static C add(C a, C b) { return {a.re + b.re, a.im + b.im}; }
  [[gnu::always_inline]] static C sub(C a, C b) { return {a.re - b.re, a.im - b.im}; }
  [[gnu::always_inline]] static C mul(C a, V re, V im) {
    return {a.re * re - a.im * im, a.re * im + a.im * re};
  }
  // Times re + i im for both parts constants or numbers in memory.
  [[gnu::always_inline]] static C turned(C a, T re, T im) {
    return mul(a, splat<T, W>(re), splat<T, W>(im));
  }
  [[gnu::always_inline]] static C times_minus_i(C a) { return {a.im, -a.re}; }
  // Times e^(-i pi / 4) and e^(-3 i pi / 4).
  [[gnu::always_inline]] static C eighth(C a) {
    const V half = splat<T, W>(static_cast<T>(0.70710678118654752440));
    return {(a.re + a.im) * half, (a.im - a.re) * half};
  }
  [[gnu::always_inline]] static C three_eighths(C a) {
    const V half = splat<T, W>(static_cast<T>(0.70710678118654752440));
    return {(a.im - a.re) * half, (a.re + a.im) * -half};
  }

  [[gnu::always_inline]] static void dft2(C& a, C& b) {
    const C t = a;
    a = add(t, b);
    b = sub(t, b);
  }
  [[gnu::always_inline]] static void dft4(C& a, C& b, C& c, C& d) {
    dft2(a, c);
    dft2(b, d);
    d = times_minus_i(d);
    dft2(a, b);
    dft2(c, d);
    const C t = b;  // in order: a, c, b, d
    b = c;
    c = t;
  }
  [[gnu::always_inline]] static void dft8(C* x) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) dft2(x[i], x[i + 4]);
    x[5] = eighth(x[5]);
    x[6] = times_minus_i(x[6]);
    x[7] = three_eighths(x[7]);
    dft4(x[0], x[1], x[2], x[3]);
    dft4(x[4], x[5], x[6], x[7]);
    const C t1 = x[1], t2 = x[2], t3 = x[3];
    x[1] = x[4], x[2] = t1, x[4] = t2;
    x[3] = x[5], x[5] = x[6], x[6] = t3;
  }
  // 4 x 4.
  [[gnu::always_inline]] static void dft16(C* x) {
    constexpr T c = static_cast<T>(0.92387953251128675613),
                s = static_cast<T>(0.38268343236508977173);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) dft4(x[j], x[j + 4], x[j + 8], x[j + 12]);
    x[5] = turned(x[5], c, -s);
    x[6] = eighth(x[6]);
    x[7] = turned(x[7], s, -c);
    x[9] = eighth(x[9]);
    x[10] = times_minus_i(x[10]);
    x[11] = three_eighths(x[11]);
    x[13] = turned(x[13], s, -c);
    x[14] = three_eighths(x[14]);
    x[15] = turned(x[15], -c, s);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) dft4(x[4 * k], x[4 * k + 1], x[4 * k + 2], x[4 * k + 3]);
    C y[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) y[i] = x[i / 4 + i % 4 * 4];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) x[i] = y[i];
  }
  [[gnu::always_inline]] static void dft3(C& a, C& b, C& c) {
    const V sine = splat<T, W>(static_cast<T>(0.86602540378443864676)), half = splat<T, W>(T(0.5));
    const C sum = add(b, c), turn = {(b.im - c.im) * sine, (c.re - b.re) * sine};
    const C mid = {a.re - sum.re * half, a.im - sum.im * half};
    a = add(a, sum);
    b = add(mid, turn);
    c = sub(mid, turn);
  }
  // 3 x 3; roots[j] is e^(-2 pi i j / 9).
  [[gnu::always_inline]] static void dft9(C* x, const T* roots) {
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) dft3(x[j], x[j + 3], x[j + 6]);
    x[4] = turned(x[4], roots[2], roots[3]);
    x[5] = turned(x[5], roots[4], roots[5]);
    x[7] = turned(x[7], roots[4], roots[5]);
    x[8] = turned(x[8], roots[8], roots[9]);
#pragma GCC unroll 3
    for (int k = 0; k < 3; ++k) dft3(x[3 * k], x[3 * k + 1], x[3 * k + 2]);
    const C x1 = x[1], x2 = x[2], x5 = x[5];
    x[1] = x[3], x[3] = x1;
    x[2] = x[6], x[6] = x2;
    x[5] = x[7], x[7] = x5;
  }
  // Odd R: pairs j and R - j share their products. roots[j] is e^(-2 pi i j / R).
  template <int R>
  [[gnu::always_inline]] static void dft_odd(C* x, int r, const T* roots) {
    constexpr int kMost = R ? R / 2 + 1 : kFftMaxPrime / 2 + 1;
    const int radix = R ? R : r, half = radix / 2;
    C sum[kMost], difference[kMost], first = x[0];
#pragma GCC unroll 6
    for (int j = 1; j <= half; ++j) {
      sum[j] = add(x[j], x[radix - j]);
      difference[j] = sub(x[j], x[radix - j]);
      first = add(first, sum[j]);
    }
#pragma GCC unroll 6
    for (int k = 1; k <= half; ++k) {
      C even = x[0], odd = {V{}, V{}};
      int at = 0;
#pragma GCC unroll 6
      for (int j = 1; j <= half; ++j) {
        at = at + k < radix ? at + k : at + k - radix;
        const T cosine = roots[2 * at], sine = roots[2 * at + 1];
        even = {even.re + sum[j].re * cosine, even.im + sum[j].im * cosine};
        odd = {odd.re - difference[j].im * sine, odd.im + difference[j].re * sine};
      }
      x[k] = add(even, odd), x[radix - k] = sub(even, odd);
    }
    x[0] = first;
  }
  // R = 0: of `r` points.
  template <int R>
  [[gnu::always_inline]] static void butterfly(C* x, int r, const T* roots) {
    if constexpr (R == 2)
      dft2(x[0], x[1]);
    else if constexpr (R == 3)
      dft3(x[0], x[1], x[2]);
    else if constexpr (R == 4)
      dft4(x[0], x[1], x[2], x[3]);
    else if constexpr (R == 8)
      dft8(x);
    else if constexpr (R == 9)
      dft9(x, roots);
    else if constexpr (R == 16)
      dft16(x);
    else
      dft_odd<R>(x, r, roots);
  }
};

}  // namespace rlx::cpu
