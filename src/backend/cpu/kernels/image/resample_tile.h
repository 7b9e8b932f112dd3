// Weighted sums along axes: the interface between the plan and the code compiled per instruction set.
#pragma once

#include <cstdint>

namespace rlx::cpu {

// An axis between others: x [lead, from, rest] becomes [lead, to, rest], result o the sum over t of
// weights[o * taps + t] * x[indices[o * taps + t]].
struct ResampleAxis {
  int64_t from, to, taps, rest;
  const int64_t* indices;
  const float* weights;
};

// x is in storage X, y in storage Y; sums are f32.
struct ResampleFns {
  // Rows [begin, end) of the results [lead * to] of `rest` elements each; y is where the first is written.
  void (*lines)(const ResampleAxis& a, const void* x, void* y, int64_t begin, int64_t end);
  // The results [begin, end) of `rows` rows [from, rest], whose places lie in [low, high). For `rest` of few elements:
  // rows stand beside each other in vectors. scratch: (high - low) * rest vectors.
  void (*columns)(const ResampleAxis& a, const void* x, void* y, int64_t rows, int64_t begin,
                  int64_t end, int64_t low, int64_t high, float* scratch);
  int64_t lanes;
};
template <class X, class Y, int W>
ResampleFns resample_fns();

}  // namespace rlx::cpu
