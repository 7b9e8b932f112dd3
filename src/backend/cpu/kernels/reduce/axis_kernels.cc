#include "rlx/backend/cpu/kernels/reduce/axis_kernels.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>

#include "rlx/backend/cpu/kernels/compensated.h"
#include "rlx/backend/cpu/kernels/indexing/extremes.h"
#include "rlx/backend/cpu/kernels/isa.h"
#include "rlx/backend/cpu/kernels/lines/lines.h"
#include "rlx/backend/cpu/kernels/visit_dtype.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

// A block is one outer position and up to this many inner ones, which walk along n side by side.
constexpr int64_t kWidth = 64;

struct Span {
  int64_t outer, inner, count;
};

Span span_of(const AxisProblem& p, int64_t block) {
  const int64_t chunks = ceil_div(p.inner, kWidth);
  const int64_t inner = block % chunks * kWidth;
  return {block / chunks, inner, std::min(kWidth, p.inner - inner)};
}

// The type of computation's value of a small whole number.
template <class T>
T number(int v) {
  if constexpr (std::is_same_v<T, c64_t>)
    return {static_cast<float>(v), 0};
  else
    return static_cast<T>(v);
}

// What the lines of a span have come to, each kind of number in an array of its own, so that lines
// are computed side by side: add() takes the next element of line c, value() is its result so far,
// and fold() is called for all lines after every kRun elements. A float sum is formed over as many,
// and what adding that to the rest rounds away is carried on, so that each value is as exact as if
// it were summed by halves.
constexpr int64_t kRun = 16;

template <class T>
struct RunningSum {
  T sum[kWidth];
  explicit RunningSum(int64_t count) { std::fill_n(sum, count, T{}); }
  void add(int64_t c, T x) { sum[c] = sum[c] + x; }
  void fold(int64_t) {}
  T value(int64_t c) const { return sum[c]; }
};
template <std::floating_point T>
struct RunningSum<T> {
  T sum[kWidth], lost[kWidth], run[kWidth];
  explicit RunningSum(int64_t count) {
    std::fill_n(sum, count, T{});
    std::fill_n(lost, count, T{});
    std::fill_n(run, count, T{});
  }
  void add(int64_t c, T x) { run[c] += x; }
  void fold(int64_t count) {
    for (int64_t c = 0; c < count; ++c) add_run(sum[c], lost[c], run[c]);
    std::fill_n(run, count, T{});
  }
  T value(int64_t c) const { return sum[c] + (lost[c] + run[c]); }
};
template <>
struct RunningSum<c64_t> {
  RunningSum<float> re, im;
  explicit RunningSum(int64_t count) : re(count), im(count) {}
  void add(int64_t c, c64_t x) { re.add(c, x.re), im.add(c, x.im); }
  void fold(int64_t count) { re.fold(count), im.fold(count); }
  c64_t value(int64_t c) const { return {re.value(c), im.value(c)}; }
};

template <class T>
struct RunningProduct {
  T product[kWidth];
  explicit RunningProduct(int64_t count) { std::fill_n(product, count, number<T>(1)); }
  void add(int64_t c, T x) { product[c] = product[c] * x; }
  void fold(int64_t) {}
  T value(int64_t c) const { return product[c]; }
};

// The sums of f32 lines that lie side by side.
void sum_lines(const AxisProblem& p, bool reverse, const float* x, float* y, int64_t count) {
  const LineFns fns = line_fns(host_isa());
  RunningSum<float> so_far(count);
  for (int64_t step = 0; step < p.n; ++step) {
    const int64_t i = reverse ? p.n - 1 - step : step;
    fns.add_running(so_far.sum, so_far.lost, so_far.run, x + i * p.x_n, y + i * p.y_n, count);
    if (step % kRun < kRun - 1) continue;
    fns.add_run(so_far.sum, so_far.lost, so_far.run, count);
    std::fill_n(so_far.run, count, 0.0f);
  }
}

// step: between the elements of neighbouring lines, in x and in y.
template <template <class> class Running, class S, class Count, class Step>
void scan_lines(const AxisProblem& p, ScanOptions options, const S* x, S* y, Count count,
                Step x_step, Step y_step) {
  Running<Compute<S>> so_far(count);
  for (int64_t step = 0; step < p.n; ++step) {
    const int64_t i = options.reverse ? p.n - 1 - step : step;
    const S* const from = x + i * p.x_n;
    S* const to = y + i * p.y_n;
    if (options.exclusive) {
      for (int64_t c = 0; c < count; ++c) {
        const Compute<S> value = Element<S>::get(from[c * x_step]);
        to[c * y_step] = Element<S>::put(so_far.value(c));
        so_far.add(c, value);
      }
    } else {
      for (int64_t c = 0; c < count; ++c) {
        so_far.add(c, Element<S>::get(from[c * x_step]));
        to[c * y_step] = Element<S>::put(so_far.value(c));
      }
    }
    if (step % kRun == kRun - 1) so_far.fold(count);
  }
}

// A line alone, and lines beside each other, are loops that the compiler knows more of.
template <template <class> class Running, class S>
void scan_span(const AxisProblem& p, ScanOptions options, const S* x, S* y, int64_t count) {
  using One = std::integral_constant<int64_t, 1>;
  const bool dense = p.x_inner == 1 && p.y_inner == 1;
  if constexpr (std::is_same_v<Running<Compute<S>>, RunningSum<float>> && std::is_same_v<S, float>)
    if (dense && count > 1 && !options.exclusive) return sum_lines(p, options.reverse, x, y, count);
  if (count == 1)
    scan_lines<Running>(p, options, x, y, One(), One(), One());
  else if (dense)
    scan_lines<Running>(p, options, x, y, count, One(), One());
  else
    scan_lines<Running>(p, options, x, y, count, p.x_inner, p.y_inner);
}

// Recurrences side by side; one alone is a loop that the compiler knows more of.
template <class S, class Count>
void recur_lines(const AxisProblem& p, ScanOptions options, const S* a, const S* x, S* y,
                 Count count) {
  Compute<S> state[kWidth];
  std::fill_n(state, count, Compute<S>{});
  for (int64_t step = 0; step < p.n; ++step) {
    const int64_t i = options.reverse ? p.n - 1 - step : step;
    const S *const factor = a + i * p.x_n, *const term = x + i * p.x_n;
    S* const to = y + i * p.y_n;
    for (int64_t c = 0; c < count; ++c) {
      const Compute<S> last = state[c];
      state[c] =
          Element<S>::get(factor[c * p.x_inner]) * last + Element<S>::get(term[c * p.x_inner]);
      to[c * p.y_inner] = Element<S>::put(options.exclusive ? last : state[c]);
    }
  }
}

template <class S>
void recur_span(const AxisProblem& p, ScanOptions options, const S* a, const S* x, S* y,
                int64_t count) {
  if (count == 1)
    recur_lines(p, options, a, x, y, std::integral_constant<int64_t, 1>());
  else
    recur_lines(p, options, a, x, y, count);
}

// What loses to every value: an infinity, or the limit of an integer type.
template <class V>
V worst(bool minimum) {
  using Limits = std::numeric_limits<V>;
  if constexpr (Limits::has_infinity)
    return minimum ? Limits::infinity() : -Limits::infinity();
  else
    return minimum ? Limits::max() : Limits::lowest();
}

template <class S>
S from_order(decltype(order_value(S{})) v) {
  if constexpr (std::is_same_v<S, f16_t> || std::is_same_v<S, bf16_t>)
    return Element<S>::put(v);
  else
    return v;
}

template <bool minimum, class S>
void extremum_span(const AxisProblem& p, ScanOptions options, const S* x, S* y, int64_t* indices,
                   int64_t count) {
  using V = decltype(order_value(S{}));
  V best[kWidth];
  int64_t where[kWidth];
  std::fill_n(best, kWidth, worst<V>(minimum));
  std::fill_n(where, kWidth, int64_t{-1});
  for (int64_t step = 0; step < p.n; ++step) {
    const int64_t i = options.reverse ? p.n - 1 - step : step;
    for (int64_t c = 0; c < count; ++c) {
      const int64_t target = i * p.y_n + c * p.y_inner;
      const V v = order_value(x[i * p.x_n + c * p.x_inner]);
      if (options.exclusive) y[target] = from_order<S>(best[c]), indices[target] = where[c];
      if (v != v || (minimum ? v <= best[c] : v >= best[c])) best[c] = v, where[c] = i;
      if (!options.exclusive) y[target] = from_order<S>(best[c]), indices[target] = where[c];
    }
  }
}

// The sum of exponentials so far is total * exp(scale). The scale is at most 1 less than the
// largest element: it moves by more than 1 at a time, so that what moving it rounds does not add
// up.
template <class T>
struct RunningExponentials {
  T scale[kWidth];
  RunningSum<T> total;
  explicit RunningExponentials(int64_t count) : total(count) {
    std::fill_n(scale, count, worst<T>(false));
  }
  void add(int64_t c, T v) {
    if (v == scale[c]) {  // infinities too
      total.add(c, 1);
    } else if (v < scale[c] + 1) {
      total.add(c, std::exp(v - scale[c]));
    } else {  // larger by 1 or more, or NaN, which stays
      total.sum[c] = total.value(c) * std::exp(scale[c] - v);
      total.lost[c] = 0, total.run[c] = 1;
      scale[c] = v;
    }
  }
  void fold(int64_t count) { total.fold(count); }
  T value(int64_t c) const { return scale[c] + std::log(total.value(c)); }
};

// Calls f(span, x of the span, y of the span).
template <class S, class F>
void for_each_span(const AxisProblem& p, const void* x, void* y, int64_t begin, int64_t end, F f) {
  for (int64_t block = begin; block < end; ++block) {
    const Span s = span_of(p, block);
    f(s, static_cast<const S*>(x) + s.outer * p.x_outer + s.inner * p.x_inner,
      static_cast<S*>(y) + s.outer * p.y_outer + s.inner * p.y_inner);
  }
}

template <template <class> class Running>
void scan(const AxisProblem& p, ScanOptions options, const void* x, void* y, int64_t begin,
          int64_t end) {
  check(!is_bool(p.dtype), "a running sum or product of bool");
  visit_dtype(p.dtype, [&]<class S>() {
    if constexpr (!std::is_same_v<S, bool_t>) {
      for_each_span<S>(p, x, y, begin, end, [&](const Span& s, const S* from, S* to) {
        scan_span<Running>(p, options, from, to, s.count);
      });
    }
  });
}

template <class S, bool minimum, bool last>
void argmax_span(const AxisProblem& p, const S* x, int64_t count, int64_t* result) {
  using V = decltype(order_value(S{}));
  V best[kWidth];
  for (int64_t c = 0; c < count; ++c) {
    best[c] = order_value(x[c * p.x_inner]);
    result[c] = 0;
  }
  for (int64_t i = 1; i < p.n; ++i) {
    for (int64_t c = 0; c < count; ++c) {
      const V v = order_value(x[i * p.x_n + c * p.x_inner]);
      const bool better =
          last ? (minimum ? v <= best[c] : v >= best[c]) : (minimum ? v < best[c] : v > best[c]);
      const bool nan = v != v && (last || best[c] == best[c]);
      if (better || nan) {  // nothing compares as better than a NaN, so it stays
        best[c] = v;
        result[c] = i;
      }
    }
  }
}

// Vectors search a line that lies together, and lines side by side as far as they fill vectors.
template <class S>
void argmax_of(const AxisProblem& p, ArgmaxOptions options, const ExtremeFns<S>& fns, const S* x,
               int64_t count, int64_t* result) {
  int64_t done = 0;
  if (count == 1 && p.x_n == 1)
    done = 1, *result = fns.positions[options.minimum][options.last](x, p.n);
  else if (p.x_inner == 1)
    done = fns.columns[options.minimum][options.last](x, p.n, p.x_n, count, result);
  x += done * p.x_inner, result += done, count -= done;
  if (count == 0) return;
  if (options.minimum) {
    options.last ? argmax_span<S, true, true>(p, x, count, result)
                 : argmax_span<S, true, false>(p, x, count, result);
  } else {
    options.last ? argmax_span<S, false, true>(p, x, count, result)
                 : argmax_span<S, false, false>(p, x, count, result);
  }
}

template <class S>
S index_as(int64_t i) {
  if constexpr (std::is_same_v<S, f16_t> || std::is_same_v<S, bf16_t>) {
    return Element<S>::put(static_cast<float>(i));
  } else {
    return static_cast<S>(i);
  }
}

}  // namespace

void AxisProblem::set_dense() {
  x_outer = y_outer = n * inner;
  x_n = y_n = inner;
  x_inner = y_inner = 1;
}

int64_t axis_blocks(const AxisProblem& p) { return p.outer * ceil_div(p.inner, kWidth); }

void cumsum(const AxisProblem& p, ScanOptions options, const void* x, void* y, int64_t begin,
            int64_t end) {
  scan<RunningSum>(p, options, x, y, begin, end);
}

void cumprod(const AxisProblem& p, ScanOptions options, const void* x, void* y, int64_t begin,
             int64_t end) {
  scan<RunningProduct>(p, options, x, y, begin, end);
}

void cumulative_extremum(const AxisProblem& p, ScanOptions options, bool minimum, const void* x,
                         void* y, int64_t* indices, int64_t begin, int64_t end) {
  check(!is_complex(p.dtype) && !is_bool(p.dtype), "a running extremum of {}", p.dtype);
  visit_dtype(p.dtype, [&]<class S>() {
    if constexpr (!std::is_same_v<S, bool_t> && !std::is_same_v<S, c64_t>) {
      for_each_span<S>(p, x, y, begin, end, [&](const Span& s, const S* from, S* to) {
        int64_t* const at = indices + (to - static_cast<S*>(y));
        minimum ? extremum_span<true>(p, options, from, to, at, s.count)
                : extremum_span<false>(p, options, from, to, at, s.count);
      });
    }
  });
}

void cumlogsumexp(const AxisProblem& p, ScanOptions options, const void* x, void* y, int64_t begin,
                  int64_t end) {
  check(is_float(p.dtype), "a running logsumexp of {}", p.dtype);
  visit_dtype(p.dtype, [&]<class S>() {
    if constexpr (std::is_floating_point_v<Compute<S>>) {
      for_each_span<S>(p, x, y, begin, end, [&](const Span& s, const S* from, S* to) {
        scan_span<RunningExponentials>(p, options, from, to, s.count);
      });
    }
  });
}

void linear_recurrence(const AxisProblem& p, ScanOptions options, const void* a, const void* x,
                       void* y, int64_t begin, int64_t end) {
  check(is_float(p.dtype) || is_complex(p.dtype), "a recurrence of {}", p.dtype);
  visit_dtype(p.dtype, [&]<class S>() {
    if constexpr (std::is_floating_point_v<Compute<S>> || std::is_same_v<S, c64_t>) {
      for_each_span<S>(p, x, y, begin, end, [&](const Span& s, const S* from, S* to) {
        const S* const factors = static_cast<const S*>(a) + (from - static_cast<const S*>(x));
        recur_span(p, options, factors, from, to, s.count);
      });
    }
  });
}

void argmax(const AxisProblem& p, ArgmaxOptions options, const void* x, void* out, int64_t begin,
            int64_t end) {
  check(!is_complex(p.dtype), "argmax of c64");
  check(!is_complex(options.out_dtype) && !is_bool(options.out_dtype), "argmax into {}",
        options.out_dtype);
  check(p.n > 0, "argmax of an empty axis");
  visit_dtype(p.dtype, [&]<class S>() {
    if constexpr (!std::is_same_v<S, c64_t>) {
      const ExtremeFns<S> fns = extreme_fns<S>(host_isa());
      visit_dtype(options.out_dtype, [&]<class O>() {
        if constexpr (!std::is_same_v<O, c64_t> && !std::is_same_v<O, bool_t>) {
          for (int64_t block = begin; block < end; ++block) {
            const Span s = span_of(p, block);
            int64_t result[kWidth];
            argmax_of(p, options, fns,
                      static_cast<const S*>(x) + s.outer * p.x_outer + s.inner * p.x_inner, s.count,
                      result);
            O* const to = static_cast<O*>(out) + s.outer * p.inner + s.inner;
            for (int64_t c = 0; c < s.count; ++c) to[c] = index_as<O>(result[c]);
          }
        }
      });
    }
  });
}

}  // namespace rlx::cpu
