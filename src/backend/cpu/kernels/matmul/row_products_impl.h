// The loops of row_products.h over vectors of W bytes. Included only by the row_products_<isa>.cc files.
#pragma once

#include "rlx/backend/cpu/kernels/compensated.h"
#include "rlx/backend/cpu/kernels/matmul/row_products.h"
#include "rlx/backend/cpu/kernels/simd.h"

namespace rlx::cpu {

// M x N sums of f32 vectors over steps [0, steps): add(step, sums) adds the terms of one. Terms are
// added plainly in blocks, blocks in runs, runs with what is lost (compensated.h).
template <int W, int M, int N, class Add>
[[gnu::always_inline]] inline void sum_steps(int64_t steps, Vec<float, W> (&total)[M][N], Add add) {
  using V = Vec<float, W>;
  constexpr int64_t kRun = 16 * kPlainTerms;
  V lost[M][N] = {};
  for (int64_t run = 0; run == 0 || run < steps; run += kRun) {
    V part[M][N] = {};
    const int64_t run_end = steps - run < kRun ? steps : run + kRun;
    for (int64_t block = run; block < run_end; block += kPlainTerms) {
      V sum[M][N] = {};
      const int64_t end = run_end - block < kPlainTerms ? run_end : block + kPlainTerms;
      for (int64_t step = block; step < end; ++step) add(step, sum);
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < N; ++j) part[i][j] += sum[i][j];
    }
    for (int i = 0; i < M; ++i)
      for (int j = 0; j < N; ++j) {
        if (run == 0)
          total[i][j] = part[i][j];
        else
          add_run(total[i][j], lost[i][j], part[i][j]);
      }
  }
  if (steps > kRun)
    for (int i = 0; i < M; ++i)
      for (int j = 0; j < N; ++j) total[i][j] += lost[i][j];
}

template <int W, int M, int N>
[[gnu::always_inline]] inline void dot_block(const float* x, int64_t x_row, const float* w,
                                             int64_t w_row, int64_t k, float* y, int64_t y_row) {
  using V = Vec<float, W>;
  constexpr int L = kLanes<float, W>;
  V sums[M][N];
  sum_steps<W, M, N>(k / L, sums, [&](int64_t step, V(&sum)[M][N]) __attribute__((always_inline)) {
    V right[N];
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) right[j] = load<float, W>(w + j * w_row + step * L);
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      const V left = load<float, W>(x + i * x_row + step * L);
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) sum[i][j] += left * right[j];
    }
  });
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) {
      float total = 0;
#pragma GCC unroll 16
      for (int l = 0; l < L; ++l) total += sums[i][j][l];
      for (int64_t q = k / L * L; q < k; ++q) total += x[i * x_row + q] * w[j * w_row + q];
      y[i * y_row + j] = total;
    }
}

template <int W, int M>
[[gnu::always_inline]] inline void dot_strip(const float* x, int64_t x_row, const float* w,
                                             int64_t w_row, int64_t n, int64_t k, float* y,
                                             int64_t y_row) {
  int64_t j = 0;
  for (; j + 4 <= n; j += 4) dot_block<W, M, 4>(x, x_row, w + j * w_row, w_row, k, y + j, y_row);
  for (; j < n; ++j) dot_block<W, M, 1>(x, x_row, w + j * w_row, w_row, k, y + j, y_row);
}

template <int W>
void dot_rows(const float* x, int64_t x_row, int64_t m, const float* w, int64_t w_row, int64_t n,
              int64_t k, float* y, int64_t y_row) {
  int64_t i = 0;
  for (; i + 4 <= m; i += 4)
    dot_strip<W, 4>(x + i * x_row, x_row, w, w_row, n, k, y + i * y_row, y_row);
  for (; i < m; ++i) dot_strip<W, 1>(x + i * x_row, x_row, w, w_row, n, k, y + i * y_row, y_row);
}

// M rows by N vectors of columns.
template <int W, int M, int N>
[[gnu::always_inline]] inline void combine_block(const float* x, int64_t x_row, int64_t x_col,
                                                 const float* w, int64_t w_row, int64_t k, float* y,
                                                 int64_t y_row) {
  using V = Vec<float, W>;
  constexpr int L = kLanes<float, W>;
  V sums[M][N];
  sum_steps<W, M, N>(k, sums, [&](int64_t p, V(&sum)[M][N]) __attribute__((always_inline)) {
    V right[N];
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) right[j] = load<float, W>(w + p * w_row + j * L);
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      const V left = splat<float, W>(x[i * x_row + p * x_col]);
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) sum[i][j] += left * right[j];
    }
  });
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) store<float, W>(y + i * y_row + j * L, sums[i][j]);
}

template <int W, int M>
[[gnu::always_inline]] inline void combine_strip(const float* x, int64_t x_row, int64_t x_col,
                                                 const float* w, int64_t w_row, int64_t n,
                                                 int64_t k, float* y, int64_t y_row) {
  constexpr int L = kLanes<float, W>;
  int64_t j = 0;
  for (; j + 4 * L <= n; j += 4 * L)
    combine_block<W, M, 4>(x, x_row, x_col, w + j, w_row, k, y + j, y_row);
  for (; j + L <= n; j += L) combine_block<W, M, 1>(x, x_row, x_col, w + j, w_row, k, y + j, y_row);
  for (; j < n; ++j)
    for (int i = 0; i < M; ++i) {
      double total = 0;
      for (int64_t p = 0; p < k; ++p)
        total += static_cast<double>(x[i * x_row + p * x_col]) * w[p * w_row + j];
      y[i * y_row + j] = static_cast<float>(total);
    }
}

template <int W>
void combine_rows(const float* x, int64_t x_row, int64_t x_col, int64_t m, const float* w,
                  int64_t w_row, int64_t n, int64_t k, float* y, int64_t y_row) {
  int64_t i = 0;
  for (; i + 4 <= m; i += 4)
    combine_strip<W, 4>(x + i * x_row, x_row, x_col, w, w_row, n, k, y + i * y_row, y_row);
  for (; i < m; ++i)
    combine_strip<W, 1>(x + i * x_row, x_row, x_col, w, w_row, n, k, y + i * y_row, y_row);
}

template <int W>
RowProducts row_products_of() {
  return {dot_rows<W>, combine_rows<W>};
}

template RowProducts row_products_of<kVectorBytes>();

}  // namespace rlx::cpu
