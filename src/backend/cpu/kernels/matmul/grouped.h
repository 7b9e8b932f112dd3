// Products of rows with the weight of the expert that each row names; f32.
//
//   grouped_matmul(p, x, w, ids, y, flag, begin, end, scratch, f);    // blocks [begin, end) of grouped_blocks(p)
//
// A block is a tile of columns of one expert: it collects that expert's rows, a few at a time, and multiplies them
// with the tile. Ids out of range set *flag.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rlx/backend/cpu/kernels/matmul/row_products.h"
#include "rlx/ir/dtype.h"
#include "rlx/quant/format.h"

namespace rlx::cpu {

struct GroupedProblem {
  int64_t m = 0, k = 0, n = 0, experts = 0;
  DType id_dtype = DType::I64;
  bool transposed = false;             // weights [E, N, K]
  const FormatInfo* format = nullptr;  // weights in ggml blocks, [E, N, K]; nullptr: f32
};

int64_t grouped_blocks(const GroupedProblem& p);
size_t grouped_scratch_bytes(const GroupedProblem& p);
void grouped_matmul(const GroupedProblem& p, const float* x, const void* w, const void* ids,
                    float* y, uint32_t* flag, int64_t begin, int64_t end, std::byte* scratch,
                    const RowProducts& f);

// result[e] [k, n] = sum of x[i]^T y[i] over the rows of expert e; a block is a few of its k rows.
int64_t grouped_outer_blocks(const GroupedProblem& p);
size_t grouped_outer_scratch_bytes(const GroupedProblem& p);
void grouped_outer(const GroupedProblem& p, const float* x, const float* y, const void* ids,
                   float* result, uint32_t* flag, int64_t begin, int64_t end, std::byte* scratch,
                   const RowProducts& f);

// How many rows of k floats a tile of unpacked weights has: about a megabyte, at most 64.
int64_t weight_tile_rows(int64_t k);

}  // namespace rlx::cpu
