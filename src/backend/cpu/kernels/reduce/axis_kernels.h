// Loops along one axis that do not vectorise as a reduction: running sums, products, extrema,
// logsumexp and recurrences; argmax, argmin.
//
// The tensor is seen as [outer, n, inner]; strides in elements.
//
//   AxisProblem p{.dtype = DType::F32, .outer = 64, .n = 1000, .inner = 1};
//   p.set_dense();
//   parallel_for(threads, axis_blocks(p), [&](int64_t b, int64_t e) {
//     cumsum(p, {.exclusive = false, .reverse = false}, x, y, b, e);
//   });
//
// cumsum, cumprod: every dtype but bool; f16 and bf16 are computed in f32; integers wrap.
// cumulative_extremum: every real dtype; also the position (of the last among equals, NaN wins), or
// -1 where there is nothing yet. cumlogsumexp: every float dtype. linear_recurrence: every float
// dtype and c64, its factors lie as x does. In place (y == x) is allowed.
// argmax, argmin: the first position of the largest (smallest) element; NaN counts as the largest
// (smallest), as in NumPy. Every dtype but c64; the result is [outer, inner] dense in out_dtype
// (any integer dtype, or f32/f64). n == 0 is the caller's error.
#pragma once

#include <cstdint>

#include "rlx/ir/dtype.h"

namespace rlx::cpu {

struct AxisProblem {
  DType dtype = DType::F32;
  int64_t outer = 1, n = 0, inner = 1;
  int64_t x_outer = 0, x_n = 0, x_inner = 1;
  int64_t y_outer = 0, y_n = 0, y_inner = 1;  // but argmax
  void set_dense();
};

struct ScanOptions {
  bool exclusive = false;
  bool reverse = false;  // from the end
};

int64_t axis_blocks(const AxisProblem& problem);
void cumsum(const AxisProblem& problem, ScanOptions options, const void* x, void* y, int64_t begin,
            int64_t end);

void cumprod(const AxisProblem& problem, ScanOptions options, const void* x, void* y, int64_t begin,
             int64_t end);
void cumulative_extremum(const AxisProblem& problem, ScanOptions options, bool minimum,
                         const void* x, void* y, int64_t* indices, int64_t begin, int64_t end);
void cumlogsumexp(const AxisProblem& problem, ScanOptions options, const void* x, void* y,
                  int64_t begin, int64_t end);
// y[i] = a[i] * y[i-1] + x[i]; a lies as x does.
void linear_recurrence(const AxisProblem& problem, ScanOptions options, const void* a,
                       const void* x, void* y, int64_t begin, int64_t end);

struct ArgmaxOptions {
  bool minimum = false;
  DType out_dtype = DType::I64;
  bool last = false;  // of equals
};
void argmax(const AxisProblem& problem, ArgmaxOptions options, const void* x, void* out,
            int64_t begin, int64_t end);

}  // namespace rlx::cpu
