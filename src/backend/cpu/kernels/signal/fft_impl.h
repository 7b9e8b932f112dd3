// The Fourier transforms of fft.h on vectors of W bytes. Included only by the fft_<isa>.cc files.
#pragma once

#include "rlx/backend/cpu/kernels/signal/fft_lanes.h"

namespace rlx::cpu {

template <class T, int W>
struct FftRun : FftLanes<T, W> {
  using Base = FftLanes<T, W>;
  using Base::get;
  using Base::L;
  using Base::last_free;
  using Base::put;
  using Base::transform;
  using Base::with_sink;
  using Base::with_source;
  using typename Base::C;
  using typename Base::Lanes;
  using typename Base::ToLanes;
  using typename Base::V;

  // ---- between memory and lanes

  // Rows of `columns` numbers, L of them a `step` apart, to vectors: column c goes to to(c). Fetches the next L rows and
  // as many of `results`, which will be written.
  template <class To>
  [[gnu::always_inline]] static void rows_to_lanes(const T* from, int64_t step, int64_t columns,
                                                   const T* results, To to) {
    int64_t c = 0;
    for (; c + L <= columns; c += L) {
      V v[L];
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) {
        v[i] = load<T, W>(from + i * step + c);
        __builtin_prefetch(from + (L + i) * step + c, 0, 2);
        __builtin_prefetch(results + i * step + c, 0, 2);
      }
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

  static bool is_columns(Form f) { return f == Form::columns || f == Form::block_columns; }

  static void gather(const FftLines<const T>& x, int64_t n, int64_t first, int64_t count, bool swap,
                     T* buffer, const T* results) {
    const T* base = x.base + x.offset(first);
    const int64_t re = swap ? L : 0, im = L - re;
    switch (form(x, first, count)) {
      case Form::rows:
        rows_to_lanes(base, x.outer_step, 2 * n, results,
                      [=](int64_t c) { return buffer + (c >> 1) * 2 * L + ((c & 1) ? im : re); });
        break;
      case Form::block_rows:
        rows_to_lanes(base, x.outer_step, n, results,
                      [=](int64_t c) { return buffer + c * 2 * L + re; });
        rows_to_lanes(base + x.im, x.outer_step, n, results + x.im,
                      [=](int64_t c) { return buffer + c * 2 * L + im; });
        break;
      case Form::columns:
        for (int64_t k = 0; k < n; ++k) {
          const V a = load<T, W>(base + k * x.step), b = load<T, W>(base + k * x.step + L);
          store<T, W>(buffer + k * 2 * L + re, Base::template every_second<0>(a, b));
          store<T, W>(buffer + k * 2 * L + im, Base::template every_second<1>(a, b));
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

  // ---- groups of L lines beside each other, at once, so that memory is read and written in longer runs: buffer g of
  // c is group g's

  static void gather_groups(const FftLines<const T>& x, int64_t n, int groups, bool swap, T* c,
                            int64_t buffer) {
    with_source(x, x.step, swap, [&](auto source) {
      for (int64_t k = 0; k < n; ++k) {
        fetch(x.base + (k + kRowsAhead) * x.step, groups * x.inner_step * L);
        for (int g = 0; g < groups; ++g)
          put(c + g * buffer + k * 2 * L, source.moved(g * x.inner_step * L).get(k));
      }
    });
  }
  static void scatter_groups(const T* c, int64_t buffer, int64_t n, int groups, bool swap, T factor,
                             const FftLines<T>& y) {
    with_sink(y, y.step, swap, factor, [&](auto sink) {
      for (int64_t k = 0; k < n; ++k) {
        fetch(y.base + (k + kRowsAhead) * y.step, groups * y.inner_step * L);
        for (int g = 0; g < groups; ++g)
          sink.moved(g * y.inner_step * L).put(k, get(c + g * buffer + k * 2 * L));
      }
    });
  }
  static constexpr int64_t kRowsAhead = 8;
  [[gnu::always_inline]] static void fetch(const T* p, int64_t count) {
    for (int64_t i = 0; i < count; i += 64 / static_cast<int64_t>(sizeof(T)))
      __builtin_prefetch(p + i, 0, 2);
  }

  // ---- lines side by side

  static void lanes(const FftProgram<T>& f, const FftLines<const T>& x, const FftLines<T>& y,
                    int64_t block, T* scratch) {
    int64_t first = block * L, end = f.lines;
    const int64_t width = f.groups * L;
    if (f.row_blocks) {
      first = block / f.row_blocks * x.inner + block % f.row_blocks * width;
      end = (block / f.row_blocks + 1) * x.inner;
    }
    if (f.groups > 1 && first + width <= end) return groups(f, x, y, first, scratch);
    for (int64_t i = 0; i < f.groups && first < end; ++i, first += L)
      group(f, x, y, first, first + L <= end ? L : end - first, scratch);
  }

  // f.groups groups of columns.
  static void groups(const FftProgram<T>& f, FftLines<const T> x, FftLines<T> y, int64_t first,
                     T* scratch) {
    T *a = scratch, *b = a + f.buffer, *c = b + f.buffer;
    x.base += x.offset(first), y.base += y.offset(first);
    const bool from_bins = f.real == FftReal::from_bins, to_bins = f.real == FftReal::to_bins;
    gather_groups(x, f.n + from_bins, f.groups, f.inverse && !from_bins, c, f.buffer);
    for (int g = 0; g < f.groups; ++g) {
      T* at = c + g * f.buffer;
      if (from_bins) {
        Base::from_bins(at, a, f.n, f.half, f.half_pitch);
        transform(f.tables, Lanes{a}, ToLanes{at}, a, b);
      } else if (to_bins) {
        T* result = last_free(f.tables, a, b);
        transform(f.tables, Lanes{at}, ToLanes{result}, a, b);
        Base::to_bins(result, at, f.n, f.half, f.half_pitch);
      } else {
        transform(f.tables, Lanes{at}, ToLanes{at}, a, b);
      }
    }
    scatter_groups(c, f.buffer, f.n + to_bins, f.groups, f.inverse, f.scale, y);
  }

  static void group(const FftProgram<T>& f, const FftLines<const T>& x, const FftLines<T>& y,
                    int64_t first, int64_t count, T* scratch) {
    T *a = scratch, *b = scratch + f.buffer;
    const bool reads = f.real != FftReal::from_bins && is_columns(form(x, first, count)),
               writes = f.real != FftReal::to_bins && is_columns(form(y, first, count));
    const auto to = [&](auto source) {
      if (writes) {
        with_sink({y.base + y.offset(first), 0, 0, 0, 0, y.im}, y.step, f.inverse, f.scale,
                  [&](auto sink) { transform(f.tables, source, sink, a, b); });
        return;
      }
      T* result = last_free(f.tables, a, b);
      transform(f.tables, source, ToLanes{result}, a, b);
      if (f.real == FftReal::to_bins) {
        T* bins = result == a ? b : a;
        Base::to_bins(result, bins, f.n, f.half, f.half_pitch);
        result = bins;
      }
      scatter(result, f.n + (f.real == FftReal::to_bins), first, count, f.inverse, f.scale, y);
    };
    if (reads) {
      with_source(FftLines<const T>{x.base + x.offset(first), 0, 0, 0, 0, x.im}, x.step, f.inverse,
                  to);
      return;
    }
    if (f.real == FftReal::from_bins) {
      gather(x, f.n + 1, first, count, false, b, y.base + y.offset(first));
      Base::from_bins(b, a, f.n, f.half, f.half_pitch);
    } else {
      gather(x, f.n, first, count, f.inverse, a, y.base + y.offset(first));
    }
    to(Lanes{a});
  }

  // ---- one line; x and y describe it with offset 0, elements are neighbours

  // L rows of L elements of a line: their transforms by columns, times w, as elements of lanes.
  template <class Source>
  [[gnu::always_inline]] static void across(Source x, const T* w, T* to) {
    C v[L];
#pragma GCC unroll 16
    for (int j = 0; j < L; ++j) v[j] = x.get(j);
    Base::template butterfly<L>(v, L, nullptr);
    V re[L], im[L];
    re[0] = v[0].re, im[0] = v[0].im;
#pragma GCC unroll 16
    for (int k = 1; k < L; ++k) {
      const C z = Base::mul(v[k], load<T, W>(w + k * 2 * L), load<T, W>(w + k * 2 * L + L));
      re[k] = z.re, im[k] = z.im;
    }
    transpose<T, W>(re);
    transpose<T, W>(im);
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) put(to + i * 2 * L, {re[i], im[i]});
  }

  // Fetches line `following` meanwhile, if there is one.
  static void row(const FftLine<T>& f, const FftLines<const T>& x, const FftLines<T>& y, bool swap,
                  T factor, T* scratch, const T* following) {
    const int64_t m = f.tables.n, span = 2 * L * L;
    T *a = scratch, *b = scratch + f.buffer;
    with_source(x, x.step * m, swap, [&](auto source) {
      const T* w = f.across;
      for (int64_t p = 0; p < m; p += L, w += 2 * L * L) {
        const int64_t first = p + L <= m ? p : m - L;
        fetch(y.base + p * 2 * L, span);
        if (following) fetch(following + p * 2 * L, span);
        across(source.moved(first * x.step), w, a + first * 2 * L);
      }
    });
    with_sink(y, y.step * L, swap, factor,
              [&](auto sink) { transform(f.tables, Lanes{a}, sink, a, b); });
  }

  // The transforms of f.groups times L columns of the matrix times what joins the halves, as elements of the rows'
  // lanes: middle[row group][column][re L, im L].
  static void columns(const FftLine<T>& f, FftLines<const T> x, bool swap, int64_t block, T* middle,
                      T* scratch) {
    const int64_t rows = f.column.n, columns = f.row.n, group = block * f.groups;
    T *a = scratch, *b = a + f.buffer, *c = b + f.buffer;
    x.inner_step = x.step;
    if (f.groups > 1 && (group + f.groups) * L <= columns) {
      gather_groups({x.base + group * L * x.step, 0, 0, x.step, x.step * columns, x.im}, rows,
                    f.groups, swap, c, f.buffer);
      for (int g = 0; g < f.groups; ++g) {
        T* at = c + g * f.buffer;
        transform(f.column, Lanes{at}, ToLanes{at}, a, b);
        join(f, at, group + g, middle);
      }
      return;
    }
    T* result = last_free(f.column, a, b);
    for (int64_t g = group; g < group + f.groups && g * L < columns; ++g) {
      const int64_t first = g * L + L <= columns ? g * L : columns - L;
      with_source(x, x.step * columns, swap, [&](auto source) {
        transform(f.column, source.moved(first * x.step), ToLanes{result}, a, b);
      });
      join(f, result, g, middle);
    }
  }
  static void join(const FftLine<T>& f, const T* from, int64_t group, T* middle) {
    const int64_t rows = f.column.n, columns = f.row.n;
    const int64_t first = group * L + L <= columns ? group * L : columns - L;
    const auto fresh = static_cast<int>(group * L - first);
    const T* w = f.group + group * 2 * rows;
    for (int64_t k0 = 0; k0 < rows; k0 += L) {
      V re[L], im[L];
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) {
        const int64_t k = k0 + i;
        C z{};
        if (k < rows) {
          const C turn = Base::turned(get(f.lane + k * 2 * L), w[2 * k], w[2 * k + 1]);
          z = Base::mul(get(from + k * 2 * L), turn.re, turn.im);
        }
        re[i] = z.re, im[i] = z.im;
      }
      transpose<T, W>(re);
      transpose<T, W>(im);
      T* to = middle + (k0 * columns + first * L) * 2;
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i)
        if (i >= fresh) put(to + i * 2 * L, {re[i], im[i]});
    }
  }
  // The transforms of f.groups times L rows, whose elements are read out by columns.
  static void rows(const FftLine<T>& f, const T* middle, const FftLines<T>& y, bool swap, T factor,
                   int64_t block, T* scratch) {
    const int64_t rows = f.column.n, columns = f.row.n, group = block * f.groups;
    T *a = scratch, *b = a + f.buffer, *c = b + f.buffer;
    const auto lanes_of = [&](int64_t g) { return Lanes{middle + g * L * columns * 2}; };
    if (f.groups > 1 && (group + f.groups) * L <= rows) {
      for (int g = 0; g < f.groups; ++g)
        transform(f.row, lanes_of(group + g), ToLanes{c + g * f.buffer}, a, b);
      scatter_groups(c, f.buffer, columns, f.groups, swap, factor,
                     {y.base + group * L * y.step, 0, 0, y.step, y.step * rows, y.im});
      return;
    }
    for (int64_t g = group; g < group + f.groups && g * L < rows; ++g) {
      const int64_t first = g * L;
      if (first + L <= rows) {
        with_sink({y.base + first * y.step, 0, 0, 0, 0, y.im}, y.step * rows, swap, factor,
                  [&](auto sink) { transform(f.row, lanes_of(g), sink, a, b); });
        continue;
      }
      T* result = last_free(f.row, a, b);
      transform(f.row, lanes_of(g), ToLanes{result}, a, b);
      scatter(result, columns, first, rows - first, swap, factor,
              {y.base, rows, 0, y.step, y.step * rows, y.im});
    }
  }

  static void line(const FftLine<T>& f, const FftLines<const T>& x, const FftLines<T>& y, bool swap,
                   T factor, T* scratch, const T* following = nullptr) {
    switch (f.way) {
      case FftLine<T>::Way::none:
        return;
      case FftLine<T>::Way::row:
        return row(f, x, y, swap, factor, scratch, following);
      case FftLine<T>::Way::matrix: {
        T *middle = scratch, *rest = scratch + f.middle;
        for (int64_t g = 0; g * L * f.groups < f.row.n; ++g) columns(f, x, swap, g, middle, rest);
        for (int64_t g = 0; g * L * f.groups < f.column.n; ++g)
          rows(f, middle, y, swap, factor, g, rest);
        return;
      }
      case FftLine<T>::Way::convolved:
        return convolved(f, x, y, swap, factor, scratch);
    }
  }

  static void convolved(const FftLine<T>& f, const FftLines<const T>& x, const FftLines<T>& y,
                        bool swap, T factor, T* scratch) {
    const FftConvolution<T>& c = f.convolution;
    const int64_t padded = c.padded;
    T *a = scratch, *b = a + 2 * padded, *rest = b + 2 * padded;
    const FftLines<T> first{a, 1, 0, 0, 1, padded}, second{b, 1, 0, 0, 1, padded};
    const FftLines<const T> again{a, 1, 0, 0, 1, padded}, back{b, 1, 0, 0, 1, padded};
    const T *re = x.base + (swap ? x.im : 0), *im = x.base + (swap ? 0 : x.im);
    T *to_re = y.base + (swap ? y.im : 0), *to_im = y.base + (swap ? 0 : y.im);
    const T x0_re = re[0], x0_im = im[0];
    if (c.gather) {
      for (int64_t k = 0; k < padded; ++k)
        a[k] = re[c.gather[k] * x.step], a[padded + k] = im[c.gather[k] * x.step];
    } else {
      for (int64_t k = 0; k < f.n; ++k) {
        const T u = re[k * x.step], v = im[k * x.step];
        a[k] = u * c.chirp[2 * k] - v * c.chirp[2 * k + 1];
        a[padded + k] = u * c.chirp[2 * k + 1] + v * c.chirp[2 * k];
      }
      for (int64_t k = f.n; k < padded; ++k) a[k] = a[padded + k] = 0;
    }
    line(*f.inner, again, second, false, 1, rest);
    const T sum_re = x0_re + b[0], sum_im = x0_im + b[padded];
    multiply(b, c.factors, padded);
    if (c.gather) b[0] += x0_re, b[padded] += x0_im;
    line(*f.inner, back, first, true, factor, rest);
    if (c.gather) {
      to_re[0] = sum_re * factor, to_im[0] = sum_im * factor;
      for (int64_t k = 0; k < padded; ++k)
        to_re[c.scatter[k] * y.step] = a[k], to_im[c.scatter[k] * y.step] = a[padded + k];
      return;
    }
    for (int64_t k = 0; k < f.n; ++k) {
      const T u = a[k], v = a[padded + k];
      to_re[k * y.step] = u * c.chirp[2 * k] - v * c.chirp[2 * k + 1];
      to_im[k * y.step] = u * c.chirp[2 * k + 1] + v * c.chirp[2 * k];
    }
  }
  // x *= w, both n real parts and then n imaginary ones.
  static void multiply(T* x, const T* w, int64_t n) {
    int64_t k = 0;
    for (; k + L <= n; k += L) {
      const C z = Base::mul({load<T, W>(x + k), load<T, W>(x + n + k)}, load<T, W>(w + k),
                            load<T, W>(w + n + k));
      store<T, W>(x + k, z.re);
      store<T, W>(x + n + k, z.im);
    }
    for (; k < n; ++k) {
      const T u = x[k], v = x[n + k];
      x[k] = u * w[k] - v * w[n + k], x[n + k] = u * w[n + k] + v * w[k];
    }
  }

  // ---- real lines: blocks of n complex numbers to bins [begin, end) of n + 1, and back

  static void bins_of(const FftProgram<T>& f, const T* z, T* y, int64_t begin, int64_t end) {
    const int64_t n = f.n;
    const T *w = f.half, *im = z + n;
    const typename Base::template ToPairs<false> to{y, 2, splat<T, W>(f.scale)};
    int64_t k = begin;
    if (k == 0) {
      y[0] = (z[0] + im[0]) * f.scale, y[1] = 0;
      ++k;
    }
    for (; k + L <= end && k + L <= n; k += L) {
      const int64_t back = n - k - L + 1;
      const C mirrored{Base::reversed(load<T, W>(z + back)), Base::reversed(load<T, W>(im + back))};
      to.put(k, Base::bin({load<T, W>(z + k), load<T, W>(im + k)}, mirrored, load<T, W>(w + k),
                          load<T, W>(w + f.half_pitch + k)));
    }
    for (; k < end && k < n; ++k) {
      const C x = Base::bin(one(z[k], im[k]), one(z[n - k], im[n - k]), splat<T, W>(w[k]),
                            splat<T, W>(w[f.half_pitch + k]));
      y[2 * k] = x.re[0] * f.scale, y[2 * k + 1] = x.im[0] * f.scale;
    }
    if (end > n) y[2 * n] = (z[0] - im[0]) * f.scale, y[2 * n + 1] = 0;
  }
  static void packed_of(const FftProgram<T>& f, const T* x, T* z, int64_t begin, int64_t end) {
    const int64_t n = f.n;
    const T* w = f.half;
    T* im = z + n;
    int64_t k = begin;
    if (k == 0) {
      z[0] = x[0] + x[2 * n], im[0] = x[0] - x[2 * n];
      ++k;
    }
    const typename Base::template Pairs<false> from{x, 2};
    for (; k + L <= end && k + L <= n; k += L) {
      const C mirrored = from.get(n - k - L + 1);
      const C y =
          Base::packed(from.get(k), {Base::reversed(mirrored.re), Base::reversed(mirrored.im)},
                       load<T, W>(w + k), load<T, W>(w + f.half_pitch + k));
      store<T, W>(z + k, y.re);
      store<T, W>(im + k, y.im);
    }
    for (; k < end && k < n; ++k) {
      const C y = Base::packed(one(x[2 * k], x[2 * k + 1]), one(x[2 * (n - k)], x[2 * (n - k) + 1]),
                               splat<T, W>(w[k]), splat<T, W>(w[f.half_pitch + k]));
      z[k] = y.re[0], im[k] = y.im[0];
    }
  }
  static C one(T re, T im) { return {splat<T, W>(re), splat<T, W>(im)}; }

  // ---- programs

  static void whole_line(const FftProgram<T>& f, FftLines<const T> x, FftLines<T> y, int64_t i,
                         T* scratch) {
    x.base += x.offset(i), y.base += y.offset(i);
    if (x.inner == 1)
      return near_line(f, x, y, scratch, i + 1 < f.lines ? x.base + x.outer_step : nullptr);
    // Not neighbours: by way of some that are.
    const int64_t in = f.n + (f.real == FftReal::from_bins),
                  out = f.n + (f.real == FftReal::to_bins);
    T *from = scratch, *to = from + 2 * in;
    for (int64_t k = 0; k < in; ++k)
      from[2 * k] = x.base[k * x.step], from[2 * k + 1] = x.base[k * x.step + x.im];
    near_line(f, {from, 1, 0, 0, 2, 1}, {to, 1, 0, 0, 2, 1}, to + 2 * out);
    for (int64_t k = 0; k < out; ++k)
      y.base[k * y.step] = to[2 * k], y.base[k * y.step + y.im] = to[2 * k + 1];
  }
  static void near_line(const FftProgram<T>& f, const FftLines<const T>& x, const FftLines<T>& y,
                        T* scratch, const T* following = nullptr) {
    const int64_t n = f.n;
    switch (f.real) {
      case FftReal::none:
        return line(f.line, x, y, f.inverse, f.scale, scratch, following);
      case FftReal::to_bins:
        line(f.line, x, {scratch, 1, 0, 0, 1, n}, false, 1, scratch + 2 * n, following);
        return bins_of(f, scratch, y.base, 0, n + 1);
      case FftReal::from_bins:
        packed_of(f, x.base, scratch, 0, n + 1);
        return line(f.line, {scratch, 1, 0, 0, 1, n}, y, true, f.scale, scratch + 2 * n);
    }
  }

  static void phase_block(const FftProgram<T>& f, int phase, FftLines<const T> x, FftLines<T> y,
                          int64_t block, T* scratch) {
    const int step = f.real == FftReal::from_bins ? phase - 1 : phase;
    const int64_t groups = f.phase_groups[phase], i = block / groups, g = block % groups;
    x.base += x.offset(i), y.base += y.offset(i);
    const bool bins = f.real == FftReal::to_bins;
    if (step == 0) return columns(f.line, x, f.inverse, g, y.base, scratch);
    if (step == 1) return rows(f.line, x.base, y, f.inverse, bins ? 1 : f.scale, g, scratch);
    const int64_t begin = g * kFftBinBlock;
    const int64_t end = g + 1 == groups ? f.n + 1 : begin + kFftBinBlock;
    if (bins)
      bins_of(f, x.base, y.base, begin, end);
    else
      packed_of(f, x.base, y.base, begin, end);
  }
};

template <class T, int W>
void fft_run(const FftProgram<T>& f, int phase, const FftLines<const T>& x, const FftLines<T>& y,
             int64_t begin, int64_t end, T* scratch) {
  using Run = FftRun<T, W>;
  for (int64_t block = begin; block < end; ++block) switch (f.way) {
      case FftProgram<T>::Way::lanes:
        Run::lanes(f, x, y, block, scratch);
        break;
      case FftProgram<T>::Way::lines:
        Run::whole_line(f, x, y, block, scratch);
        break;
      case FftProgram<T>::Way::phases:
        Run::phase_block(f, phase, x, y, block, scratch);
    }
}

template void fft_run<float, kVectorBytes>(const FftProgram<float>&, int,
                                           const FftLines<const float>&, const FftLines<float>&,
                                           int64_t, int64_t, float*);
template void fft_run<double, kVectorBytes>(const FftProgram<double>&, int,
                                            const FftLines<const double>&, const FftLines<double>&,
                                            int64_t, int64_t, double*);

}  // namespace rlx::cpu
