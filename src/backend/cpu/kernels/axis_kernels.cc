#include "rlx/backend/cpu/kernels/axis_kernels.h"

#include <algorithm>

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

c64_t operator+(c64_t a, c64_t b) { return {a.re + b.re, a.im + b.im}; }

template <class S>
void cumsum_span(const AxisProblem& p, CumsumOptions options, const S* x, S* y, int64_t count) {
  using T = Compute<S>;
  T sum[kWidth] = {};
  for (int64_t step = 0; step < p.n; ++step) {
    const int64_t i = options.reverse ? p.n - 1 - step : step;
    for (int64_t c = 0; c < count; ++c) {
      const T value = Element<S>::get(x[i * p.x_n + c * p.x_inner]);
      const T before = sum[c];
      sum[c] = before + value;
      y[i * p.y_n + c * p.y_inner] = Element<S>::put(options.exclusive ? before : sum[c]);
    }
  }
}

// Values as they are compared: signed integers as themselves, not as the unsigned they are computed
// in.
template <class S>
auto order_value(S x) {
  if constexpr (std::is_same_v<S, f16_t> || std::is_same_v<S, bf16_t> ||
                std::is_same_v<S, bool_t>) {
    return Element<S>::get(x);
  } else {
    return x;
  }
}

template <class S, bool minimum>
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
      const bool better = minimum ? v < best[c] : v > best[c];
      const bool first_nan = v != v && best[c] == best[c];
      if (better || first_nan) {
        // Nothing compares as better than a NaN, so the first one stays.
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

void cumsum(const AxisProblem& p, CumsumOptions options, const void* x, void* y, int64_t begin,
            int64_t end) {
  check(!is_bool(p.dtype), "cumsum of bool");
  visit_dtype(p.dtype, [&]<class S>() {
    if constexpr (!std::is_same_v<S, bool_t>) {
      for (int64_t block = begin; block < end; ++block) {
        const Span s = span_of(p, block);
        cumsum_span<S>(p, options,
                       static_cast<const S*>(x) + s.outer * p.x_outer + s.inner * p.x_inner,
                       static_cast<S*>(y) + s.outer * p.y_outer + s.inner * p.y_inner, s.count);
      }
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
        options.minimum ? argmax_span<S, true>(p, from, s.count, result)
                        : argmax_span<S, false>(p, from, s.count, result);
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
