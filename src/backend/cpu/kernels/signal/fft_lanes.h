// Transforms of L lines side by side, one per vector lane. Included only by fft_impl.h.
//
// A buffer of lanes holds element k of the L lines as two vectors, the real parts at k * 2L and the
// imaginary parts L behind them. All transforms are forward: an inverse one swaps real and
// imaginary parts on the way in and on the way out. Where elements come from and go to is a source's
// and a sink's matter, so the first stage reads memory and the last one writes it.
#pragma once

#include "rlx/backend/cpu/kernels/signal/fft_butterfly.h"

namespace rlx::cpu {

template <class T, int W>
struct FftLanes : FftButterfly<T, W> {
  using B = FftButterfly<T, W>;
  using B::L;
  using typename B::C;
  using typename B::V;

  [[gnu::always_inline]] static C get(const T* p) { return {load<T, W>(p), load<T, W>(p + L)}; }
  [[gnu::always_inline]] static void put(T* p, C x) {
    store<T, W>(p, x.re);
    store<T, W>(p + L, x.im);
  }
  template <int O>
  [[gnu::always_inline]] static V every_second(V a, V b) {
    if constexpr (L == 2) {
      return __builtin_shufflevector(a, b, O, O + 2);
    } else if constexpr (L == 4) {
      return __builtin_shufflevector(a, b, O, O + 2, O + 4, O + 6);
    } else if constexpr (L == 8) {
      return __builtin_shufflevector(a, b, O, O + 2, O + 4, O + 6, O + 8, O + 10, O + 12, O + 14);
    } else {
      return __builtin_shufflevector(a, b, O, O + 2, O + 4, O + 6, O + 8, O + 10, O + 12, O + 14,
                                     O + 16, O + 18, O + 20, O + 22, O + 24, O + 26, O + 28,
                                     O + 30);
    }
  }
  [[gnu::always_inline]] static V reversed(V a) {
    if constexpr (L == 2) {
      return __builtin_shufflevector(a, a, 1, 0);
    } else if constexpr (L == 4) {
      return __builtin_shufflevector(a, a, 3, 2, 1, 0);
    } else if constexpr (L == 8) {
      return __builtin_shufflevector(a, a, 7, 6, 5, 4, 3, 2, 1, 0);
    } else {
      return __builtin_shufflevector(a, a, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    }
  }

  // ---- sources

  struct Lanes {
    const T* p;
    [[gnu::always_inline]] C get(int64_t k) const { return FftLanes::get(p + k * 2 * L); }
  };
  struct PermutedLanes {
    const T* p;
    const int32_t* order;
    [[gnu::always_inline]] C get(int64_t k) const {
      return FftLanes::get(p + int64_t{order[k]} * 2 * L);
    }
  };
  // L complex numbers beside each other in memory, the next element `step` numbers on.
  template <bool Swap>
  struct Pairs {
    const T* p;
    int64_t step;
    [[gnu::always_inline]] C get(int64_t k) const {
      const V a = load<T, W>(p + k * step), b = load<T, W>(p + k * step + L);
      const V even = every_second<0>(a, b), odd = every_second<1>(a, b);
      return Swap ? C{odd, even} : C{even, odd};
    }
    [[gnu::always_inline]] Pairs moved(int64_t by) const { return {p + by, step}; }
  };
  struct Blocks {
    const T *re, *im;
    int64_t step;
    [[gnu::always_inline]] C get(int64_t k) const {
      return {load<T, W>(re + k * step), load<T, W>(im + k * step)};
    }
    [[gnu::always_inline]] Blocks moved(int64_t by) const { return {re + by, im + by, step}; }
  };
  // Calls f with the source of element vectors that begin at x.base + k * step.
  template <class P, class F>
  [[gnu::always_inline]] static void with_source(const FftLines<P>& x, int64_t step, bool swap,
                                                 F f) {
    if (x.im != 1)
      f(Blocks{x.base + (swap ? x.im : 0), x.base + (swap ? 0 : x.im), step});
    else if (swap)
      f(Pairs<true>{x.base, step});
    else
      f(Pairs<false>{x.base, step});
  }

  // ---- sinks

  struct ToLanes {
    T* p;
    [[gnu::always_inline]] void put(int64_t k, C z) const { FftLanes::put(p + k * 2 * L, z); }
  };
  template <bool Swap>
  struct ToPairs {
    T* p;
    int64_t step;
    V scale;
    [[gnu::always_inline]] void put(int64_t k, C z) const {
      const V a = (Swap ? z.im : z.re) * scale, b = (Swap ? z.re : z.im) * scale;
      store<T, W>(p + k * step, interleave<T, W, 0>(a, b));
      store<T, W>(p + k * step + L, interleave<T, W, L / 2>(a, b));
    }
    [[gnu::always_inline]] ToPairs moved(int64_t by) const { return {p + by, step, scale}; }
  };
  struct ToBlocks {
    T *re, *im;
    int64_t step;
    V scale;
    [[gnu::always_inline]] void put(int64_t k, C z) const {
      store<T, W>(re + k * step, z.re * scale);
      store<T, W>(im + k * step, z.im * scale);
    }
    [[gnu::always_inline]] ToBlocks moved(int64_t by) const {
      return {re + by, im + by, step, scale};
    }
  };
  // Times a convolution's factors and swapped: on to the way back. Leaves element 0 as it was in `first`.
  struct ToProducts {
    T* p;
    const T* factors;
    C* first;
    [[gnu::always_inline]] void put(int64_t k, C z) const {
      if (k == 0) *first = z;
      const C y = B::turned(z, factors[2 * k], factors[2 * k + 1]);
      FftLanes::put(p + k * 2 * L, {y.im, y.re});
    }
  };
  struct ToSwappedOrder {
    T* p;
    const int32_t* order;
    [[gnu::always_inline]] void put(int64_t k, C z) const {
      FftLanes::put(p + int64_t{order[k]} * 2 * L, {z.im, z.re});
    }
  };
  template <class F>
  [[gnu::always_inline]] static void with_sink(const FftLines<T>& y, int64_t step, bool swap,
                                               T factor, F f) {
    const V scale = splat<T, W>(factor);
    if (y.im != 1)
      f(ToBlocks{y.base + (swap ? y.im : 0), y.base + (swap ? 0 : y.im), step, scale});
    else if (swap)
      f(ToPairs<true>{y.base, step, scale});
    else
      f(ToPairs<false>{y.base, step, scale});
  }

  // ---- stages

  // Stockham's form, decimated in frequency:
  // y[q + s (R p + k)] = w^(p k) sum_j x[q + s (p + m j)] e^(-2 pi i j k / R), w = e^(-2 pi i / m R).
  template <int R, bool Turned, class Source, class Sink>
  [[gnu::always_inline]] static void group(const FftStage<T>& f, int64_t p, Source x, Sink y) {
    const int64_t s = f.stride, m = f.groups, radix = R ? R : f.radix;
    const T* w = f.twiddles + 2 * p * (radix - 1);
    for (int64_t q = 0; q < s; ++q) {
      C a[R ? R : kFftMaxPrime];
#pragma GCC unroll 16
      for (int64_t j = 0; j < radix; ++j) a[j] = x.get(q + s * (p + m * j));
      B::template butterfly<R>(a, static_cast<int>(radix), f.roots);
      y.put(q + s * radix * p, a[0]);
#pragma GCC unroll 16
      for (int64_t k = 1; k < radix; ++k)
        y.put(q + s * (radix * p + k),
              Turned ? B::turned(a[k], w[2 * (k - 1)], w[2 * (k - 1) + 1]) : a[k]);
    }
  }
  template <int R, class Source, class Sink>
  [[gnu::noinline]] static void stage(const FftStage<T>& f, Source x, Sink y) {
    group<R, false>(f, 0, x, y);
    for (int64_t p = 1; p < f.groups; ++p) group<R, true>(f, p, x, y);
  }
  static void any_stage(const FftStage<T>& f, Lanes x, ToLanes y) {
    switch (f.radix) {
      case 2:
        return stage<2>(f, x, y);
      case 3:
        return stage<3>(f, x, y);
      case 4:
        return stage<4>(f, x, y);
      case 5:
        return stage<5>(f, x, y);
      case 7:
        return stage<7>(f, x, y);
      case 8:
        return stage<8>(f, x, y);
      case 9:
        return stage<9>(f, x, y);
      case 11:
        return stage<11>(f, x, y);
      case 13:
        return stage<13>(f, x, y);
      case 16:
        if constexpr (W == 64) return stage<16>(f, x, y);
        return;
      default:
        return stage<0>(f, x, y);
    }
  }
  // The radices whose stages read and write memory themselves; FftPlan puts them at the ends.
  template <class Source, class Sink>
  static bool end_stage(const FftStage<T>& f, Source x, Sink y) {
    switch (f.radix) {
      case 4:
        return stage<4>(f, x, y), true;
      case 8:
        return stage<8>(f, x, y), true;
      case 16:
        if constexpr (W == 64) return stage<16>(f, x, y), true;
        return false;
      default:
        return false;
    }
  }

  template <class Source, class Sink>
  static void copy(int64_t n, Source x, Sink y) {
    for (int64_t k = 0; k < n; ++k) y.put(k, x.get(k));
  }

  [[gnu::always_inline]] static bool is_end_radix(const FftStage<T>& f) {
    return f.radix == 4 || f.radix == 8 || f.radix == 16;
  }

  // Transforms from x to y by way of the buffers b and a, of which only a may be what x reads. Where
  // y writes one of the two, it is last_free(f, a, b).
  template <class Source, class Sink>
  static void transform(const FftTables<T>& f, Source x, Sink y, T* a, T* b) {
    if (f.convolution.padded)
      convolve(f, x, y, a, b);
    else
      by_stages(f, x, y, a, b);
  }
  static T* last_free(const FftTables<T>& f, T* a, T* b) {
    if (!f.convolution.padded) return f.stages % 2 ? b : a;
    return convolution_buffers(f, a, b).result;
  }

  template <class Source, class Sink>
  static void by_stages(const FftTables<T>& f, Source x, Sink y, T* a, T* b) {
    if (f.stages == 0) return copy(f.n, x, y);
    if constexpr (__is_same(Source, Lanes)) {
      stages_from(f, 0, x.p, y, a, b);
    } else {
      if (f.stages > 1 && end_stage(f.stage[0], x, ToLanes{b}))
        return stages_from(f, 1, b, y, b, a);
      copy(f.n, x, ToLanes{a});
      stages_from(f, 0, a, y, a, b);
    }
  }
  // The stages from `first` on, of x; b is the next to be written.
  template <class Sink>
  static void stages_from(const FftTables<T>& f, int64_t first, const T* x, Sink y, T* a, T* b) {
    for (int64_t i = first; i + 1 < f.stages; ++i) {
      any_stage(f.stage[i], Lanes{x}, ToLanes{b});
      x = b;
      T* t = a;
      a = b, b = t;
    }
    const FftStage<T>& last = f.stage[f.stages - 1];
    if constexpr (__is_same(Sink, ToLanes)) {
      any_stage(last, Lanes{x}, y);
    } else {
      if (end_stage(last, Lanes{x}, y)) return;
      any_stage(last, Lanes{x}, ToLanes{b});
      copy(f.n, Lanes{b}, y);
    }
  }

  // Which buffers hold what in a convolution that has a and b.
  struct ConvolutionBuffers {
    T *operand, *spare, *product, *other, *result;
  };
  static ConvolutionBuffers convolution_buffers(const FftTables<T>& f, T* a, T* b) {
    const FftTables<T>& inner = *f.inner;
    ConvolutionBuffers c{a, b, nullptr, nullptr, nullptr};
    if (f.convolution.gather && !is_end_radix(inner.stage[0])) c.operand = b, c.spare = a;
    c.product = last_free(inner, c.operand, c.spare);
    c.other = c.product == a ? b : a;
    c.result = last_free(inner, c.product, c.other);
    if (f.convolution.gather && !is_end_radix(inner.stage[inner.stages - 1]))
      c.result = c.result == a ? b : a;
    return c;
  }

  template <class Source, class Sink>
  static void convolve(const FftTables<T>& f, Source x, Sink y, T* a, T* b) {
    if (f.convolution.gather)
      rader(f, x, y, a, b);
    else
      bluestein(f, x, y, a, b);
  }

  template <class Source, class Sink>
  static void rader(const FftTables<T>& f, Source x, Sink y, T* a, T* b) {
    const FftConvolution<T>& c = f.convolution;
    const FftTables<T>& inner = *f.inner;
    const ConvolutionBuffers at = convolution_buffers(f, a, b);
    const T* from = a;
    if constexpr (__is_same(Source, Lanes))
      from = x.p;
    else
      copy(f.n, x, ToLanes{a});
    const PermutedLanes operand{from, c.gather};
    const C x0 = get(from);
    C sum{};
    const ToProducts product{at.product, c.factors, &sum};
    if (is_end_radix(inner.stage[0])) {
      by_stages(inner, operand, product, a, b);
    } else {
      copy(inner.n, operand, ToLanes{at.operand});
      by_stages(inner, Lanes{at.operand}, product, at.operand, at.spare);
    }
    // x0 in every result, swapped like the product.
    put(at.product, B::add(get(at.product), {x0.im, x0.re}));
    by_stages(inner, Lanes{at.product}, ToSwappedOrder{at.result, c.scatter}, at.product, at.other);
    put(at.result, B::add(x0, sum));
    finish(f.n, at.result, y);
  }
  template <class Sink>
  static void finish(int64_t n, const T* result, Sink y) {
    if constexpr (__is_same(Sink, ToLanes))
      if (y.p == result) return;
    copy(n, Lanes{result}, y);
  }

  template <class Source, class Sink>
  static void bluestein(const FftTables<T>& f, Source x, Sink y, T* a, T* b) {
    const FftConvolution<T>& c = f.convolution;
    const FftTables<T>& inner = *f.inner;
    const ConvolutionBuffers at = convolution_buffers(f, a, b);
    for (int64_t k = 0; k < f.n; ++k)
      put(a + k * 2 * L, B::turned(x.get(k), c.chirp[2 * k], c.chirp[2 * k + 1]));
    for (int64_t k = f.n; k < c.padded; ++k) put(a + k * 2 * L, {V{}, V{}});
    C sum;
    by_stages(inner, Lanes{a}, ToProducts{at.product, c.factors, &sum}, a, b);
    by_stages(inner, Lanes{at.product}, ToLanes{at.result}, at.product, at.other);
    for (int64_t k = 0; k < f.n; ++k) {
      const C z = get(at.result + k * 2 * L);
      y.put(k, B::turned({z.im, z.re}, c.chirp[2 * k], c.chirp[2 * k + 1]));
    }
  }

  // ---- real lines: n complex numbers z[k] = x[2 k] + i x[2 k + 1] and bins 0 .. n; w holds the real
  // parts of e^(-i pi k / n), the imaginary ones `pitch` behind them

  // X[k] of Z[k] and Z[n - k], of which only X[k] is asked for.
  [[gnu::always_inline]] static C bin(C a, C b, V re, V im) {
    const V half = splat<T, W>(T(0.5));
    const C even = {(a.re + b.re) * half, (a.im - b.im) * half},
            odd = {(a.im + b.im) * half, (b.re - a.re) * half};
    return B::add(even, B::mul(odd, re, im));
  }
  // Z[k] of X[k] and X[n - k].
  [[gnu::always_inline]] static C packed(C a, C b, V re, V im) {
    const C even = {a.re + b.re, a.im - b.im};
    const C odd = B::mul({a.re - b.re, a.im + b.im}, re, -im);
    return {even.re - odd.im, even.im + odd.re};
  }
  static void to_bins(const T* z, T* x, int64_t n, const T* w, int64_t pitch) {
    const C first = get(z);
    put(x, {first.re + first.im, V{}});
    put(x + n * 2 * L, {first.re - first.im, V{}});
    for (int64_t k = 1; k < n; ++k)
      put(x + k * 2 * L, bin(get(z + k * 2 * L), get(z + (n - k) * 2 * L), splat<T, W>(w[k]),
                             splat<T, W>(w[pitch + k])));
  }
  // Swapped, for the way back.
  static void from_bins(const T* x, T* z, int64_t n, const T* w, int64_t pitch) {
    const V first = load<T, W>(x), last = load<T, W>(x + n * 2 * L);
    put(z, {first - last, first + last});
    for (int64_t k = 1; k < n; ++k) {
      const C y = packed(get(x + k * 2 * L), get(x + (n - k) * 2 * L), splat<T, W>(w[k]),
                         splat<T, W>(w[pitch + k]));
      put(z + k * 2 * L, {y.im, y.re});
    }
  }
};

}  // namespace rlx::cpu
