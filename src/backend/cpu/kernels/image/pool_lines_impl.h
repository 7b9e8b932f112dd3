// Pools of planes line by line. Included only by the pool_lines_<isa>.cc files.
#pragma once

#include "rlx/backend/cpu/kernels/image/pool_lines.h"
#include "rlx/backend/cpu/kernels/simd.h"

namespace rlx::cpu {

template <class S, int W, PoolFold fold>
struct PoolLines {
  static constexpr int L = kLanes<float, W>;
  using V = Vec<float, W>;
  static constexpr float kInitial = fold == PoolFold::Max   ? -__builtin_inff()
                                    : fold == PoolFold::Min ? __builtin_inff()
                                                            : 0.0f;

  [[gnu::always_inline]] static V combine(V best, V v) {
    if constexpr (fold == PoolFold::Sum) return best + v;
    const auto better = fold == PoolFold::Max ? v > best : v < best;
    return best != best ? best : (better | (v != v)) ? v : best;  // NaN wins
  }

  // f(first, count) for vectors that cover n elements: whole ones, the last together with some of the one before; a
  // part of one where there are no more.
  template <class F>
  [[gnu::always_inline]] static void for_vectors(int64_t n, F f) {
    if (n < L) {
      if (n > 0) f(int64_t{0}, n);
      return;
    }
    for (int64_t i = 0; i + L <= n; i += L) f(i, int64_t{L});
    if (n % L) f(n - L, int64_t{L});
  }

  static void fold_lines(const void* const* lines, int64_t count, int64_t n, bool fresh,
                         float* column) {
    // The last vector is formed twice in part, so nothing may be folded into what is there already.
    const int64_t whole = n / L * L;
    for_part(lines, count, 0, whole, fresh, column);
    if (whole == n) return;
    if (n < L || !fresh) {
      V v = fresh ? splat<float, W>(kInitial) : load_first<float, W>(column + whole, n - whole);
      for (int64_t l = 0; l < count; ++l)
        v = combine(v, load_first<S, W>(static_cast<const S*>(lines[l]) + whole, n - whole));
      store_first<float, W>(column + whole, v, n - whole);
    } else {
      for_part(lines, count, n - L, n, true, column);
    }
  }

  [[gnu::always_inline]] static void for_part(const void* const* lines, int64_t count,
                                              int64_t begin, int64_t end, bool fresh,
                                              float* column) {
    for (int64_t i = begin; i < end; i += L) {
      V v = fresh ? splat<float, W>(kInitial) : load<float, W>(column + i);
      for (int64_t l = 0; l < count; ++l)
        v = combine(v, load_as<S, W>(static_cast<const S*>(lines[l]) + i));
      store<float, W>(column + i, v);
    }
  }

  // Every `stride`-th element.
  template <int stride>
  [[gnu::always_inline]] static V spaced(const float* x, int64_t any) {
    if constexpr (stride == 1) return load<float, W>(x);
    if constexpr (stride == 2) return even(load<float, W>(x), load<float, W>(x + L));
    float lanes[L];
    for (int i = 0; i < L; ++i) lanes[i] = x[i * any];
    return load<float, W>(lanes);
  }
  [[gnu::always_inline]] static V even(V a, V b) {
    if constexpr (L == 4)
      return __builtin_shufflevector(a, b, 0, 2, 4, 6);
    else if constexpr (L == 8)
      return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
    else
      return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28,
                                     30);
  }

  template <int stride>
  static void fold_spaced(const PoolTaps& p, const float* column, float others, const float* counts,
                          S* y) {
    for_vectors(p.results, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
      const float* from = column + p.first + i * p.stride;
      V v = splat<float, W>(kInitial);
      for (int64_t k = 0; k < p.taps; ++k, from += p.dilation)
        v = combine(v, spaced<stride>(from, p.stride));
      if (counts) v /= others * load<float, W>(counts + i);
      store_first<S, W>(y + i, v, n);
    });
  }

  static void fold_taps(const PoolTaps& p, const float* column, float others, const float* counts,
                        void* y) {
    S* const to = static_cast<S*>(y);
    if (p.stride == 1) return fold_spaced<1>(p, column, others, counts, to);
    if (p.stride == 2) return fold_spaced<2>(p, column, others, counts, to);
    fold_spaced<0>(p, column, others, counts, to);
  }

  static PoolLineFns fns() { return {&fold_lines, &fold_taps, kInitial}; }
};

template <class S, int W>
PoolLineFns pool_line_fns(PoolFold fold) {
  if (fold == PoolFold::Max) return PoolLines<S, W, PoolFold::Max>::fns();
  if (fold == PoolFold::Min) return PoolLines<S, W, PoolFold::Min>::fns();
  return PoolLines<S, W, PoolFold::Sum>::fns();
}

template PoolLineFns pool_line_fns<float, kVectorBytes>(PoolFold);
template PoolLineFns pool_line_fns<f16_t, kVectorBytes>(PoolFold);
template PoolLineFns pool_line_fns<bf16_t, kVectorBytes>(PoolFold);

}  // namespace rlx::cpu
