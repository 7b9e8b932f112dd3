// scatter along one axis.
//
//   out = x; out[o, idx[u], t] = combine(out[o, idx[u], t], updates[o, u, t])
//
//   ScatterProblem p{.dtype = DType::F32, .axis = vocabulary, .count = tokens, .inner = width};
//   p.set_dense();
//   parallel_for(threads, scatter_blocks(p), [&](int64_t b, int64_t e) {
//     scatter(p, x, updates, idx, out, flag, b, e, scratch);
//   });
//
// Indices are dense, of any dtype that Index takes; one outside the axis sets *flag and is clamped
// (index.h). When the axis is empty, nothing is written.
//
// scatter is deterministic: each block owns a range of target rows, and updates with the same index
// are combined in the order of u. f16 and bf16 are combined in f32 and rounded once. x may be
// nullptr (zeros) or out itself.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rlx/ir/dtype.h"

namespace rlx::cpu {

enum class ScatterKind : uint8_t { set, add, mul, min, max };

struct ScatterProblem {
  ScatterKind kind = ScatterKind::add;
  DType dtype = DType::F32;  // of x, updates and out; adding bool is or; no min and max of c64
  DType index_dtype = DType::I64;
  int64_t outer = 1, axis = 0, count = 0,
          inner = 1;  // x and out [outer, axis, inner], updates [outer, count, inner]
  int64_t updates_outer = 0, updates_count = 0;
  int64_t out_outer = 0, out_axis = 0;  // also of x
  void set_dense();
};

int64_t scatter_blocks(const ScatterProblem& problem);
// Bytes of scratch per thread.
size_t scatter_scratch_bytes(const ScatterProblem& problem);
void scatter(const ScatterProblem& problem, const void* x, const void* updates, const void* indices,
             void* out, uint32_t* flag, int64_t begin, int64_t end, void* scratch);

}  // namespace rlx::cpu
