// Factorisations and solvers of dense matrices: the last two dims of an operand, leading dims are
// batches.
//
//   Value x = op::dense_solve(b, a, rhs);                      // a x = rhs
//   Value l = op::cholesky(b, a);
//   Values usv = b.emit(op::svd.def, SvdAttrs{}, Values{a});   // U, S, Vh
//
// f32, f64 and c64; f16 and bf16 are too short for it and are rejected. Where a factorisation leaves
// something free, it is fixed here, so that results do not depend on the method:
//   qr       the diagonal of R is real and not negative;
//   eigh     eigenvalues ascend; the first component of an eigenvector whose modulus is at least
//            0.9 of the largest is real and positive;
//   svd      singular values descend; the same component of each column of U is real and positive;
//   eig      ascending Re w + Im w / 4 (conjugate pairs differ in it); vectors of length 1, the same
//            component real and positive.
// cholesky and eigh read the Hermitian part (A + A^H) / 2, so that gradients are Hermitian too.
// Derivatives of eigh, svd and eig couple two vectors by 1 / (w_j - w_i); for equal values that is
// taken as 0, which keeps them finite and is exact for functions that do not depend on the choice of
// a basis. The columns beyond min(m, n) of a complete Q and of full U and V are any completion; their
// derivative turns them as little as possible.
//
// Raises Error(user): "matrix-rank", "matrix-square", "solve-shape", "broadcast", "dtype-mixed",
// "matrix-symbolic" (min(m, n) of symbols) when built, "singular" when dense_solve meets a pivot that
// is 0. A matrix that is not positive definite has NaN as its Cholesky factor; matrices with NaN or
// infinity have NaN as eigenvalues and singular values; triangular_solve divides by a 0 on the
// diagonal.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

struct CholeskyAttrs {  // lower: A = L L^H; upper: A = U^H U
  bool lower = true;
  static constexpr auto fields() { return Fields<&CholeskyAttrs::lower>(); }
};
// op(A) X = B, or X op(A) = B when not `left`; op is the transpose or nothing. Only the named triangle
// of A is read, and its diagonal is taken as ones when `unit_diagonal`.
struct TriangularAttrs {
  bool left = true, lower = true, transpose = false, unit_diagonal = false;
  static constexpr auto fields() {
    return Fields<&TriangularAttrs::left, &TriangularAttrs::lower, &TriangularAttrs::transpose,
                  &TriangularAttrs::unit_diagonal>();
  }
};
struct QrAttrs {
  bool complete = false;  // Q [m, m], R [m, n] instead of [m, k], [k, n], k = min(m, n)
  static constexpr auto fields() { return Fields<&QrAttrs::complete>(); }
};
struct SvdAttrs {
  bool full_matrices = false;  // U [m, m], Vh [n, n] instead of [m, k], [k, n], k = min(m, n)
  static constexpr auto fields() { return Fields<&SvdAttrs::full_matrices>(); }
};

namespace op {
// A [.., N, N] with B [.., N] when B has one dim less than A, else with B [.., N, K]; batches
// broadcast.
extern const Op<> dense_solve;
extern const Op<CholeskyAttrs> cholesky;
extern const Op<TriangularAttrs>
    triangular_solve;                           // A [.., N, N], B [.., N, K] (right: [.., K, N])
extern const Op<CholeskyAttrs> cholesky_solve;  // factor, B as for dense_solve
extern const Op<> lu;           // A [.., M, N] -> LU, pivots i32 [.., k], permutation i32 [.., M]
extern const Op<QrAttrs> qr;    // Q, R
extern const Op<> eigh;         // values [.., N], vectors [.., N, N]
extern const Op<> eig;          // f32 and c64 -> values c64 [.., N], vectors c64 [.., N, N]
extern const Op<SvdAttrs> svd;  // U, S [.., k], Vh
}  // namespace op

extern const Family kFactor;

}  // namespace rlx
