// Functions of matrices.
#include "rlx/ops/linalg/matrix.h"

#include <cmath>
#include <limits>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/linalg/dense_reference.h"
#include "rlx/ops/linalg/factor.h"
#include "rlx/ops/linalg/matrix_rules.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/reduce/reduce.h"

namespace rlx {
namespace {

Types infer_number(const InferArgs& a) {
  require_square(a, 0);
  return {{a.in[0].dtype, batch_of(a.in[0].shape)}};
}

Value modulus(Builder& b, Value x) {
  return is_complex(b.type(x).dtype) ? op::sqrt(b, modulus_squared(b, x)) : op::abs(b, x);
}

int64_t last_axis(Builder& b, Value x) { return b.type(x).rank() - 1; }

// ---- determinants -------------------------------------------------------------------------------

// The diagonal of U, negated where rows were swapped: the determinant is its product.
Value signed_diagonal(Builder& b, Value a) {
  const Values f = b.emit(op::lu.def, {}, Values{a});
  const Value d = diagonal(b, f[0]);
  const Value place = op::iota(b, {}, {DType::I32, {b.shape(f[1]).back()}, 0});
  return op::select(b, op::ne(b, f[1], place), op::neg(b, d), d);
}

Values decompose_determinant(Builder& b, const Node&, Operands in) {
  const Value d = signed_diagonal(b, in[0]);
  return {op::reduce_prod(b, d, {.axes = {last_axis(b, d)}})};
}

// trace(A^-1 dA), the derivative of the logarithm of the determinant.
Value log_tangent(Builder& b, const JvpArgs& a) {
  return op::trace(b, op::dense_solve(b, a.in[0], a.tangents[0]));
}

Types infer_slogdet(const InferArgs& a) {
  Types t = infer_number(a);
  t.push_back({real_type(t[0].dtype), t[0].shape});
  return t;
}

Values decompose_slogdet(Builder& b, const Node&, Operands in) {
  const Value d = signed_diagonal(b, in[0]), size = modulus(b, d);
  const Value inverse = cast_to(b, reciprocal_or_zero(b, size), b.type(d).dtype);
  const ReduceAttrs last{.axes = {last_axis(b, d)}};
  return {op::reduce_prod(b, op::mul(b, d, inverse), last),
          op::reduce_sum(b, op::log(b, size), last)};
}

// The sign of a real determinant is constant, a complex one turns by the imaginary part.
Values jvp_slogdet(Builder& b, const JvpArgs& a) {
  const Value t = log_tangent(b, a);
  if (!is_complex(b.type(t).dtype)) return {kNone, t};
  const Value turn =
      op::mul(b, cast_to(b, op::imag(b, t), DType::C64), b.constant(DType::C64, Complex(0, 1)));
  return {op::mul(b, a.out[0], turn), op::real(b, t)};
}

Values decompose_logdet(Builder& b, const Node& n, Operands in) {
  const Values s = b.emit(op::slogdet.def, {}, in);
  if (is_complex(n.type().dtype))
    return {op::add(b, op::log(b, s[0]), cast_to(b, s[1], DType::C64))};
  const Value negative = op::lt(b, s[0], b.constant_like(s[0], 0));
  return {op::select(b, negative, b.constant_like(s[1], std::nan("")), s[1])};
}

// ---- powers, exponential ------------------------------------------------------------------------

Value identity_like(Builder& b, Value a) {
  const Shape shape = b.shape(a);
  return broadcast_to(b, identity(b, b.type(a).dtype, shape.back()), shape);
}

Values decompose_power(Builder& b, const Node& node, Operands in) {
  int64_t n = node.get<MatrixPowerAttrs>().n;
  if (n == 0) return {identity_like(b, in[0])};
  Value base = n < 0 ? op::inverse(b, in[0]) : in[0], result = kNone;
  for (uint64_t rest = n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n);;) {
    if (rest & 1u) result = result.valid() ? product(b, result, base) : base;
    rest >>= 1;
    if (rest == 0) return {result};
    base = product(b, base, base);
  }
}

// The matrices in the parts of [.., 2n, 2n] ones.
Value block_matrix(Builder& b, Value a, Value e, Value c, Value d) {
  const int64_t last = last_axis(b, a);
  return op::concat(b,
                    {op::concat(b, {a, e}, {.axis = last}), op::concat(b, {c, d}, {.axis = last})},
                    {.axis = last - 1});
}
Value block_of(Builder& b, Value x, const Dim& n, bool lower, bool right) {
  const Dim none(0), all = n + n;
  const Value rows = rows_of(b, x, lower ? n : none, lower ? all : n);
  return columns_of(b, rows, right ? n : none, right ? all : n);
}

// L(a, e) is the upper right block of expm at [a, e; 0, a]. Its derivative in a is therefore that block of expm's derivative
// there, in the direction [d, 0; 0, d].
Value frechet_tangent(Builder& b, Value a, Value e, Value d) {
  const Value zero = full(b, b.type(a), 0);
  const Value whole =
      op::expm_frechet(b, block_matrix(b, a, e, zero, a), block_matrix(b, d, zero, zero, d));
  return block_of(b, whole, b.shape(a).back(), false, true);
}

Values jvp_frechet(Builder& b, const JvpArgs& a) {
  const Value by_a = a.tangents[0].valid() ? frechet_tangent(b, a.in[0], a.in[1], a.tangents[0])
                                           : kNone,
              by_e = a.tangents[1].valid() ? op::expm_frechet(b, a.in[0], a.tangents[1]) : kNone;
  return single(add_maybe(b, by_a, by_e));
}

// <c, L(a, e)> = <L(a^H, c), e>, for the blocks as well.
Values vjp_frechet(Builder& b, const VjpArgs& a) {
  const Value x = adjoint(b, a.in[0]), c = a.cotangents[0];
  if (!a.wanted[0]) return {kNone, op::expm_frechet(b, x, c)};
  const Value zero = full(b, b.type(x), 0);
  const Value whole = op::expm_frechet(b, block_matrix(b, x, zero, adjoint(b, a.in[1]), x),
                                       block_matrix(b, zero, c, zero, zero));
  const Dim n = b.shape(x).back();
  return {op::add(b, block_of(b, whole, n, false, false), block_of(b, whole, n, true, true)),
          a.wanted[1] ? block_of(b, whole, n, false, true) : kNone};
}

Types infer_frechet(const InferArgs& a) {
  require_same_dtype(a);
  require_square(a, 0);
  require_square(a, 1);
  if (!may_be_equal(a.in[0], a.in[1]))
    bad_operands(a, "solve-shape", "a and e have different shapes");
  Type out = a.in[0];
  for (size_t d = 0; d < out.shape.size(); ++d)
    out.shape[d] = agreed(out.shape[d], a.in[1].shape[d]);
  return {out};
}

Tensors evaluate_frechet(const EvalArgs& e) {
  Tensor out = e.make();
  for (int64_t i = 0; i < dense::matrix_count(out); ++i)
    dense::put_part(
        out, i,
        dense::expm_frechet(dense::matrix_at(e.in[0], i), dense::matrix_at(e.in[1], i)).values);
  return {out};
}

// Leading dims are batches of both.
Values vmap_frechet(Builder& b, const VmapArgs& a) {
  Values in(a.in.begin(), a.in.end());
  for (size_t i = 0; i < in.size(); ++i)
    if (!a.batched[i]) in[i] = batch_operand(b, in[i], a.size);
  return b.clone(a.node, in);
}

Tensors evaluate_expm(const EvalArgs& e) {
  Tensor out = e.make();
  for (int64_t i = 0; i < dense::matrix_count(out); ++i)
    dense::put_part(out, i, dense::expm(dense::matrix_at(e.in[0], i)).values);
  return {out};
}

// ---- norms and singular values ------------------------------------------------------------------

Types infer_norm(const InferArgs& a) {
  require_matrix(a, 0);
  const auto& [ord, keepdims] = a.get<MatrixNormAttrs>();
  const Shape& s = a.in[0].shape;
  if (ord == MatrixNorm::one || ord == MatrixNorm::inf || ord == MatrixNorm::two)
    if (dim_from_end(s, 1) == Dim(0) || dim_from_end(s, 2) == Dim(0))
      bad_operands(a, "reduce-empty", "an empty matrix has no largest element");
  const Shape batch = batch_of(s);
  return {{real_type(a.in[0].dtype), keepdims ? with_matrix(batch, 1, 1) : batch}};
}

Value singular_values(Builder& b, Value a) { return b.emit(op::svd.def, SvdAttrs{}, Values{a})[1]; }

// The square root, with derivative 0 at 0.
Value root(Builder& b, Value x) {
  const Value zero = b.constant_like(x, 0), is_zero = op::eq(b, x, zero);
  return op::select(b, is_zero, zero,
                    op::sqrt(b, op::select(b, is_zero, b.constant_like(x, 1), x)));
}

Value norm_of(Builder& b, MatrixNorm ord, Value a) {
  const int64_t row = b.type(a).rank() - 2, column = row + 1;
  switch (ord) {
    case MatrixNorm::fro:
      return root(b, sum_axes(b, modulus_squared(b, a), {row, column}));
    case MatrixNorm::nuc:
      return sum_axes(b, singular_values(b, a), {row});
    case MatrixNorm::one:
    case MatrixNorm::inf: {
      const Value size =
          is_complex(b.type(a).dtype) ? root(b, modulus_squared(b, a)) : op::abs(b, a);
      const Value sums = sum_axes(b, size, {ord == MatrixNorm::one ? row : column});
      return op::reduce_max(b, sums, {.axes = {row}});
    }
    case MatrixNorm::two:
      return op::reduce_max(b, singular_values(b, a), {.axes = {row}});
  }
  return kNone;
}

// The smallest singular value that counts [.., 1], from the values [.., k] of m x n matrices.
Value cutoff(Builder& b, const RankAttrs& r, Value s, const Shape& a) {
  const bool wide = b.type(s).dtype == DType::F64;
  const double epsilon = wide ? std::numeric_limits<double>::epsilon()
                              : static_cast<double>(std::numeric_limits<float>::epsilon());
  const Dim &m = dim_from_end(a, 2), &n = dim_from_end(a, 1);
  const Dim larger = m + n - smaller("matrix_rank", m, n);
  const Value largest = op::reduce_max(b, s, {.axes = {last_axis(b, s)}, .keepdims = true});
  const Value rtol =
      r.rtol ? b.constant_like(s, *r.rtol)
             : op::mul(b, dim_value(b, larger, b.type(s).dtype), b.constant_like(s, epsilon));
  return op::mul(b, largest, rtol);
}

bool has_no_values(const Shape& a) {
  return dim_from_end(a, 1) == Dim(0) || dim_from_end(a, 2) == Dim(0);
}

Types infer_pinv(const InferArgs& a) {
  require_matrix(a, 0);
  const Shape& s = a.in[0].shape;
  return {{a.in[0].dtype, with_matrix(batch_of(s), dim_from_end(s, 1), dim_from_end(s, 2))}};
}

Values decompose_pinv(Builder& b, const Node& n, Operands in) {
  if (has_no_values(b.shape(in[0]))) return {full(b, n.type(), 0)};
  const Values f = b.emit(op::svd.def, SvdAttrs{}, in);
  const Value counts = op::gt(b, f[1], cutoff(b, n.get<RankAttrs>(), f[1], b.shape(in[0])));
  const Value s = op::select(b, counts, f[1], b.constant_like(f[1], 0));
  const Value inverse = cast_to(b, as_row(b, reciprocal_or_zero(b, s)), b.type(f[0]).dtype);
  return {product(b, op::mul(b, adjoint(b, f[2]), inverse), adjoint(b, f[0]))};
}

// Where the rank is constant: dP = -P dA P + P P^H dA^H (1 - A P) + (1 - P A) dA^H P^H P.
Values jvp_pinv(Builder& b, const JvpArgs& a) {
  const Value x = a.in[0], p = a.out[0], dx = a.tangents[0], dxh = adjoint(b, dx),
              ph = adjoint(b, p);
  const Value inner = op::neg(b, product(b, p, product(b, dx, p)));
  const Value left = product(b, product(b, p, ph), dxh);
  const Value right = product(b, dxh, product(b, ph, p));
  const Value outer = op::sub(b, left, product(b, product(b, left, x), p));
  const Value other = op::sub(b, right, product(b, p, product(b, x, right)));
  return {op::add(b, op::add(b, inner, outer), other)};
}

Types infer_rank(const InferArgs& a) {
  require_matrix(a, 0);
  return {{DType::I64, batch_of(a.in[0].shape)}};
}

Values decompose_rank(Builder& b, const Node& n, Operands in) {
  if (has_no_values(b.shape(in[0]))) return {full(b, n.type(), 0)};
  const Value s = singular_values(b, in[0]);
  const Value counts = op::gt(b, s, cutoff(b, n.get<RankAttrs>(), s, b.shape(in[0])));
  return {sum_axes(b, cast_to(b, counts, DType::I64), {last_axis(b, s)})};
}

Types infer_lstsq(const InferArgs& a) {
  require_same_dtype(a);
  require_matrix(a, 0);
  require_matrix(a, 1);
  const Shape &x = a.in[0].shape, &y = a.in[1].shape;
  if (differ(dim_from_end(x, 2), dim_from_end(y, 2)))
    bad_operands(a, "solve-shape", "A and the right side have different numbers of rows");
  const auto batch = broadcast_shapes(batch_of(x), batch_of(y));
  if (!batch) bad_operands(a, "broadcast", "the batch dims do not broadcast");
  return {{a.in[0].dtype, with_matrix(*batch, dim_from_end(x, 1), dim_from_end(y, 1))}};
}

}  // namespace

namespace op {

constinit const Op<> determinant = OpDef{
    .name = "determinant",
    .doc =
        "The determinant by LU; 1 for 0 x 0. d det = det trace(A^-1 dA), so the derivative at a "
        "singular "
        "matrix raises \"singular\".",
    .dtypes = kMatrixTypes,
    .infer = infer_number,
    .decompose = decompose_determinant,
    .jvp = [](Builder& b,
              const JvpArgs& a) { return single(op::mul(b, a.out[0], log_tangent(b, a))); },
    .vmap = vmap_leading,
};

constinit const Op<> slogdet = OpDef{
    .name = "slogdet",
    .doc =
        "The determinant as sign (or complex number of modulus 1) and natural logarithm of its "
        "modulus; "
        "0 and -infinity for a singular matrix, where the derivative raises \"singular\".",
    .dtypes = kMatrixTypes,
    .infer = infer_slogdet,
    .decompose = decompose_slogdet,
    .jvp = jvp_slogdet,
    .vmap = vmap_leading,
};

constinit const Op<> logdet = OpDef{
    .name = "logdet",
    .doc =
        "The natural logarithm of the determinant: -infinity for a singular matrix, NaN for a "
        "negative "
        "determinant; the principal value for c64.",
    .dtypes = kMatrixTypes,
    .infer = infer_number,
    .decompose = decompose_logdet,
    .vmap = vmap_leading,
};

constinit const Op<> trace = OpDef{
    .name = "trace",
    .doc = "The sum of the diagonal of matrices, from the upper left corner; 0 for none.",
    .dtypes = kNumbers,
    .linear = true,
    .infer = [](const InferArgs& a) -> Types {
      require_matrix(a, 0);
      return {{a.in[0].dtype, batch_of(a.in[0].shape)}};
    },
    .decompose =
        [](Builder& b, const Node&, Operands in) {
          const int64_t last = last_axis(b, in[0]);
          return single(sum_axes(b, diagonal_part(b, in[0]), {last - 1, last}));
        },
    .vmap = vmap_leading,
};

constinit const Op<> inverse = OpDef{
    .name = "inverse",
    .doc = "The inverse of square matrices; a singular one raises \"singular\".",
    .dtypes = kMatrixTypes,
    .infer = infer_square,
    .decompose =
        [](Builder& b, const Node&, Operands in) {
          return single(op::dense_solve(b, in[0], identity_like(b, in[0])));
        },
    .vmap = vmap_leading,
};

constinit const Op<> expm = OpDef{
    .name = "expm",
    .doc =
        "The matrix exponential, by scaling and squaring of Pade's approximant; NaN when the "
        "matrix has "
        "NaN or infinity.",
    .kind = Kind::contraction,
    .dtypes = kMatrixTypes,
    .infer = infer_square,
    .eval = evaluate_expm,
    .jvp = [](Builder& b,
              const JvpArgs& a) { return single(op::expm_frechet(b, a.in[0], a.tangents[0])); },
    .vjp =
        [](Builder& b, const VjpArgs& a) {
          return single(op::expm_frechet(b, adjoint(b, a.in[0]), a.cotangents[0]));
        },
    .vmap = vmap_leading,
    .cost = dense::cost<20>,
};

constinit const Op<> expm_frechet = OpDef{
    .name = "expm_frechet",
    .doc =
        "The derivative of expm at A in the direction E: linear in E, of A's shape. NaN when one "
        "of them has NaN or infinity.",
    .kind = Kind::contraction,
    .arity = 2,
    .operands = "a, e",
    .dtypes = kMatrixTypes,
    .infer = infer_frechet,
    .eval = evaluate_frechet,
    .jvp = jvp_frechet,
    .vjp = vjp_frechet,
    .vmap = vmap_frechet,
    .cost = dense::cost<60>,
};

constinit const Op<MatrixPowerAttrs> matrix_power = OpDef{
    .name = "matrix_power",
    .doc =
        "A to the integer power n by repeated squaring; the identity for 0, powers of the inverse "
        "for "
        "negative n (a singular A raises \"singular\").",
    .dtypes = kMatrixTypes,
    .infer = infer_square,
    .decompose = decompose_power,
    .vmap = vmap_leading,
};

constinit const Op<MatrixNormAttrs> matrix_norm = OpDef{
    .name = "matrix_norm",
    .doc =
        "Norm of matrices: fro (root of the sum of squares; derivative 0 at 0), nuc (sum of "
        "singular "
        "values), one (largest column sum of moduli), inf (largest row sum), two (largest singular "
        "value).",
    .dtypes = kMatrixTypes,
    .infer = infer_norm,
    .decompose =
        [](Builder& b, const Node& n, Operands in) {
          return single(
              reshape_to(b, norm_of(b, n.get<MatrixNormAttrs>().ord, in[0]), n.type().shape));
        },
    .vmap = vmap_leading,
};

constinit const Op<RankAttrs> pinv = OpDef{
    .name = "pinv",
    .doc =
        "Moore and Penrose's inverse by SVD: singular values up to rtol (max(m, n) epsilon) times "
        "the "
        "largest count as 0. The derivative is that at constant rank.",
    .dtypes = kMatrixTypes,
    .infer = infer_pinv,
    .decompose = decompose_pinv,
    .jvp = jvp_pinv,
    .vmap = vmap_leading,
};

constinit const Op<RankAttrs> matrix_rank = OpDef{
    .name = "matrix_rank",
    .doc = "The number (i64) of singular values above rtol (max(m, n) epsilon) times the largest.",
    .dtypes = kMatrixTypes,
    .infer = infer_rank,
    .decompose = decompose_rank,
    .vmap = vmap_leading,
    .not_differentiable = "the result is a count",
};

constinit const Op<RankAttrs> lstsq = OpDef{
    .name = "lstsq",
    .doc =
        "The X of least norm among those for which |A X - B| is smallest: pinv(A) B, with the same "
        "rtol. "
        "Batch dims broadcast.",
    .arity = 2,
    .operands = "a, b",
    .dtypes = kMatrixTypes,
    .infer = infer_lstsq,
    .decompose =
        [](Builder& b, const Node& n, Operands in) {
          return single(product(b, op::pinv(b, in[0], n.get<RankAttrs>()), in[1]));
        },
};

}  // namespace op

namespace {
constexpr const OpDef* kMatrixOps[] = {&op::determinant,  &op::slogdet,      &op::logdet,
                                       &op::trace,        &op::inverse,      &op::expm,
                                       &op::expm_frechet, &op::matrix_power, &op::matrix_norm,
                                       &op::pinv,         &op::matrix_rank,  &op::lstsq};
}  // namespace
constinit const Family kMatrix{"matrix functions", kMatrixOps};

}  // namespace rlx
