// Weights in the formats whose scales are tensors of their own (format.h): codes, scales and zero points as dequant_matmul
// reads them.
//
//   CodedWeight w = encode_weight(parse_scheme("int4/32"), values, k, n);      // values [K, N]
//   // w.codes u8, w.scale f32 [ceil(K / 32), N], w.fourth f32: the zero points
//
// int8 is symmetric, int8a and int4 spend all their codes on the range of a group with 0 in it; fp8 has a scale per column,
// with which its largest element becomes the largest number; nvfp4 one per sixteen elements and one for all. Groups of zeros
// have the scale 1. Values must be finite. Raises "quant-scheme" for a ggml scheme.
#pragma once

#include "rlx/ir/tensor.h"
#include "rlx/quant/format.h"

namespace rlx {

struct CodedWeight {
  Tensor codes, scale;
  std::optional<Tensor> fourth;  // zero points, or nvfp4's scale of all
  std::vector<Tensor> operands() const;
};

CodedWeight encode_weight(const QuantScheme& scheme, const float* values, int64_t k, int64_t n);

}  // namespace rlx
