// The sums of row_sums.h. Included only by the row_sums_<isa>.cc files.
#pragma once

#include "rlx/backend/cpu/kernels/compensated.h"
#include "rlx/backend/cpu/kernels/indexing/row_sums.h"
#include "rlx/backend/cpu/kernels/simd.h"

namespace rlx::cpu {

template <class S, int W>
struct RowSums {
  using T = Compute<S>;
  using V = Vec<T, W>;
  static constexpr int L = kLanes<T, W>;
  static constexpr int64_t kAhead = 16;  // rows that are asked for before they are added

  const S* updates;
  int64_t stride;
  const uint64_t* which;
  int64_t count, listed;

  [[gnu::always_inline]] const S* row(int64_t i) const {
    return updates + static_cast<int64_t>(which[i] & 0xffffffff) * stride;
  }

  // N vectors of columns, from column t on.
  template <int N, bool keeps_lost>
  [[gnu::always_inline]] void add(V* sum, int64_t t) const {
    V lost[N] = {};
    for (int64_t i = 0; i < count; ++i) {
      if (i + kAhead < listed) {
        const S* const next = row(i + kAhead) + t;
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v) __builtin_prefetch(next + v * L);
      }
      const S* const from = row(i) + t;
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) {
        const V x = load_as<S, W>(from + v * L);
        if constexpr (keeps_lost)
          add_run(sum[v], lost[v], x);
        else
          sum[v] += x;
      }
    }
    if constexpr (keeps_lost) {
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) sum[v] += lost[v];
    }
  }

  // Fewer columns than a vector has.
  template <bool keeps_lost>
  [[gnu::always_inline]] void add_few(V* sum, int64_t n) const {
    V lost = {};
    for (int64_t i = 0; i < count; ++i) {
      const V x = load_first<S, W>(row(i), n);
      if constexpr (keeps_lost)
        add_run(*sum, lost, x);
      else
        *sum += x;
    }
    if constexpr (keeps_lost) *sum += lost;
  }

  template <int N, bool keeps_lost>
  [[gnu::always_inline]] void columns(S* out, const S* start, int64_t t) const {
    V sum[N] = {};
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v)
      if (start) sum[v] = load_as<S, W>(start + t + v * L);
    add<N, keeps_lost>(sum, t);
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) store_as<S, W>(out + t + v * L, sum[v]);
  }

  template <bool keeps_lost>
  void all(S* out, const S* start, int64_t n) const {
    V last = {};
    if (n < L) {
      if (start) last = load_first<S, W>(start, n);
      add_few<keeps_lost>(&last, n);
      return store_first<S, W>(out, last, n);
    }
    // The last vector may overlap the one before it. It is made first, because out may be start.
    const int64_t whole = n / L * L;
    if (whole < n) {
      if (start) last = load_as<S, W>(start + n - L);
      add<1, keeps_lost>(&last, n - L);
    }
    int64_t t = 0;
    for (; t + 4 * L <= n; t += 4 * L) columns<4, keeps_lost>(out, start, t);
    for (; t < whole; t += L) columns<1, keeps_lost>(out, start, t);
    if (whole < n) store_as<S, W>(out + n - L, last);
  }

  static void run(S* out, const S* start, const S* updates, int64_t stride, const uint64_t* which,
                  int64_t count, int64_t listed, int64_t n, bool keeps_lost) {
    const RowSums sums{updates, stride, which, count, listed};
    keeps_lost ? sums.template all<true>(out, start, n) : sums.template all<false>(out, start, n);
  }
};

template <int W>
RowSumFns row_sum_fns_of() {
  return {&RowSums<float, W>::run, &RowSums<double, W>::run, &RowSums<f16_t, W>::run,
          &RowSums<bf16_t, W>::run};
}

template RowSumFns row_sum_fns_of<kVectorBytes>();

}  // namespace rlx::cpu
