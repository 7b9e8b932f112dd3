// Transposes rectangles of elements of 1, 2, 4 or 8 bytes.
//
//   transpose_fn(host_isa(), 4)(source, source_col, target, target_row, rows, cols);
//   // target[i * target_row + j] = source[i + j * source_col], i < rows, j < cols
#pragma once

#include <cstddef>
#include <cstdint>

namespace rlx::cpu {

enum class Isa : uint8_t;  // isa.h

using TransposeFn = void (*)(const void* source, int64_t source_col, void* target,
                             int64_t target_row, int64_t rows, int64_t cols);

TransposeFn transpose_fn(Isa isa, size_t element_bytes);

// One per instruction set (transpose_<isa>.cc).
template <int W>
TransposeFn transpose_fn_of(size_t element_bytes);

}  // namespace rlx::cpu
