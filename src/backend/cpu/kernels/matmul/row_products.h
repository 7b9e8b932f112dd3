// Products of a few f32 rows with a small matrix that lies in cache: what kernels use that unpack a tile of weights
// and multiply with it at once.
//
//   const RowProducts& f = row_products(host_isa());
//   f.dot(x, k, m, tile, k, n, k, y, ldy);          // y[i, j] = sum over p of x[i, p] * tile[j, p]
//
// Every element is summed over p in one order that depends on the Isa and k alone.
#pragma once

#include <cstdint>

namespace rlx::cpu {

enum class Isa : uint8_t;  // isa.h

struct RowProducts {
  // y[i * y_row + j] = sum over p < k of x[i * x_row + p] * w[j * w_row + p], i < m, j < n
  void (*dot)(const float* x, int64_t x_row, int64_t m, const float* w, int64_t w_row, int64_t n,
              int64_t k, float* y, int64_t y_row);
  // y[i * y_row + j] = sum over p < k of x[i * x_row + p * x_col] * w[p * w_row + j], i < m, j < n
  void (*combine)(const float* x, int64_t x_row, int64_t x_col, int64_t m, const float* w,
                  int64_t w_row, int64_t n, int64_t k, float* y, int64_t y_row);
};

RowProducts row_products(Isa isa);

// One per instruction set (row_products_<isa>.cc).
template <int W>
RowProducts row_products_of();

}  // namespace rlx::cpu
