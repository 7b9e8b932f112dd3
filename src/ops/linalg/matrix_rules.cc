#include "rlx/ops/linalg/matrix_rules.h"

#include <algorithm>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/linalg/linalg.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/reduce/reduce.h"

namespace rlx {
namespace {

Value positions(Builder& b, const Dim& rows, const Dim& columns, int64_t axis) {
  const Shape shape = axis == 0 ? Shape{rows, Dim(1)} : Shape{Dim(1), columns};
  return op::iota(b, {}, {DType::I64, shape, axis});
}

// A mask [rows, columns] of a comparison of the row's with the column's position.
Value mask_of(Builder& b, const Shape& shape, const Op<>& compare) {
  const Dim &rows = dim_from_end(shape, 2), &columns = dim_from_end(shape, 1);
  return compare(b, positions(b, rows, columns, 0), positions(b, rows, columns, 1));
}

Value masked(Builder& b, Value mask, Value x) {
  return op::select(b, mask, x, b.constant_like(x, 0));
}

Value slice_from_end(Builder& b, Value x, int64_t from_end, const Dim& first, const Dim& last) {
  const Shape shape = b.shape(x);
  const auto axis = shape.size() - static_cast<size_t>(from_end);
  if (first == Dim(0) && last == shape[axis]) return x;
  Shape start(shape.size(), Dim(0)), limit = shape;
  start[axis] = first, limit[axis] = last;
  return op::slice(b, x, {start, limit, {}});
}

Value insert_from_end(Builder& b, Value x, size_t from_end) {
  Shape shape = b.shape(x);
  shape.insert(shape.end() - static_cast<int64_t>(from_end), Dim(1));
  return op::reshape(b, x, {shape});
}

}  // namespace

const Dim& dim_from_end(const Shape& shape, size_t i) { return shape[shape.size() - i]; }

Shape batch_of(const Shape& matrices) { return Shape(matrices.begin(), matrices.end() - 2); }

Shape with_matrix(Shape batch, const Dim& rows, const Dim& columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

void require_matrix(const InferArgs& a, size_t i) {
  if (a.in[i].rank() < 2)
    bad_operands(a, "matrix-rank", fmt::format("{} must have rank 2 or more", a.name(i)));
}

void require_square(const InferArgs& a, size_t i) {
  require_matrix(a, i);
  const Shape& s = a.in[i].shape;
  if (differ(dim_from_end(s, 1), dim_from_end(s, 2)))
    bad_operands(a, "matrix-square", fmt::format("the matrices of {} must be square", a.name(i)));
}

Types infer_square(const InferArgs& a) {
  require_square(a, 0);
  return {a.in[0]};
}

Dim smaller(std::string_view op, const Dim& m, const Dim& n) {
  if (m == n) return m;
  user_check(m.is_static() && n.is_static(), "matrix-symbolic",
             "{}: which of {} and {} is smaller must be known; bind the symbols first", op, m, n);
  return std::min(m.value(), n.value());
}

DType real_type(DType d) { return is_complex(d) ? DType::F32 : d; }

Value product(Builder& b, Value x, Value y) { return op::matmul(b, x, y); }

Value adjoint(Builder& b, Value x) { return matrix_transpose(b, conj_if_complex(b, x)); }

Value hermitian_part(Builder& b, Value x) { return (Expr(b, x) + Expr(b, adjoint(b, x))) * 0.5; }

Value identity(Builder& b, DType dtype, const Dim& n) {
  return cast_to(b, mask_of(b, {n, n}, op::eq), dtype);
}

Value triangle(Builder& b, Value x, bool lower, bool strict) {
  const Op<>& compare = lower ? (strict ? op::gt : op::ge) : (strict ? op::lt : op::le);
  return masked(b, mask_of(b, b.shape(x), compare), x);
}

Value diagonal_part(Builder& b, Value x) { return masked(b, mask_of(b, b.shape(x), op::eq), x); }

Value diagonal(Builder& b, Value x) {
  return sum_axes(b, diagonal_part(b, x), {b.type(x).rank() - 2});
}

Value real_part(Builder& b, Value x) { return is_complex(b.type(x).dtype) ? op::real(b, x) : x; }

Value modulus_squared(Builder& b, Value x) {
  if (!is_complex(b.type(x).dtype)) return op::square(b, x);
  return op::add(b, op::square(b, op::real(b, x)), op::square(b, op::imag(b, x)));
}

Value as_row(Builder& b, Value x) { return insert_from_end(b, x, 1); }
Value as_column(Builder& b, Value x) { return insert_from_end(b, x, 0); }

Value columns_of(Builder& b, Value x, const Dim& first, const Dim& last) {
  return slice_from_end(b, x, 1, first, last);
}
Value rows_of(Builder& b, Value x, const Dim& first, const Dim& last) {
  return slice_from_end(b, x, 2, first, last);
}

Value reciprocal_or_zero(Builder& b, Value x) {
  const Value zero = b.constant_like(x, 0), one = b.constant_like(x, 1);
  const Value is_zero = op::eq(b, x, zero);
  return op::select(b, is_zero, zero, op::div(b, one, op::select(b, is_zero, one, x)));
}

Value inverse_gaps(Builder& b, Value v) {
  return reciprocal_or_zero(b, op::sub(b, as_row(b, v), as_column(b, v)));
}

Values vmap_leading(Builder& b, const VmapArgs& a) { return b.clone(a.node, a.in); }

}  // namespace rlx
