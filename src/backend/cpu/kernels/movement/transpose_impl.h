// The loops of transpose.h over vectors of W bytes. Included only by the transpose_<isa>.cc files.
#pragma once

#include "rlx/backend/cpu/kernels/movement/transpose.h"
#include "rlx/backend/cpu/kernels/simd.h"

namespace rlx::cpu {

// Squares of a vector's lanes are read along the source's dense dim, turned in registers and written along the target's.
template <class T, int W>
void transpose_rect(const void* from, int64_t source_col, void* to, int64_t target_row,
                    int64_t rows, int64_t cols) {
  constexpr int L = kLanes<T, W>;
  const T* const source = static_cast<const T*>(from);
  T* const target = static_cast<T*>(to);
  const int64_t whole_rows = rows / L * L, whole_cols = cols / L * L;
  for (int64_t i = 0; i < whole_rows; i += L)
    for (int64_t j = 0; j < whole_cols; j += L) {
      Vec<T, W> square[L];
#pragma GCC unroll 16
      for (int q = 0; q < L; ++q) square[q] = load<T, W>(source + i + (j + q) * source_col);
      transpose<T, W>(square);
#pragma GCC unroll 16
      for (int q = 0; q < L; ++q) store<T, W>(target + (i + q) * target_row + j, square[q]);
    }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = i < whole_rows ? whole_cols : 0; j < cols; ++j)
      target[i * target_row + j] = source[i + j * source_col];
}

// At most 16 lanes: a square stays in registers, and is a line of the cache wide or less.
template <int W>
TransposeFn transpose_fn_of(size_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return transpose_rect<uint8_t, 16>;
    case 2:
      return transpose_rect < uint16_t, W < 32 ? W : 32 > ;
    case 4:
      return transpose_rect<uint32_t, W>;
    default:
      return transpose_rect<uint64_t, W>;
  }
}

template TransposeFn transpose_fn_of<kVectorBytes>(size_t element_bytes);

}  // namespace rlx::cpu
