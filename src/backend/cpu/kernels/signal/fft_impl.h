// The Fourier transforms of fft.h on vectors of W bytes. Included only by the fft_<isa>.cc files.
//
// A buffer of lanes holds element k of L lines as two vectors, the real parts at k * 2L and the
// imaginary parts L behind them. All transforms are forward: an inverse one swaps real and
// imaginary parts on the way in and on the way out.
#pragma once

#include "rlx/backend/cpu/kernels/signal/fft_tables.h"
#include "rlx/backend/cpu/kernels/simd.h"

namespace rlx::cpu {

template <class T, int W>
struct LaneFft {
  static constexpr int L = kLanes<T, W>;
  using V = Vec<T, W>;
  struct C {
    V re, im;
  };

  [[gnu::always_inline]] static C get(const T* p) { return {load<T, W>(p), load<T, W>(p + L)}; }
  [[gnu::always_inline]] static void put(T* p, C x) {
    store<T, W>(p, x.re);
    store<T, W>(p + L, x.im);
  }
  [[gnu::always_inline]] static C add(C a, C b) { return {a.re + b.re, a.im + b.im}; }
  [[gnu::always_inline]] static C sub(C a, C b) { return {a.re - b.re, a.im - b.im}; }
  [[gnu::always_inline]] static C mul(C a, V re, V im) {
    return {a.re * re - a.im * im, a.re * im + a.im * re};
  }
  [[gnu::always_inline]] static C times_minus_i(C a) { return {a.im, -a.re}; }

  // ---- butterflies: the transform of R values in registers

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
    const V half = splat<T, W>(static_cast<T>(0.70710678118654752440));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) dft2(x[i], x[i + 4]);
    x[5] = {(x[5].re + x[5].im) * half, (x[5].im - x[5].re) * half};
    x[6] = times_minus_i(x[6]);
    x[7] = {(x[7].im - x[7].re) * half, -(x[7].re + x[7].im) * half};
    dft4(x[0], x[1], x[2], x[3]);
    dft4(x[4], x[5], x[6], x[7]);
    const C t1 = x[1], t2 = x[2], t3 = x[3];
    x[1] = x[4], x[2] = t1, x[4] = t2;
    x[3] = x[5], x[5] = x[6], x[6] = t3;
  }
  // Odd R: pairs j and R - j share their products. roots[j] is e^(-2 pi i j / R).
  template <int R>
  [[gnu::always_inline]] static void dft_odd(C* x, int r, const T* roots) {
    constexpr int kMost = R ? R / 2 + 1 : kFftMaxPrime / 2 + 1;
    const int radix = R ? R : r, half = radix / 2;
    C sum[kMost], difference[kMost], first = x[0];
#pragma GCC unroll 3
    for (int j = 1; j <= half; ++j) {
      sum[j] = add(x[j], x[radix - j]);
      difference[j] = sub(x[j], x[radix - j]);
      first = add(first, sum[j]);
    }
#pragma GCC unroll 3
    for (int k = 1; k <= half; ++k) {
      C even = x[0], odd = {V{}, V{}};
      int at = 0;
#pragma GCC unroll 3
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
  template <int R>
  [[gnu::always_inline]] static void butterfly(C* x, int r, const T* roots) {
    if constexpr (R == 2)
      dft2(x[0], x[1]);
    else if constexpr (R == 4)
      dft4(x[0], x[1], x[2], x[3]);
    else if constexpr (R == 8)
      dft8(x);
    else
      dft_odd<R>(x, r, roots);
  }

  // ---- stages

  // Stockham's form, decimated in frequency:
  // y[q + s (R p + k)] = w^(p k) sum_j x[q + s (p + m j)] e^(-2 pi i j k / R), w = e^(-2 pi i / m R).
  template <int R>
  static void stage(const FftStage<T>& f, const T* x, T* y) {
    const int64_t s = f.stride, m = f.groups, radix = R ? R : f.radix;
    for (int64_t p = 0; p < m; ++p) {
      const T* w = f.twiddles + 2 * p * (radix - 1);
      for (int64_t q = 0; q < s; ++q) {
        C a[R ? R : kFftMaxPrime];
        a[0] = get(x + (q + s * p) * 2 * L);
#pragma GCC unroll 8
        for (int64_t j = 1; j < radix; ++j) a[j] = get(x + (q + s * (p + m * j)) * 2 * L);
        butterfly<R>(a, static_cast<int>(radix), f.roots);
        T* to = y + (q + s * radix * p) * 2 * L;
        put(to, a[0]);
#pragma GCC unroll 8
        for (int64_t k = 1; k < radix; ++k) {
          const C z = p == 0
                          ? a[k]
                          : mul(a[k], splat<T, W>(w[2 * (k - 1)]), splat<T, W>(w[2 * (k - 1) + 1]));
          put(to + k * s * 2 * L, z);
        }
      }
    }
  }

  // Transforms the lines in `a`; returns the one of the two buffers that holds the result.
  static T* transform(const FftTables<T>& f, T* a, T* b) {
    if (f.padded) return bluestein(f, a, b);
    for (int64_t i = 0; i < f.stages; ++i) {
      const FftStage<T>& s = f.stage[i];
      switch (s.radix) {
        case 2:
          stage<2>(s, a, b);
          break;
        case 3:
          stage<3>(s, a, b);
          break;
        case 4:
          stage<4>(s, a, b);
          break;
        case 5:
          stage<5>(s, a, b);
          break;
        case 7:
          stage<7>(s, a, b);
          break;
        case 8:
          stage<8>(s, a, b);
          break;
        default:
          stage<0>(s, a, b);
      }
      T* t = a;
      a = b, b = t;
    }
    return a;
  }

  // x[k] *= factors[k] for k < n.
  static void scale_by(T* x, const T* factors, int64_t n) {
    for (int64_t k = 0; k < n; ++k)
      put(x + k * 2 * L,
          mul(get(x + k * 2 * L), splat<T, W>(factors[2 * k]), splat<T, W>(factors[2 * k + 1])));
  }

  // The transform as a circular convolution of a friendlier length.
  static T* bluestein(const FftTables<T>& f, T* a, T* b) {
    scale_by(a, f.chirp, f.n);
    for (int64_t k = f.n; k < f.padded; ++k) put(a + k * 2 * L, {V{}, V{}});
    T* spectrum = transform(*f.inner, a, b);
    for (int64_t k = 0; k < f.padded; ++k) {  // times the kernel, swapped: the way back
      const C z = mul(get(spectrum + k * 2 * L), splat<T, W>(f.kernel[2 * k]),
                      splat<T, W>(f.kernel[2 * k + 1]));
      put(spectrum + k * 2 * L, {z.im, z.re});
    }
    T* y = transform(*f.inner, spectrum, spectrum == a ? b : a);
    for (int64_t k = 0; k < f.n; ++k) {
      const C z = get(y + k * 2 * L);
      put(y + k * 2 * L, {z.im, z.re});
    }
    scale_by(y, f.chirp, f.n);
    return y;
  }

  // ---- between memory and lanes

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

  // Rows of `columns` numbers, L of them a `step` apart, to vectors: column c goes to to(c).
  template <class To>
  [[gnu::always_inline]] static void rows_to_lanes(const T* from, int64_t step, int64_t columns,
                                                   To to) {
    int64_t c = 0;
    for (; c + L <= columns; c += L) {
      V v[L];
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) v[i] = load<T, W>(from + i * step + c);
      transpose<T, W>(v);
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) store<T, W>(to(c + i), v[i]);
    }
    for (; c < columns; ++c)
      for (int i = 0; i < L; ++i) to(c)[i] = from[i * step + c];
  }
  template <class From>
  [[gnu::always_inline]] static void lanes_to_rows(From from, int64_t columns, V scale, T* to,
                                                   int64_t step) {
    int64_t c = 0;
    for (; c + L <= columns; c += L) {
      V v[L];
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) v[i] = load<T, W>(from(c + i)) * scale;
      transpose<T, W>(v);
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) store<T, W>(to + i * step + c, v[i]);
    }
    for (; c < columns; ++c)
      for (int i = 0; i < L; ++i) to[i * step + c] = from(c)[i] * scale[0];
  }

  // How L lines lie in memory.
  enum class Form { rows, block_rows, columns, block_columns, scattered };
  template <class P>
  static Form form(const FftLines<P>& x, int64_t first, int64_t count) {
    if (count < L) return Form::scattered;
    if (x.inner == 1) {
      if (x.step == 2 && x.im == 1) return Form::rows;
      return x.step == 1 ? Form::block_rows : Form::scattered;
    }
    if (first % x.inner + L > x.inner) return Form::scattered;
    if (x.inner_step == 2 && x.im == 1) return Form::columns;
    return x.inner_step == 1 ? Form::block_columns : Form::scattered;
  }

  static void gather(const FftLines<const T>& x, int64_t n, int64_t first, int64_t count, bool swap,
                     T* buffer) {
    const T* base = x.base + x.offset(first);
    const int64_t re = swap ? L : 0, im = L - re;
    switch (form(x, first, count)) {
      case Form::rows:
        rows_to_lanes(base, x.outer_step, 2 * n,
                      [=](int64_t c) { return buffer + (c >> 1) * 2 * L + ((c & 1) ? im : re); });
        break;
      case Form::block_rows:
        rows_to_lanes(base, x.outer_step, n, [=](int64_t c) { return buffer + c * 2 * L + re; });
        rows_to_lanes(base + x.im, x.outer_step, n,
                      [=](int64_t c) { return buffer + c * 2 * L + im; });
        break;
      case Form::columns:
        for (int64_t k = 0; k < n; ++k) {
          const V a = load<T, W>(base + k * x.step), b = load<T, W>(base + k * x.step + L);
          store<T, W>(buffer + k * 2 * L + re, every_second<0>(a, b));
          store<T, W>(buffer + k * 2 * L + im, every_second<1>(a, b));
        }
        break;
      case Form::block_columns:
        for (int64_t k = 0; k < n; ++k) {
          store<T, W>(buffer + k * 2 * L + re, load<T, W>(base + k * x.step));
          store<T, W>(buffer + k * 2 * L + im, load<T, W>(base + k * x.step + x.im));
        }
        break;
      case Form::scattered:
        for (int64_t i = 0; i < L; ++i) {
          const T* line = x.base + x.offset(first + (i < count ? i : 0));
          for (int64_t k = 0; k < n; ++k) {
            buffer[k * 2 * L + re + i] = line[k * x.step];
            buffer[k * 2 * L + im + i] = line[k * x.step + x.im];
          }
        }
    }
  }

  static void scatter(const T* buffer, int64_t n, int64_t first, int64_t count, bool swap, T factor,
                      const FftLines<T>& y) {
    T* base = y.base + y.offset(first);
    const int64_t re = swap ? L : 0, im = L - re;
    const V scale = splat<T, W>(factor);
    switch (form(y, first, count)) {
      case Form::rows:
        lanes_to_rows([=](int64_t c) { return buffer + (c >> 1) * 2 * L + ((c & 1) ? im : re); },
                      2 * n, scale, base, y.outer_step);
        break;
      case Form::block_rows:
        lanes_to_rows([=](int64_t c) { return buffer + c * 2 * L + re; }, n, scale, base,
                      y.outer_step);
        lanes_to_rows([=](int64_t c) { return buffer + c * 2 * L + im; }, n, scale, base + y.im,
                      y.outer_step);
        break;
      case Form::columns:
        for (int64_t k = 0; k < n; ++k) {
          const V a = load<T, W>(buffer + k * 2 * L + re) * scale,
                  b = load<T, W>(buffer + k * 2 * L + im) * scale;
          store<T, W>(base + k * y.step, interleave<T, W, 0>(a, b));
          store<T, W>(base + k * y.step + L, interleave<T, W, L / 2>(a, b));
        }
        break;
      case Form::block_columns:
        for (int64_t k = 0; k < n; ++k) {
          store<T, W>(base + k * y.step, load<T, W>(buffer + k * 2 * L + re) * scale);
          store<T, W>(base + k * y.step + y.im, load<T, W>(buffer + k * 2 * L + im) * scale);
        }
        break;
      case Form::scattered:
        for (int64_t i = 0; i < count; ++i) {
          T* line = y.base + y.offset(first + i);
          for (int64_t k = 0; k < n; ++k) {
            line[k * y.step] = buffer[k * 2 * L + re + i] * factor;
            line[k * y.step + y.im] = buffer[k * 2 * L + im + i] * factor;
          }
        }
    }
  }

  // ---- whole transforms

  // L lines at once.
  static void lines(const FftProgram<T>& f, const FftLines<const T>& x, const FftLines<T>& y,
                    int64_t first, T* scratch) {
    const int64_t count = first + L <= f.lines ? L : f.lines - first;
    T *a = scratch, *b = scratch + f.tables.points * 2 * L;
    gather(x, f.tables.n, first, count, f.inverse, a);
    scatter(transform(f.tables, a, b), f.tables.n, first, count, f.inverse, f.scale, y);
  }

  // One long line, as a matrix of rows x columns: transforms of its columns, twiddles, transforms
  // of its rows, read out by columns. x and y describe one line (offset 0).
  static void split(const FftSplit<T>& f, const FftLines<const T>& x, const FftLines<T>& y,
                    bool swap, T factor, T* scratch) {
    const int64_t rows = f.column.n, columns = f.row.n;
    T *matrix = scratch, *a = matrix + 2 * rows * columns, *b = a + f.points * 2 * L;
    const FftLines<const T> in{x.base, columns, 0, x.step, x.step * columns, x.im};
    const FftLines<T> middle{matrix, columns, 0, 2, 2 * columns, 1};
    for (int64_t first = 0; first < columns; first += L) {
      const int64_t count = first + L <= columns ? L : columns - first;
      gather(in, rows, first, count, swap, a);
      T* t = transform(f.column, a, b);
      for (int64_t k = 1; k < rows; ++k) {
        const T* w = f.twiddles + k * f.pitch + first;
        put(t + k * 2 * L, mul(get(t + k * 2 * L), load<T, W>(w), load<T, W>(w + rows * f.pitch)));
      }
      scatter(t, rows, first, count, false, 1, middle);
    }
    const FftLines<const T> again{matrix, 1, 2 * columns, 0, 2, 1};
    const FftLines<T> out{y.base, rows, 0, y.step, y.step * rows, y.im};
    for (int64_t first = 0; first < rows; first += L) {
      const int64_t count = first + L <= rows ? L : rows - first;
      gather(again, columns, first, count, false, a);
      scatter(transform(f.row, a, b), columns, first, count, swap, factor, out);
    }
  }

  // One long line of a length that does not split: Bluestein over `split`.
  static void convolved(const FftProgram<T>& f, const FftLines<const T>& x, const FftLines<T>& y,
                        T* scratch) {
    const FftTables<T>& t = f.tables;
    T *a = scratch, *b = a + 2 * t.padded, *rest = b + 2 * t.padded;
    const int64_t re = f.inverse ? x.im : 0, im = x.im - re;
    for (int64_t k = 0; k < t.n; ++k) {
      const T u = x.base[k * x.step + re], v = x.base[k * x.step + im];
      a[2 * k] = u * t.chirp[2 * k] - v * t.chirp[2 * k + 1];
      a[2 * k + 1] = u * t.chirp[2 * k + 1] + v * t.chirp[2 * k];
    }
    for (int64_t k = 2 * t.n; k < 2 * t.padded; ++k) a[k] = 0;
    split(f.split, {a, 1, 0, 0, 2, 1}, {b, 1, 0, 0, 2, 1}, false, 1, rest);
    for (int64_t k = 0; k < t.padded; ++k) {
      const T u = b[2 * k], v = b[2 * k + 1], c = t.kernel[2 * k], s = t.kernel[2 * k + 1];
      b[2 * k] = u * c - v * s, b[2 * k + 1] = u * s + v * c;
    }
    split(f.split, {b, 1, 0, 0, 2, 1}, {a, 1, 0, 0, 2, 1}, true, f.scale, rest);
    const int64_t out_re = f.inverse ? y.im : 0, out_im = y.im - out_re;
    for (int64_t k = 0; k < t.n; ++k) {
      const T u = a[2 * k], v = a[2 * k + 1], c = t.chirp[2 * k], s = t.chirp[2 * k + 1];
      y.base[k * y.step + out_re] = u * c - v * s;
      y.base[k * y.step + out_im] = u * s + v * c;
    }
  }
};

template <class T, int W>
void fft_run(const FftProgram<T>& f, const FftLines<const T>& x, const FftLines<T>& y,
             int64_t begin, int64_t end, T* scratch) {
  using Lanes = LaneFft<T, W>;
  for (int64_t block = begin; block < end; ++block) {
    if (!f.by_line) {
      Lanes::lines(f, x, y, block * Lanes::L, scratch);
      continue;
    }
    FftLines<const T> in = x;
    FftLines<T> out = y;
    in.base += x.offset(block), out.base += y.offset(block);
    if (f.tables.padded)
      Lanes::convolved(f, in, out, scratch);
    else
      Lanes::split(f.split, in, out, f.inverse, f.scale, scratch);
  }
}

template void fft_run<float, kVectorBytes>(const FftProgram<float>&, const FftLines<const float>&,
                                           const FftLines<float>&, int64_t, int64_t, float*);
template void fft_run<double, kVectorBytes>(const FftProgram<double>&,
                                            const FftLines<const double>&, const FftLines<double>&,
                                            int64_t, int64_t, double*);

}  // namespace rlx::cpu
