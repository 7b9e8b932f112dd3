// gather (NumPy take) and scatter_add along one axis.
//
//   gather:       out[o, i, t] = table[o, idx[i], t]
//   scatter_add:  out[o, idx[u], t] += updates[o, u, t]
//
//   GatherProblem p{.element_bytes = 4, .axis = vocabulary, .count = tokens, .inner = width};
//   p.set_dense();
//   parallel_for(threads, gather_blocks(p), [&](int64_t b, int64_t e) {
//     gather(p, table, idx, out, flag, b, e);
//   });
//
// Indices are dense, of any dtype that Index takes; one outside the axis sets *flag and is clamped
// (index.h). When the axis is empty, gather writes zeros and scatter_add nothing.
//
// scatter_add is deterministic: each block owns a range of target rows, and updates with the same
// index are added in the order of u. f16 and bf16 are summed in f32 and rounded once.
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

struct ScatterAddProblem {
  DType dtype = DType::F32;  // of updates and out; bool is or
  DType index_dtype = DType::I64;
  int64_t outer = 1, axis = 0, count = 0,
          inner = 1;  // out [outer, axis, inner], updates [outer, count, inner]
  int64_t updates_outer = 0, updates_count = 0;
  int64_t out_outer = 0, out_axis = 0;
  bool zero = true;  // out starts from zero; false: adds to what is there
  void set_dense();
};

int64_t scatter_add_blocks(const ScatterAddProblem& problem);
// Bytes of scratch per thread (0 unless f16 or bf16).
size_t scatter_add_scratch_bytes(const ScatterAddProblem& problem);
void scatter_add(const ScatterAddProblem& problem, const void* updates, const void* indices,
                 void* out, uint32_t* flag, int64_t begin, int64_t end, void* scratch);

}  // namespace rlx::cpu
