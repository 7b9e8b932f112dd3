// The loops of row_products.h over vectors of W bytes. Included only by the row_products_<isa>.cc files.
#pragma once

#include "rlx/backend/cpu/kernels/row_products.h"
#include "rlx/backend/cpu/kernels/simd.h"

namespace rlx::cpu {

template <int W, int M, int N>
[[gnu::always_inline]] inline void dot_block(const float* x, int64_t x_row, const float* w,
                                             int64_t w_row, int64_t k, float* y, int64_t y_row) {
  using V = Vec<float, W>;
  constexpr int L = kLanes<float, W>;
  V sum[M][N] = {};
  int64_t p = 0;
  for (; p + L <= k; p += L) {
    V right[N];
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) right[j] = load<float, W>(w + j * w_row + p);
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      const V left = load<float, W>(x + i * x_row + p);
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) sum[i][j] += left * right[j];
    }
  }
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) {
      float total = 0;
#pragma GCC unroll 16
      for (int l = 0; l < L; ++l) total += sum[i][j][l];
      for (int64_t q = p; q < k; ++q) total += x[i * x_row + q] * w[j * w_row + q];
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
  V sum[M][N] = {};
  for (int64_t p = 0; p < k; ++p) {
    V right[N];
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) right[j] = load<float, W>(w + p * w_row + j * L);
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      const V left = splat<float, W>(x[i * x_row + p * x_col]);
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) sum[i][j] += left * right[j];
    }
  }
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) store<float, W>(y + i * y_row + j * L, sum[i][j]);
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
      float total = 0;
      for (int64_t p = 0; p < k; ++p) total += x[i * x_row + p * x_col] * w[p * w_row + j];
      y[i * y_row + j] = total;
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

}  // namespace rlx::cpu
