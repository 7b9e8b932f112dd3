// Tensors as bytes of a file.
#pragma once

#include "rlx/base/bytes.h"
#include "rlx/ir/tensor.h"

namespace rlx {

// Elements and bytes of a tensor of these sizes, or nullopt: a negative size, more elements than
// 2^53 or more bytes than 2^48 (counting a zero as one, so that no product on the way overflows).
std::optional<int64_t> checked_tensor_bytes(DType dtype, const Ints& sizes);

// The tensor made of the bytes at the reader's place. A bool that is neither 0 nor 1 raises "bool".
Tensor read_tensor_data(ByteReader& r, DType dtype, Ints sizes);

}  // namespace rlx
