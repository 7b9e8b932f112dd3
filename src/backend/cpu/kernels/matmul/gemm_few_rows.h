// Products of so few rows that reading B is what takes time.
//
// Included only by files compiled for one instruction set (simd.h says why).
#pragma once

#include "rlx/backend/cpu/kernels/matmul/gemm_micro.h"

namespace rlx::cpu {

// With no more rows than this, packed panels are read several at a time.
template <int W>
inline constexpr int kStreamRows = W == 64 ? 7 : 3;
// How many: as many streams of memory, and sums enough that no addition waits for the last.
template <int W, int R>
inline constexpr int kStreams = (W == 64 && R <= 3) || R == 1 ? 4 : 2;

// C[R x G panels] (+)= A[R x k] B[k x G panels]; columns below n of C are written.
template <class T, int W, int R, Into into>
[[gnu::noinline]] void micro_streams(const GemmArgs<T>& g) {
  constexpr int G = kStreams<W, R>, V = kPanelVectors, L = kLanes<T, W>;
  constexpr int64_t kAhead = 32 * kPanel<T, W>;
  Vec<T, W> sum[G][R][V];
#pragma GCC unroll 4
  for (int s = 0; s < G; ++s) clear_block<T, W, R, V>(sum[s]);
  const T *a = g.a, *b = g.b;
  for (int64_t p = 0; p < g.k; ++p, a += g.a_col, b += g.b_row) {
#pragma GCC unroll 4
    for (int s = 0; s < G; ++s) {
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        const T* const from = b + s * g.panel_stride + v * L;
        __builtin_prefetch(from + kAhead);
        const Vec<T, W> row = load<T, W>(from);
#pragma GCC unroll 7
        for (int i = 0; i < R; ++i) sum[s][i][v] += a[i * g.a_row] * row;
      }
    }
  }
  MicroArgs<T> to{g.k, g.a, g.a_row, g.a_col, g.b, g.b_row, g.c, g.c_row};
#pragma GCC unroll 4
  for (int s = 0; s < G; ++s, to.c += kPanel<T, W>) finish_block<T, W, R, V, into>(sum[s], to);
}

// By number of rows. Twice as many rows are two halves, which read as many panels each.
template <class T, int W, Into into>
struct StreamTable {
  static_assert(kStreams<W, (kStreamRows<W> + 1) / 2> == kStreams<W, kStreamRows<W>>);
  void (*fn[kStreamRows<W> + 1])(const GemmArgs<T>&) = {};
  int64_t panels[kStreamRows<W> + 1] = {};
  template <int R>
  constexpr void fill() {
    if constexpr (R > 0) {
      fn[R] = &micro_streams<T, W, R, into>;
      panels[R] = kStreams<W, R>;
      fill<R - 1>();
    }
  }
  constexpr StreamTable() { fill<kStreamRows<W>>(); }
};
template <class T, int W, Into into>
inline constexpr StreamTable<T, W, into> kStreamed{};

}  // namespace rlx::cpu
