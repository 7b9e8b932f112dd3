// Tiles of products that are formed in runs (compensated.h).
//
// Included only by files compiled for one instruction set (simd.h says why).
#pragma once

#include "rlx/backend/cpu/kernels/compensated.h"
#include "rlx/backend/cpu/kernels/matmul/gemm_micro.h"

namespace rlx::cpu {

// sum[i] += run[i], what that rounds away to lost[i]; rows of `columns` (whole vectors may be read
// and written in `lost` and `run`).
template <class T, int W>
void add_run_tile(int64_t rows, int64_t columns, T* sum, int64_t sum_row, T* lost, const T* run,
                  int64_t row) {
  constexpr int L = kLanes<T, W>;
  for (int64_t i = 0; i < rows; ++i, sum += sum_row, lost += row, run += row) {
    int64_t j = 0;
    for (; j + L <= columns; j += L) {
      Vec<T, W> s = load<T, W>(sum + j), l = load<T, W>(lost + j);
      add_run(s, l, load<T, W>(run + j));
      store<T, W>(sum + j, s);
      store<T, W>(lost + j, l);
    }
    for (; j < columns; ++j) add_run(sum[j], lost[j], run[j]);
  }
}

}  // namespace rlx::cpu
