// Reading by indices: gather (NumPy take) along one axis, and an index for each element.
//
//   gather:      out[o, i, t] = table[o, idx[i], t]
//   take_along:  out[o, i, t] = x[o, idx[o, i, t], t]
//
//   GatherProblem p{.element_bytes = 4, .axis = vocabulary, .count = tokens, .inner = width};
//   p.set_dense();
//   parallel_for(threads, gather_blocks(p), [&](int64_t b, int64_t e) {
//     gather(p, table, idx, out, flag, b, e);
//   });
//
// Indices are dense, of any dtype that Index takes; one outside the axis sets *flag and is clamped
// (index.h). When the axis is empty, zeros are written.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rlx/ir/dtype.h"

namespace rlx::cpu {

struct GatherProblem {
  size_t element_bytes = 4;
  DType index_dtype = DType::I64;
  int64_t outer = 1, axis = 0, count = 0, inner = 1;
  // Strides in elements; inner has stride 1.
  int64_t table_outer = 0, table_axis = 0;
  int64_t out_outer = 0, out_count = 0;
  void set_dense();
};

int64_t gather_blocks(const GatherProblem& problem);
void gather(const GatherProblem& problem, const void* table, const void* indices, void* out,
            uint32_t* flag, int64_t begin, int64_t end);

// All operands are dense: x [outer, axis, inner], indices and out [outer, count, inner].
struct TakeAlongProblem {
  size_t element_bytes = 4;
  DType index_dtype = DType::I64;
  int64_t outer = 1, axis = 0, count = 0, inner = 1;
};

int64_t take_along_blocks(const TakeAlongProblem& problem);
void take_along(const TakeAlongProblem& problem, const void* x, const void* indices, void* out,
                uint32_t* flag, int64_t begin, int64_t end);

}  // namespace rlx::cpu
