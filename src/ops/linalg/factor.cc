// Solvers, Cholesky's factor and LU. The orthogonal factorisations are in spectral.cc.
#include "rlx/ops/linalg/factor.h"

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/linalg/dense_reference.h"
#include "rlx/ops/linalg/matrix_rules.h"
#include "rlx/ops/movement/movement.h"

namespace rlx {
namespace {

using dense::Matrix;

// ---- dense_solve --------------------------------------------------------------------------------

// The right side is one vector per matrix.
bool is_vector(const Type& a, const Type& rhs) { return rhs.rank() == a.rank() - 1; }

Types infer_solve(const InferArgs& a) {
  require_same_dtype(a);
  require_square(a, 0);
  const bool vector = is_vector(a.in[0], a.in[1]);
  Shape rhs = a.in[1].shape;
  if (vector) rhs.push_back(Dim(1));
  if (rhs.size() < 2)
    bad_operands(a, "matrix-rank", "the right side must have rank 2 or more, or one less than A");
  const Dim n = dim_from_end(a.in[0].shape, 1);
  if (differ(n, dim_from_end(rhs, 2)))
    bad_operands(a, "solve-shape",
                 fmt::format("A has {} rows and the right side {}", n, dim_from_end(rhs, 2)));
  auto batch = broadcast_shapes(batch_of(a.in[0].shape), batch_of(rhs));
  if (!batch) bad_operands(a, "broadcast", "the batch dims do not broadcast");
  batch->push_back(agreed(n, dim_from_end(rhs, 2)));
  if (!vector) batch->push_back(rhs.back());
  return {{a.in[0].dtype, *batch}};
}

// Calls f with the number of each result and of the matrices of both operands that it is made of.
template <class F>
void for_each_pair(const Ints& left, const Ints& right, F f) {
  const Shape both = *broadcast_shapes(Shape::of(left), Shape::of(right));
  const Ints l = broadcast_strides(left, both.sizes()), r = broadcast_strides(right, both.sizes());
  int64_t number = 0;
  for_each_index(both.sizes(), [&](const Ints& index) {
    int64_t i = 0, j = 0;
    for (size_t d = 0; d < index.size(); ++d) i += index[d] * l[d], j += index[d] * r[d];
    f(number++, i, j);
  });
}

Ints leading(const Tensor& t, size_t rank) {
  return Ints(t.sizes().begin(), t.sizes().end() - static_cast<int64_t>(rank));
}

Tensors evaluate_solve(const EvalArgs& e) {
  const bool vector = is_vector(e.in[0].type(), e.in[1].type());
  Tensor out = e.make();
  for_each_pair(
      leading(e.in[0], 2), leading(e.in[1], vector ? 1 : 2),
      [&](int64_t number, int64_t i, int64_t j) {
        const auto x =
            dense::solve(dense::matrix_at(e.in[0], i),
                         vector ? dense::vector_at(e.in[1], j) : dense::matrix_at(e.in[1], j));
        user_check(x.has_value(), "singular", "{}: matrix {} is singular", e.node.op->name, i);
        dense::put_part(out, number, x->values);
      });
  return {out};
}

Value columns_form(Builder& b, Value x, bool vector) { return vector ? as_column(b, x) : x; }
Value vector_form(Builder& b, Value x, bool vector) {
  Shape shape = b.shape(x);
  if (!vector) return x;
  shape.pop_back();
  return op::reshape(b, x, {shape});
}

// x with size-1 dims in front, of rank `rank`.
Value pad_rank(Builder& b, Value x, int64_t rank) {
  Shape shape = b.shape(x);
  while (shape.rank() < rank) shape.insert(shape.begin(), Dim(1));
  return reshape_to(b, x, shape);
}

// dense_solve on a right side that is a matrix whatever its rank.
Value solve_columns(Builder& b, Value a, Value rhs) {
  return op::dense_solve(b, a, pad_rank(b, rhs, b.type(a).rank()));
}

Values jvp_solve(Builder& b, const JvpArgs& a) {
  const bool vector = is_vector(b.type(a.in[0]), b.type(a.in[1]));
  Value rhs = kNone;
  if (a.tangents[0].valid())
    rhs = op::neg(b, product(b, a.tangents[0], columns_form(b, a.out[0], vector)));
  if (a.tangents[1].valid()) rhs = add_maybe(b, rhs, columns_form(b, a.tangents[1], vector));
  if (!rhs.valid()) return {kNone};
  return {vector_form(b, solve_columns(b, a.in[0], rhs), vector)};
}

// With y = A^-H g: dB = y and dA = -y X^H.
Values vjp_solve(Builder& b, const VjpArgs& v) {
  const bool vector = is_vector(b.type(v.in[0]), b.type(v.in[1]));
  const Value y = solve_columns(b, adjoint(b, v.in[0]), columns_form(b, v.cotangents[0], vector));
  Values out{kNone, kNone};
  if (v.wanted[0]) {
    const Value x = columns_form(b, v.out[0], vector);
    out[0] = unbroadcast(b, op::neg(b, product(b, y, adjoint(b, x))), Shape(b.shape(v.in[0])));
  }
  if (v.wanted[1]) out[1] = unbroadcast(b, vector_form(b, y, vector), Shape(b.shape(v.in[1])));
  return out;
}

Values vmap_solve(Builder& b, const VmapArgs& a) {
  const auto own_rank = [&](size_t i) { return b.type(a.in[i]).rank() - (a.batched[i] ? 1 : 0); };
  const bool vector = own_rank(1) == own_rank(0) - 1;
  const Value rhs = columns_form(b, a.in[1], vector);
  const int64_t ranks[] = {own_rank(0), own_rank(1) + (vector ? 1 : 0)};
  if (!a.batched[0] && ranks[0] == 2 && ranks[1] == 2) {  // one A: the batch makes more columns
    const Shape s = b.shape(rhs);
    const Value wide = op::reshape(b, swap_blocks(b, rhs, 0, 1, 1), {{s[1], s[0] * s[2]}});
    const Value x = op::reshape(b, op::dense_solve(b, a.in[0], wide), {{s[1], s[0], s[2]}});
    return {vector_form(b, swap_blocks(b, x, 0, 1, 1), vector)};
  }
  const int64_t rank = std::max(ranks[0], ranks[1]);
  const Value in[] = {a.in[0], rhs};
  Values aligned;
  for (size_t i = 0; i < 2; ++i)
    aligned.push_back(a.batched[i] ? align_batched(b, in[i], rank) : pad_rank(b, in[i], rank + 1));
  return {vector_form(b, op::dense_solve(b, aligned[0], aligned[1]), vector)};
}

// ---- cholesky -----------------------------------------------------------------------------------

Tensors evaluate_cholesky(const EvalArgs& e) {
  Tensor out = e.make();
  for (int64_t i = 0; i < dense::matrix_count(out); ++i) {
    const Matrix a = dense::hermitian_part(dense::matrix_at(e.in[0], i));
    const Matrix l =
        dense::cholesky(a).value_or(Matrix::filled(a.rows, a.rows, dense::kNotANumber));
    dense::put_part(out, i, (e.get<CholeskyAttrs>().lower ? l : dense::adjoint(l)).values);
  }
  return {out};
}

// dL = L P(L^-1 dA L^-H), where P takes the lower triangle with half the diagonal.
Values jvp_cholesky(Builder& b, const JvpArgs& a) {
  const bool lower = a.node.get<CholeskyAttrs>().lower;
  const Value l = lower ? a.out[0] : adjoint(b, a.out[0]);
  const Value left = op::triangular_solve(b, l, hermitian_part(b, a.tangents[0]));
  const Value both =
      op::triangular_solve(b, conj_if_complex(b, l), left, {.left = false, .transpose = true});
  const Expr half = Expr(b, diagonal_part(b, both)) * 0.5;
  const Value dl = product(b, l, Expr(b, triangle(b, both, true, true)) + half);
  return {lower ? dl : adjoint(b, dl)};
}

// ---- triangular_solve ---------------------------------------------------------------------------

Types infer_triangular(const InferArgs& a) {
  require_same_dtype(a);
  require_square(a, 0);
  require_matrix(a, 1);
  const Shape &x = a.in[0].shape, &y = a.in[1].shape;
  const bool left = a.get<TriangularAttrs>().left;
  if (const Dim &n = dim_from_end(x, 1), &m = dim_from_end(y, left ? 2 : 1); differ(n, m))
    bad_operands(a, "solve-shape",
                 fmt::format("A has {} rows and B {} {}; they must be equal", n, m,
                             left ? "rows" : "columns"));
  const auto batch = broadcast_shapes(batch_of(x), batch_of(y));
  if (!batch) bad_operands(a, "broadcast", "the batch dims do not broadcast");
  return {{a.in[0].dtype, with_matrix(*batch, dim_from_end(y, 2), dim_from_end(y, 1))}};
}

Matrix plain_transpose(const Matrix& a) {
  Matrix out = dense::adjoint(a);
  for (Complex& z : out.values) z = std::conj(z);
  return out;
}

Tensors evaluate_triangular(const EvalArgs& e) {
  const auto& [left, lower, transpose, unit] = e.get<TriangularAttrs>();
  Tensor out = e.make();
  for_each_pair(leading(e.in[0], 2), leading(e.in[1], 2),
                [&](int64_t number, int64_t i, int64_t j) {
                  // X op(A) = B is op(A)^T X^T = B^T.
                  const bool flip = transpose == left;
                  Matrix a = dense::matrix_at(e.in[0], i), rhs = dense::matrix_at(e.in[1], j);
                  if (flip) a = plain_transpose(a);
                  if (!left) rhs = plain_transpose(rhs);
                  Matrix x = dense::triangular_solve(a, std::move(rhs), lower != flip, unit);
                  dense::put_part(out, number, (left ? x : plain_transpose(x)).values);
                });
  return {out};
}

Value tangent_triangle(Builder& b, const TriangularAttrs& t, Value x) {
  return triangle(b, x, t.lower, t.unit_diagonal);
}

Values jvp_triangular(Builder& b, const JvpArgs& a) {
  const auto& t = a.node.get<TriangularAttrs>();
  Value rhs = kNone;
  if (a.tangents[0].valid()) {
    Value da = tangent_triangle(b, t, a.tangents[0]);
    if (t.transpose) da = matrix_transpose(b, da);
    rhs = op::neg(b, t.left ? product(b, da, a.out[0]) : product(b, a.out[0], da));
  }
  rhs = add_maybe(b, rhs, a.tangents[1]);
  return {rhs.valid() ? op::triangular_solve(b, a.in[0], rhs, t) : kNone};
}

// With y = op(A)^-H g (left): dB = y and d op(A) = -y X^H.
Values vjp_triangular(Builder& b, const VjpArgs& v) {
  const auto& t = v.node.get<TriangularAttrs>();
  TriangularAttrs swapped = t;
  swapped.transpose = !t.transpose;
  const Value y = op::triangular_solve(b, conj_if_complex(b, v.in[0]), v.cotangents[0], swapped);
  Values out{kNone, kNone};
  if (v.wanted[0]) {
    const Value x = adjoint(b, v.out[0]);
    Value ga = op::neg(b, t.left ? product(b, y, x) : product(b, x, y));
    if (t.transpose) ga = matrix_transpose(b, ga);
    out[0] = unbroadcast(b, tangent_triangle(b, t, ga), Shape(b.shape(v.in[0])));
  }
  if (v.wanted[1]) out[1] = unbroadcast(b, y, Shape(b.shape(v.in[1])));
  return out;
}

// ---- cholesky_solve -----------------------------------------------------------------------------

Values decompose_cholesky_solve(Builder& b, const Node& n, Operands in) {
  const bool lower = n.get<CholeskyAttrs>().lower, vector = is_vector(b.type(in[0]), b.type(in[1]));
  const Value conjugate = conj_if_complex(b, in[0]);
  Value x = columns_form(b, in[1], vector);
  x = lower ? op::triangular_solve(b, in[0], x)
            : op::triangular_solve(b, conjugate, x, {.lower = false, .transpose = true});
  x = lower ? op::triangular_solve(b, conjugate, x, {.transpose = true})
            : op::triangular_solve(b, in[0], x, {.lower = false});
  return {vector_form(b, x, vector)};
}

// ---- lu -----------------------------------------------------------------------------------------

Types infer_lu(const InferArgs& a) {
  require_matrix(a, 0);
  const Shape& s = a.in[0].shape;
  Shape pivots = batch_of(s), permutation = pivots;
  pivots.push_back(smaller(a.op.name, dim_from_end(s, 2), dim_from_end(s, 1)));
  permutation.push_back(dim_from_end(s, 2));
  return {a.in[0], {DType::I32, pivots}, {DType::I32, permutation}};
}

Tensors evaluate_lu(const EvalArgs& e) {
  Tensors out{e.make(0), e.make(1), e.make(2)};
  for (int64_t i = 0; i < dense::matrix_count(out[0]); ++i) {
    const dense::Lu f = dense::lu(dense::matrix_at(e.in[0], i));
    dense::put_part(out[0], i, f.lu.values);
    dense::put_part(out[1], i, f.pivots);
    dense::put_part(out[2], i, f.permutation);
  }
  return out;
}

// The rows of x in the order of `permutation` [.., n], each matrix by its own.
Value permute_rows(Builder& b, Value permutation, Value x) {
  const Dim n = b.shape(permutation).back();
  const Value columns = op::iota(b, {}, {b.type(permutation).dtype, {n}, 0});
  const Value chosen = op::eq(b, as_column(b, permutation), columns);
  return product(b, cast_to(b, chosen, b.type(x).dtype), x);
}

// x in the upper left corner of the identity matrix of size n.
Value in_identity(Builder& b, Value x, const Dim& n) {
  const Shape s = b.shape(x);
  const Dim rows = dim_from_end(s, 2), columns = dim_from_end(s, 1);
  if (rows == n && columns == n) return x;
  Shape low(s.size(), Dim(0)), high = low;
  high[s.size() - 2] = n - rows, high[s.size() - 1] = n - columns;
  const Value padded = op::pad(b, x, b.constant_like(x, 0), {low, high});
  const Value place = op::iota(b, {}, {DType::I64, {n, Dim(1)}, 0});
  const Value covered = op::lt(b, place, dim_value(b, smaller("lu", rows, columns), DType::I64));
  return op::add(b, padded,
                 op::select(b, covered, b.constant_like(x, 0), identity(b, b.type(x).dtype, n)));
}

// With L and U made square by parts of the identity and X = L^-1 P dA U^-1: dL = L tril(X, -1) and
// dU = triu(X) U.
Values jvp_lu(Builder& b, const JvpArgs& a) {
  const Shape s = b.shape(a.out[0]);
  const Dim m = dim_from_end(s, 2), n = dim_from_end(s, 1), k = smaller("lu", m, n);
  const Value below = triangle(b, columns_of(b, a.out[0], 0, k), true, true);
  const Value above = triangle(b, rows_of(b, a.out[0], 0, k), false);
  const Value l = in_identity(b, below, m), u = in_identity(b, above, n);
  Value x =
      op::triangular_solve(b, l, permute_rows(b, a.out[2], a.tangents[0]), {.unit_diagonal = true});
  x = op::triangular_solve(b, u, x, {.left = false, .lower = false});
  const Value strictly = triangle(b, x, true, true);
  const Value dl = op::add(b, product(b, triangle(b, l, true, true), strictly), strictly);
  return {op::add(b, dl, product(b, triangle(b, x, false), u)), kNone, kNone};
}

}  // namespace

namespace op {

constinit const Op<> dense_solve = OpDef{
    .name = "dense_solve",
    .doc =
        "X with A X = B by LU with partial pivoting; B has one vector per matrix when its rank is "
        "one "
        "less than A's, else columns. Batch dims broadcast. A pivot that is 0 raises \"singular\"; "
        "NaN spreads.",
    .reference = "DenseSolve, BatchedDenseSolve",
    .kind = Kind::contraction,
    .arity = 2,
    .operands = "a, b",
    .dtypes = kMatrixTypes,
    .infer = infer_solve,
    .eval = evaluate_solve,
    .jvp = jvp_solve,
    .vjp = vjp_solve,
    .vmap = vmap_solve,
    .cost = dense::cost<2>,
};

constinit const Op<CholeskyAttrs> cholesky = OpDef{
    .name = "cholesky",
    .doc =
        "The triangular factor with positive diagonal of the Hermitian part of A: L with A = L "
        "L^H, or "
        "U with A = U^H U; NaN for a matrix that is not positive definite.",
    .kind = Kind::contraction,
    .dtypes = kMatrixTypes,
    .infer = infer_square,
    .eval = evaluate_cholesky,
    .jvp = jvp_cholesky,
    .vmap = vmap_leading,
    .cost = dense::cost<1>,
};

constinit const Op<TriangularAttrs> triangular_solve = OpDef{
    .name = "triangular_solve",
    .doc =
        "X with op(A) X = B, or X op(A) = B, for triangular A of which only the named triangle is "
        "read "
        "(without the diagonal, taken as ones, when `unit_diagonal`). Batch dims broadcast; a 0 on "
        "the "
        "diagonal divides as in IEEE.",
    .kind = Kind::contraction,
    .arity = 2,
    .operands = "a, b",
    .dtypes = kMatrixTypes,
    .infer = infer_triangular,
    .eval = evaluate_triangular,
    .jvp = jvp_triangular,
    .vjp = vjp_triangular,
    .vmap = vmap_elementwise,  // batch dims broadcast
    .cost = dense::cost<1>,
};

constinit const Op<CholeskyAttrs> cholesky_solve = OpDef{
    .name = "cholesky_solve",
    .doc = "X with A X = B, given Cholesky's factor of A; B as for dense_solve.",
    .arity = 2,
    .operands = "factor, b",
    .dtypes = kMatrixTypes,
    .infer = infer_solve,
    .decompose = decompose_cholesky_solve,
};

constinit const Op<> lu = OpDef{
    .name = "lu",
    .doc =
        "LU with partial pivoting of A [.., M, N]: L (below the diagonal, which is ones) and U in "
        "one "
        "matrix; pivots (row i was swapped with row pivots[i]); permutation (row i of L U is row "
        "permutation[i] of A). A singular matrix has a 0 on U's diagonal and no derivative (NaN or "
        "infinity).",
    .kind = Kind::contraction,
    .dtypes = kMatrixTypes,
    .infer = infer_lu,
    .eval = evaluate_lu,
    .jvp = jvp_lu,
    .vmap = vmap_leading,
    .cost = dense::cost<1>,
};

}  // namespace op

namespace {
constexpr const OpDef* kFactorOps[] = {&op::dense_solve,    &op::cholesky, &op::triangular_solve,
                                       &op::cholesky_solve, &op::lu,       &op::qr,
                                       &op::eigh,           &op::eig,      &op::svd};
}  // namespace
constinit const Family kFactor{"factorisations", kFactorOps};

}  // namespace rlx
