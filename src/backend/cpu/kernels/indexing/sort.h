// Sorting along one axis, the k largest, and binary search.
//
// The tensor is dense, [outer, n, inner]; a line is n elements in steps of inner.
//
//   SortProblem p{.dtype = DType::F32, .outer = 64, .n = 1000, .inner = 1, .k = 1000};
//   parallel_for(threads, sort_blocks(p), [&](int64_t b, int64_t e) {
//     sort(p, x, values, indices, b, e, scratch);
//   });
//
// Order: NaN is the largest, -0 equals 0, equals stay in the order of their positions, also when
// descending. Every dtype but c64. Takes n log n steps, or n + k log k for the k first of
// many, most of which are passed over by vectors when k is at most about n / 8 and inner 1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rlx/backend/cpu/kernels/stop_poll.h"
#include "rlx/ir/dtype.h"

namespace rlx::cpu {

struct SortProblem {
  DType dtype = DType::F32;
  DType index_dtype = DType::I64;  // any integer or float dtype
  bool descending = false;
  int64_t outer = 1, n = 0, inner = 1;
  int64_t k = 0;  // how many of each line are wanted; results are [outer, k, inner]
};

int64_t sort_blocks(const SortProblem& problem);
size_t sort_scratch_bytes(const SortProblem& problem);  // per thread
// values or indices may be nullptr. `stop` is asked while a long line is sorted.
void sort(const SortProblem& problem, const void* x, void* values, void* indices, int64_t begin,
          int64_t end, void* scratch, StopPoll stop = {});

// out[l, i] = how many elements of the ascending line l of `sorted` are smaller than values[l, i]
// (with `right`: smaller or equal), in the order above.
struct SearchProblem {
  DType dtype = DType::F32;
  bool right = false, one_line = false;  // one_line: all lines of values search the same one
  int64_t lines = 1, n = 0, m = 0;       // values and out are [lines, m]
};
int64_t search_blocks(const SearchProblem& problem);
void search(const SearchProblem& problem, const void* sorted, const void* values, int64_t* out,
            int64_t begin, int64_t end);

}  // namespace rlx::cpu
