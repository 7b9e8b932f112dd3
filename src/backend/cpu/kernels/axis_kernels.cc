#include "rlx/backend/cpu/kernels/axis_kernels.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>

#include "rlx/backend/cpu/kernels/compensated.h"
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

c64_t operator*(c64_t a, c64_t b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }

// The type of computation's value of a small whole number.
template <class T>
T number(int v) {
  if constexpr (std::is_same_v<T, c64_t>)
    return {static_cast<float>(v), 0};
  else
    return static_cast<T>(v);
}

// What a line has come to: add() takes the next element, value() is the result so far, and fold() is
// called after every kRun elements. A float sum is formed over as many, and what adding that to the
// rest rounds away is carried on, so that each value is as exact as if it were summed by halves.
constexpr int64_t kRun = 16;

template <class T>
struct RunningSum {
  T sum{};
  void add(T x) { sum = sum + x; }
  void fold() {}
  T value() const { return sum; }
};
template <std::floating_point T>
struct RunningSum<T> {
  T sum = 0, lost = 0, run = 0;
  void add(T x) { run += x; }
  void fold() {
    add_run(sum, lost, run);
    run = 0;
  }
  T value() const { return sum + (lost + run); }
};
template <>
struct RunningSum<c64_t> {
  RunningSum<float> re, im;
  void add(c64_t x) { re.add(x.re), im.add(x.im); }
  void fold() { re.fold(), im.fold(); }
  c64_t value() const { return {re.value(), im.value()}; }
};

template <class T>
struct RunningProduct {
  T product = number<T>(1);
  void add(T x) { product = product * x; }
  void fold() {}
  T value() const { return product; }
};

template <template <class> class Running, class S>
void scan_span(const AxisProblem& p, ScanOptions options, const S* x, S* y, int64_t count) {
  Running<Compute<S>> so_far[kWidth];
  for (int64_t step = 0; step < p.n; ++step) {
    const int64_t i = options.reverse ? p.n - 1 - step : step;
    for (int64_t c = 0; c < count; ++c) {
      const Compute<S> value = Element<S>::get(x[i * p.x_n + c * p.x_inner]);
      S& target = y[i * p.y_n + c * p.y_inner];
      if (options.exclusive) target = Element<S>::put(so_far[c].value());
      so_far[c].add(value);
      if (!options.exclusive) target = Element<S>::put(so_far[c].value());
    }
    if (step % kRun == kRun - 1)
      for (int64_t c = 0; c < count; ++c) so_far[c].fold();
  }
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
  T scale = worst<T>(false);
  RunningSum<T> total;
  void add(T v) {
    if (v == scale) {  // infinities too
      total.add(1);
    } else if (v < scale + 1) {
      total.add(std::exp(v - scale));
    } else {  // larger by 1 or more, or NaN, which stays
      total = {total.value() * std::exp(scale - v), 0, 1};
      scale = v;
    }
  }
  void fold() { total.fold(); }
  T value() const { return scale + std::log(total.value()); }
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

void argmax(const AxisProblem& p, ArgmaxOptions options, const void* x, void* out, int64_t begin,
            int64_t end) {
  check(!is_complex(p.dtype), "argmax of c64");
  check(!is_complex(options.out_dtype) && !is_bool(options.out_dtype), "argmax into {}",
        options.out_dtype);
  check(p.n > 0, "argmax of an empty axis");
  for (int64_t block = begin; block < end; ++block) {
    const Span s = span_of(p, block);
    int64_t result[kWidth];
    visit_dtype(p.dtype, [&]<class S>() {
      if constexpr (!std::is_same_v<S, c64_t>) {
        const S* const from = static_cast<const S*>(x) + s.outer * p.x_outer + s.inner * p.x_inner;
        if (options.minimum)
          options.last ? argmax_span<S, true, true>(p, from, s.count, result)
                       : argmax_span<S, true, false>(p, from, s.count, result);
        else
          options.last ? argmax_span<S, false, true>(p, from, s.count, result)
                       : argmax_span<S, false, false>(p, from, s.count, result);
      }
    });
    visit_dtype(options.out_dtype, [&]<class O>() {
      if constexpr (!std::is_same_v<O, c64_t> && !std::is_same_v<O, bool_t>) {
        O* const to = static_cast<O*>(out) + s.outer * p.inner + s.inner;
        for (int64_t c = 0; c < s.count; ++c) to[c] = index_as<O>(result[c]);
      }
    });
  }
}

}  // namespace rlx::cpu
