// Weighted sums along one axis. Included only by the resample_<isa>.cc files.
#pragma once

#include "rlx/backend/cpu/kernels/compensated.h"
#include "rlx/backend/cpu/kernels/image/resample_tile.h"
#include "rlx/backend/cpu/kernels/simd.h"

namespace rlx::cpu {

template <class X, class Y, int W>
struct Resample {
  static constexpr int L = kLanes<float, W>;
  static constexpr int64_t kRun = 16;  // terms that are added plainly

  // sum = the sum over t of weights[t] * value(v, t), in runs.
  template <int V, int B, class F>
  [[gnu::always_inline]] static void sum_taps(Vec<float, B> (&sum)[V], const float* weights,
                                              int64_t taps, F value) {
    add_taps<V, B>(sum, weights, 0, taps < kRun ? taps : kRun, value);
    if (taps <= kRun) return;
    Vec<float, B> lost[V] = {};
    for (int64_t t = kRun; t < taps; t += kRun) {
      Vec<float, B> run[V];
      add_taps<V, B>(run, weights, t, taps < t + kRun ? taps : t + kRun, value);
      for (int v = 0; v < V; ++v) add_run(sum[v], lost[v], run[v]);
    }
    for (int v = 0; v < V; ++v) sum[v] += lost[v];
  }
  template <int V, int B, class F>
  [[gnu::always_inline]] static void add_taps(Vec<float, B> (&sum)[V], const float* weights,
                                              int64_t begin, int64_t end, F value) {
    for (int v = 0; v < V; ++v) sum[v] = Vec<float, B>{};  // no sum is -0
    for (int64_t t = begin; t < end; ++t) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[v] += weights[t] * value(v, t);
    }
  }

  // ---- lines: a vector is some elements of one row

  static void lines(const ResampleAxis& a, const void* x, void* y, int64_t begin, int64_t end) {
    const X* const from = static_cast<const X*>(x);
    Y* to = static_cast<Y*>(y);
    for (int64_t row = begin; row < end; ++row, to += a.rest)
      line(a, from + row / a.to * a.from * a.rest, row % a.to * a.taps, to);
  }

  static void line(const ResampleAxis& a, const X* x, int64_t tap, Y* y) {
    int64_t i = 0;
    for (; i + 4 * L <= a.rest; i += 4 * L) part<4, W>(a, x + i, tap, y + i);
    for (; i + L <= a.rest; i += L) part<1, W>(a, x + i, tap, y + i);
    if constexpr (W > 32)
      for (; i + 8 <= a.rest; i += 8) part<1, 32>(a, x + i, tap, y + i);
    if constexpr (W > 16)
      for (; i + 4 <= a.rest; i += 4) part<1, 16>(a, x + i, tap, y + i);
    for (; i < a.rest; ++i) part<1, 4>(a, x + i, tap, y + i);
  }

  template <int V, int B>
  [[gnu::always_inline]] static void part(const ResampleAxis& a, const X* x, int64_t tap, Y* y) {
    constexpr int lanes = kLanes<float, B>;
    const int64_t* const at = a.indices + tap;
    Vec<float, B> sum[V];
    sum_taps<V, B>(sum, a.weights + tap, a.taps,
                   [&](int v, int64_t t) __attribute__((always_inline)) {
                     return load_as<X, B>(x + at[t] * a.rest + v * lanes);
                   });
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) store_as<Y, B>(y + v * lanes, sum[v]);
  }

  // ---- columns: a vector is one element of L rows

  static void columns(const ResampleAxis& a, const void* x, void* y, int64_t rows, int64_t begin,
                      int64_t end, int64_t low, int64_t high, float* scratch) {
    const int64_t row_in = a.from * a.rest, row_out = a.to * a.rest;
    for (int64_t row = 0; row < rows; row += L) {
      const int64_t count = rows - row < L ? rows - row : L;
      turn(static_cast<const X*>(x) + row * row_in + low * a.rest, row_in, count,
           (high - low) * a.rest, scratch);
      sum_columns(a, scratch - low * a.rest * L, begin * a.rest, end * a.rest, count,
                  static_cast<Y*>(y) + row * row_out, row_out);
    }
  }

  // to[i] = the elements i of the rows, for i below n.
  static void turn(const X* x, int64_t row, int64_t rows, int64_t n, float* to) {
    for (int64_t i = 0; i < n; i += L) {
      // The last ones together with some before them, where there are so many.
      const int64_t first = i + L <= n ? i : n < L ? 0 : n - L;
      Vec<float, W> v[L];
      if (rows == L && n >= L) {
#pragma GCC unroll 16
        for (int r = 0; r < L; ++r) v[r] = load_as<X, W>(x + r * row + first);
      } else {
        for (int r = 0; r < L; ++r)
          v[r] = r < rows ? load_first<X, W>(x + r * row + first, n) : Vec<float, W>{};
      }
      transpose<float, W>(v);
      if (n >= L) {
#pragma GCC unroll 16
        for (int r = 0; r < L; ++r) store<float, W>(to + (first + r) * L, v[r]);
      } else {
        for (int64_t r = 0; r < n; ++r) store<float, W>(to + r * L, v[r]);
      }
    }
  }

  // Results [begin, end) of L rows, of which `rows` are written.
  static void sum_columns(const ResampleAxis& a, const float* x, int64_t begin, int64_t end,
                          int64_t rows, Y* y, int64_t row) {
    const int64_t rest = a.rest;
    for (int64_t i = begin; i < end; i += L) {
      const int64_t first = i + L <= end ? i : end - begin < L ? begin : end - L;
      const int64_t count = end - first < L ? end - first : L;
      Vec<float, W> v[L] = {};
      int64_t o = first / rest, q = first % rest;
      for (int64_t r = 0; r < count; ++r) {
        const int64_t* const at = a.indices + o * a.taps;
        Vec<float, W> sum[1];
        sum_taps<1, W>(sum, a.weights + o * a.taps, a.taps,
                       [&](int, int64_t t) __attribute__((always_inline)) {
                         return load<float, W>(x + (at[t] * rest + q) * L);
                       });
        v[r] = sum[0];
        if (++q == rest) ++o, q = 0;
      }
      transpose<float, W>(v);
      if (rows == L && count == L) {
#pragma GCC unroll 16
        for (int r = 0; r < L; ++r) store_as<Y, W>(y + r * row + first, v[r]);
      } else {
        for (int64_t r = 0; r < rows; ++r) store_first<Y, W>(y + r * row + first, v[r], count);
      }
    }
  }
};

template <class X, class Y, int W>
ResampleFns resample_fns() {
  using Impl = Resample<X, Y, W>;
  return {&Impl::lines, &Impl::columns, Impl::L};
}

template ResampleFns resample_fns<float, float, kVectorBytes>();
template ResampleFns resample_fns<f16_t, float, kVectorBytes>();
template ResampleFns resample_fns<float, f16_t, kVectorBytes>();
template ResampleFns resample_fns<f16_t, f16_t, kVectorBytes>();
template ResampleFns resample_fns<bf16_t, float, kVectorBytes>();
template ResampleFns resample_fns<float, bf16_t, kVectorBytes>();
template ResampleFns resample_fns<bf16_t, bf16_t, kVectorBytes>();

}  // namespace rlx::cpu
