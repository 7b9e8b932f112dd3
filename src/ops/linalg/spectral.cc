// QR, eigenvalues and singular values.
#include <cmath>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/linalg/dense_reference.h"
#include "rlx/ops/linalg/factor.h"
#include "rlx/ops/linalg/matrix_rules.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/reduce/reduce.h"

namespace rlx {
namespace {

using dense::Matrix;

// Rows, columns and the smaller of them.
struct Sizes {
  Dim m, n, k;
  Sizes(std::string_view op, const Shape& s)
      : m(dim_from_end(s, 2)), n(dim_from_end(s, 1)), k(smaller(op, m, n)) {}
};

Value minus(Builder& b, Value x, Value y) { return op::sub(b, x, y); }
Value concat_columns(Builder& b, Value x, Value y) {
  return op::concat(b, {x, y}, {.axis = b.type(x).rank() - 1});
}

// The columns `rest` that complete the orthonormal columns q, when q moves by dq: they stay
// orthogonal to q and do not turn among themselves.
Value completion_tangent(Builder& b, Value q, Value dq, Value rest) {
  return op::neg(b, product(b, q, product(b, adjoint(b, dq), rest)));
}

// The imaginary part of x, times i.
Value imaginary_part(Builder& b, Value x) {
  return op::mul(b, cast_to(b, op::imag(b, x), DType::C64), b.constant(DType::C64, Complex(0, 1)));
}

// Normalised complex vectors (columns of v) that move by dv + v diag(i t): the i t [.., 1, n] with
// which the component that is real stays so.
Value phase_tangent(Builder& b, Value v, Value dv) {
  const int64_t rows = b.type(v).rank() - 2;
  const Value size = modulus_squared(b, op::stop_gradient(b, v));
  const Value largest = op::reduce_max(b, size, {.axes = {rows}, .keepdims = true});
  const Value large = op::ge(b, size, op::mul(b, largest, b.constant_like(largest, 0.81)));
  const Value first = op::argmax(b, large, {.axis = rows, .keepdims = true});
  const Dim n = dim_from_end(b.shape(v), 2);
  const Value chosen = op::eq(b, op::iota(b, {}, {DType::I64, {n, Dim(1)}, 0}), first);
  auto component = [&](Value x) {
    return sum_axes(b, op::select(b, chosen, x, b.constant_like(x, 0)), {rows}, true);
  };
  const Value real = cast_to(b, op::real(b, component(v)), DType::C64);
  return op::neg(b, op::div(b, imaginary_part(b, component(dv)), real));
}

bool is_complex_value(Builder& b, Value x) { return is_complex(b.type(x).dtype); }
bool is_empty(Builder& b, Value x) {
  const Shape& s = b.shape(x);
  return dim_from_end(s, 1) == Dim(0) || dim_from_end(s, 2) == Dim(0);
}

// ---- qr -----------------------------------------------------------------------------------------

Types infer_qr(const InferArgs& a) {
  require_matrix(a, 0);
  const Shape& s = a.in[0].shape;
  const Sizes z(a.op.name, s);
  const Dim width = a.get<QrAttrs>().complete ? z.m : z.k;
  return {{a.in[0].dtype, with_matrix(batch_of(s), z.m, width)},
          {a.in[0].dtype, with_matrix(batch_of(s), width, z.n)}};
}

Tensors evaluate_qr(const EvalArgs& e) {
  Tensors out{e.make(0), e.make(1)};
  for (int64_t i = 0; i < dense::matrix_count(e.in[0]); ++i) {
    const dense::Qr f = dense::qr(dense::matrix_at(e.in[0], i), e.get<QrAttrs>().complete);
    dense::put_part(out[0], i, f.q.values);
    dense::put_part(out[1], i, f.r.values);
  }
  return out;
}

// For the first k columns, A = Q R with square R: X = Q^H dA R^-1 = W + dR R^-1, where W = Q^H dQ is
// skew; so W has X's lower triangle, and dQ = dA R^-1 - Q (X - W).
Values jvp_qr(Builder& b, const JvpArgs& a) {
  const Sizes z("qr", b.shape(a.in[0]));
  const Value da = a.tangents[0], q = columns_of(b, a.out[0], 0, z.k),
              r = rows_of(b, a.out[1], 0, z.k);
  const Value y = op::triangular_solve(b, columns_of(b, r, 0, z.k), columns_of(b, da, 0, z.k),
                                       {.left = false, .lower = false});
  const Value x = product(b, adjoint(b, q), y), below = triangle(b, x, true, true);
  Value w = minus(b, below, adjoint(b, below));
  if (is_complex_value(b, x)) w = op::add(b, w, imaginary_part(b, diagonal_part(b, x)));
  Value dq = minus(b, y, product(b, q, minus(b, x, w)));
  Value dr = triangle(b, product(b, adjoint(b, q), minus(b, da, product(b, dq, r))), false);
  const Dim width = dim_from_end(b.shape(a.out[0]), 1);
  if (!(width == z.k)) {
    const Value rest = columns_of(b, a.out[0], z.k, width);
    dq = concat_columns(b, dq, completion_tangent(b, q, dq, rest));
    Shape low(b.shape(dr).size(), Dim(0)), high = low;
    high[high.size() - 2] = width - z.k;
    dr = op::pad(b, dr, b.constant_like(dr, 0), {low, high});
  }
  return {dq, dr};
}

// ---- eigh and eig -------------------------------------------------------------------------------

Types infer_eigen(const InferArgs& a, DType values, DType vectors) {
  require_square(a, 0);
  Shape line = a.in[0].shape;
  line.pop_back();
  return {{values, line}, {vectors, a.in[0].shape}};
}

template <dense::Eigen (*method)(const Matrix&)>
Tensors evaluate_eigen(const EvalArgs& e) {
  Tensors out{e.make(0), e.make(1)};
  for (int64_t i = 0; i < dense::matrix_count(e.in[0]); ++i) {
    const Matrix a = dense::matrix_at(e.in[0], i);
    const dense::Eigen f =
        dense::is_finite(a)
            ? method(a)
            : dense::Eigen{std::vector<Complex>(static_cast<size_t>(a.rows), dense::kNotANumber),
                           Matrix::filled(a.rows, a.rows, dense::kNotANumber)};
    dense::put_part(out[0], i, f.values);
    dense::put_part(out[1], i, f.vectors.values);
  }
  return out;
}

dense::Eigen eigh_of(const Matrix& a) { return dense::eigh(dense::hermitian_part(a)); }

// P = V^H dA V: dw = diag(P), dV = V (F * P) with F[i, j] = 1 / (w_j - w_i).
Values jvp_eigh(Builder& b, const JvpArgs& a) {
  if (is_empty(b, a.in[0])) return {kNone, kNone};
  const Value v = a.out[1];
  const Value p = product(b, adjoint(b, v), product(b, hermitian_part(b, a.tangents[0]), v));
  const Value gaps = cast_to(b, inverse_gaps(b, a.out[0]), b.type(v).dtype);
  Value dv = product(b, v, op::mul(b, gaps, p));
  if (is_complex_value(b, v)) dv = op::add(b, dv, op::mul(b, v, phase_tangent(b, v, dv)));
  return {real_part(b, diagonal(b, p)), dv};
}

// P = V^-1 dA V: dw = diag(P), dV = V (F * P) + V diag(c), where c keeps the length (real part) and
// the phase (imaginary part).
Values jvp_eig(Builder& b, const JvpArgs& a) {
  if (is_empty(b, a.in[0])) return {kNone, kNone};
  const Value v = a.out[1], da = cast_to(b, a.tangents[0], DType::C64);
  const Value p = op::dense_solve(b, v, product(b, da, v));
  const Value dv = product(b, v, op::mul(b, inverse_gaps(b, a.out[0]), p));
  const Value along = sum_axes(b, op::mul(b, op::conj(b, v), dv), {b.type(v).rank() - 2}, true);
  const Value shrink = op::neg(b, cast_to(b, op::real(b, along), DType::C64));
  const Value c = op::add(b, shrink, phase_tangent(b, v, dv));
  return {diagonal(b, p), op::add(b, dv, op::mul(b, v, c))};
}

// ---- svd ----------------------------------------------------------------------------------------

Types infer_svd(const InferArgs& a) {
  require_matrix(a, 0);
  const Shape &s = a.in[0].shape, batch = batch_of(s);
  const Sizes z(a.op.name, s);
  const bool full = a.get<SvdAttrs>().full_matrices;
  Shape line = batch;
  line.push_back(z.k);
  const DType d = a.in[0].dtype;
  return {{d, with_matrix(batch, z.m, full ? z.m : z.k)},
          {real_type(d), line},
          {d, with_matrix(batch, full ? z.n : z.k, z.n)}};
}

Tensors evaluate_svd(const EvalArgs& e) {
  Tensors out{e.make(0), e.make(1), e.make(2)};
  for (int64_t i = 0; i < dense::matrix_count(e.in[0]); ++i) {
    const Matrix a = dense::matrix_at(e.in[0], i);
    dense::Svd f = dense::svd(dense::is_finite(a) ? a : Matrix(a.rows, a.columns),
                              e.get<SvdAttrs>().full_matrices);
    if (!dense::is_finite(a)) {
      f.u = Matrix::filled(f.u.rows, f.u.columns, dense::kNotANumber);
      f.vh = Matrix::filled(f.vh.rows, f.vh.columns, dense::kNotANumber);
      std::fill(f.s.begin(), f.s.end(), std::nan(""));
    }
    dense::put_part(out[0], i, f.u.values);
    dense::put_part(out[1], i, f.s);
    dense::put_part(out[2], i, f.vh.values);
  }
  return out;
}

// What dA adds to u outside its span, when there are more rows than columns: (1 - U U^H) dA V / S.
Value outside_tangent(Builder& b, Value u, Value da_v, Value inverse_s) {
  const Value inside = product(b, u, product(b, adjoint(b, u), da_v));
  return op::mul(b, minus(b, da_v, inside), inverse_s);
}

// P = U^H dA V: dS = Re diag(P). With F[i, j] = 1 / (s_j^2 - s_i^2), U^H dU = F * (P S + S P^H) and
// V^H dV = F * (S P + P^H S); complex phases turn u_j and v_j together.
Values jvp_svd(Builder& b, const JvpArgs& a) {
  if (is_empty(b, a.in[0])) return {kNone, kNone, kNone};
  const Sizes z("svd", b.shape(a.in[0]));
  const Value da = a.tangents[0], u = columns_of(b, a.out[0], 0, z.k),
              v = adjoint(b, rows_of(b, a.out[2], 0, z.k));
  const DType d = b.type(u).dtype;
  const bool complex = is_complex(d);
  const Value s_row = cast_to(b, as_row(b, a.out[1]), d),
              s_column = cast_to(b, as_column(b, a.out[1]), d),
              inverse_s = cast_to(b, as_row(b, reciprocal_or_zero(b, a.out[1])), d);
  const Value da_v = product(b, da, v), p = product(b, adjoint(b, u), da_v);
  const Value gaps = cast_to(b, inverse_gaps(b, op::square(b, a.out[1])), d);
  const Value ps = op::mul(b, p, s_row), sp = op::mul(b, s_column, p);
  Value du = product(b, u, op::mul(b, gaps, op::add(b, ps, adjoint(b, ps))));
  Value dv = product(b, v, op::mul(b, gaps, op::add(b, sp, adjoint(b, sp))));
  if (!(z.m == z.k)) du = op::add(b, du, outside_tangent(b, u, da_v, inverse_s));
  if (!(z.n == z.k)) {
    const Value da_u = product(b, adjoint(b, da), u);
    dv = op::add(b, dv, outside_tangent(b, v, da_u, inverse_s));
  }
  if (complex) {
    const Value turn = phase_tangent(b, u, du);
    const Value slip = op::mul(b, imaginary_part(b, as_row(b, diagonal(b, p))), inverse_s);
    du = op::add(b, du, op::mul(b, u, turn));
    dv = op::add(b, dv, op::mul(b, v, minus(b, turn, slip)));
  }
  const Value ds = real_part(b, diagonal(b, p));
  if (a.node.get<SvdAttrs>().full_matrices && !(z.m == z.k))
    du = concat_columns(b, du, completion_tangent(b, u, du, columns_of(b, a.out[0], z.k, z.m)));
  if (a.node.get<SvdAttrs>().full_matrices && !(z.n == z.k)) {
    const Value rest = adjoint(b, rows_of(b, a.out[2], z.k, z.n));
    dv = concat_columns(b, dv, completion_tangent(b, v, dv, rest));
  }
  return {du, ds, adjoint(b, dv)};
}

}  // namespace

namespace op {

constinit const Op<QrAttrs> qr = OpDef{
    .name = "qr",
    .doc =
        "A = Q R with orthonormal columns of Q and upper triangular R whose diagonal is real and "
        "not "
        "negative; reduced, or `complete` with square Q. The derivative needs the first min(m, n) "
        "columns of A to be independent (else NaN or infinity).",
    .kind = Kind::contraction,
    .dtypes = kMatrixTypes,
    .infer = infer_qr,
    .eval = evaluate_qr,
    .jvp = jvp_qr,
    .vmap = vmap_leading,
    .cost = dense::cost<4>,
};

constinit const Op<> eigh = OpDef{
    .name = "eigh",
    .doc =
        "Eigenvalues (ascending, real) and orthonormal eigenvectors (columns) of the Hermitian "
        "part of "
        "A. The first component of a vector that is at least 0.9 of its largest is real and "
        "positive. "
        "NaN when A has NaN or infinity. Vectors of equal eigenvalues do not couple in "
        "derivatives.",
    .kind = Kind::contraction,
    .dtypes = kMatrixTypes,
    .infer =
        [](const InferArgs& a) { return infer_eigen(a, real_type(a.in[0].dtype), a.in[0].dtype); },
    .eval = evaluate_eigen<eigh_of>,
    .jvp = jvp_eigh,
    .vmap = vmap_leading,
    .cost = dense::cost<40>,
};

constinit const Op<> eig = OpDef{
    .name = "eig",
    .doc =
        "Eigenvalues w and right eigenvectors (columns, of length 1) of a general matrix, as c64; "
        "f64 "
        "is rejected, as there is no c128. Ordered by Re w + Im w / 4, ascending; the first "
        "component "
        "of a vector that is at least 0.9 of its largest is real and positive. NaN when A has NaN "
        "or "
        "infinity. The derivative needs a diagonalisable A (else \"singular\").",
    .kind = Kind::contraction,
    .dtypes = {DType::F32, DType::C64},
    .infer = [](const InferArgs& a) { return infer_eigen(a, DType::C64, DType::C64); },
    .eval = evaluate_eigen<dense::eig>,
    .jvp = jvp_eig,
    .vmap = vmap_leading,
    .cost = dense::cost<40>,
};

constinit const Op<SvdAttrs> svd = OpDef{
    .name = "svd",
    .doc =
        "A = U diag(S) Vh with orthonormal columns of U and rows of Vh, S descending; the first "
        "component of a column of U that is at least 0.9 of its largest is real and positive. "
        "Reduced, or with square U and Vh. Vectors of singular values that are zero are some "
        "orthonormal completion. NaN when A has NaN or infinity. Vectors of equal singular values "
        "do not couple in derivatives, and 1 / 0 counts as 0 there.",
    .kind = Kind::contraction,
    .dtypes = kMatrixTypes,
    .infer = infer_svd,
    .eval = evaluate_svd,
    .jvp = jvp_svd,
    .vmap = vmap_leading,
    .cost = dense::cost<40>,
};

}  // namespace op

}  // namespace rlx
