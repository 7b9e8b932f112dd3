// Loops along one axis that do not vectorise as a reduction: cumsum, argmax, argmin.
//
// The tensor is seen as [outer, n, inner]; strides in elements.
//
//   AxisProblem p{.dtype = DType::F32, .outer = 64, .n = 1000, .inner = 1};
//   p.set_dense();
//   parallel_for(threads, axis_blocks(p), [&](int64_t b, int64_t e) {
//     cumsum(p, {.exclusive = false, .reverse = false}, x, y, b, e);
//   });
//
// cumsum: every dtype but bool; f16 and bf16 are summed in f32; integers wrap. In place (y == x) is
// allowed.
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
  int64_t y_outer = 0, y_n = 0, y_inner = 1;  // cumsum only
  void set_dense();
};

struct CumsumOptions {
  bool exclusive = false;
  bool reverse = false;  // suffix sums
};

int64_t axis_blocks(const AxisProblem& problem);
void cumsum(const AxisProblem& problem, CumsumOptions options, const void* x, void* y,
            int64_t begin, int64_t end);

struct ArgmaxOptions {
  bool minimum = false;
  DType out_dtype = DType::I64;
};
void argmax(const AxisProblem& problem, ArgmaxOptions options, const void* x, void* out,
            int64_t begin, int64_t end);

}  // namespace rlx::cpu
