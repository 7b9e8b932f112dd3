// f32 products with quantised weights that are never unpacked as a whole: a block unpacks the weights of a few columns
// into scratch and multiplies all rows of x with them.
//
//   DequantProblem p{.m = 8, .k = 4096, .n = 4096, .scheme = parse_scheme("gguf_q4k")};
//   dequant_matmul(p, {x, packed, nullptr, nullptr}, y, begin, end, scratch, row_products(host_isa()));
#pragma once

#include <cstddef>
#include <cstdint>

#include "rlx/backend/cpu/kernels/matmul/row_products.h"
#include "rlx/quant/format.h"

namespace rlx::cpu {

struct DequantProblem {
  int64_t m = 0, k = 0, n = 0;
  QuantScheme scheme;
};
struct
    DequantOperands {  // as the op dequant_matmul lists them; those the scheme does not use may be nullptr
  const float* x;
  const void *w, *scale, *zero;
};

int64_t dequant_matmul_blocks(const DequantProblem& p);
size_t dequant_matmul_scratch_bytes(const DequantProblem& p);
void dequant_matmul(const DequantProblem& p, const DequantOperands& in, float* y, int64_t begin,
                    int64_t end, std::byte* scratch, const RowProducts& f);

}  // namespace rlx::cpu
