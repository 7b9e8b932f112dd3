// Graph helpers for ops on matrices: the last two dims of a value, leading dims are batches.
#pragma once

#include "rlx/ops/rules.h"

namespace rlx {

inline constexpr DTypeSet kMatrixTypes{DType::F32, DType::F64, DType::C64};

// Dims from the end: 1 is the last.
const Dim& dim_from_end(const Shape& shape, size_t i);
Shape batch_of(const Shape& matrices);                                // without the last two dims
Shape with_matrix(Shape batch, const Dim& rows, const Dim& columns);  // batch + [rows, columns]
// Raises "matrix-rank" when operand i has rank < 2, "matrix-square" when it is not square.
void require_matrix(const InferArgs& a, size_t i);
void require_square(const InferArgs& a, size_t i);
Types infer_square(const InferArgs& a);  // that of operand 0, which is square
// The smaller of two sizes; raises "matrix-symbolic" when symbols hide which it is.
Dim smaller(std::string_view op, const Dim& m, const Dim& n);
DType real_type(DType d);  // f32 for c64

Value product(Builder& b, Value x, Value y);
Value adjoint(Builder& b, Value x);         // conjugate transpose
Value hermitian_part(Builder& b, Value x);  // (x + x^H) / 2
Value identity(Builder& b, DType dtype, const Dim& n);
// x on and below the diagonal (above: lower = false), without the diagonal when `strict`; else 0.
Value triangle(Builder& b, Value x, bool lower, bool strict = false);
Value diagonal_part(Builder& b, Value x);  // x on the diagonal, else 0
Value diagonal(Builder& b, Value x);       // [.., n, n] -> [.., n]
Value real_part(Builder& b, Value x);      // x itself when real
Value modulus_squared(Builder& b, Value x);
Value as_row(Builder& b, Value x);     // [.., n] -> [.., 1, n]
Value as_column(Builder& b, Value x);  // [.., n] -> [.., n, 1]
// Columns [first, last) of matrices, or rows.
Value columns_of(Builder& b, Value x, const Dim& first, const Dim& last);
Value rows_of(Builder& b, Value x, const Dim& first, const Dim& last);
// 1 / x, and 0 where x is 0; differentiable to any order.
Value reciprocal_or_zero(Builder& b, Value x);
// 1 / (v[j] - v[i]) at [i, j], 0 where they are equal: what couples two eigenvectors.
Value inverse_gaps(Builder& b, Value v);

// Single-operand ops whose leading dims are batches: batched is one more of them.
Values vmap_leading(Builder& b, const VmapArgs& a);

}  // namespace rlx
