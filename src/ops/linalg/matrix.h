// Functions of matrices (the last two dims; leading dims are batches): f32, f64 and c64.
//
//   Value d = op::determinant(b, a);
//   Values s = b.emit(op::slogdet.def, {}, Values{a});        // sign, log|det|
//   Value n = op::matrix_norm(b, a, {.ord = MatrixNorm::two});
//
// Raises Error(user) "matrix-rank" and "matrix-square" when built; "singular" when run: inverse (and
// negative powers) of a singular matrix, and the derivatives of determinant, slogdet and logdet there.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

struct MatrixPowerAttrs {
  int64_t n = 1;
  static constexpr auto fields() { return Fields<&MatrixPowerAttrs::n>(); }
};
enum class MatrixNorm : uint8_t { fro, nuc, one, inf, two };
inline std::span<const std::string_view> enum_names(MatrixNorm) {
  static constexpr std::string_view names[] = {"fro", "nuc", "one", "inf", "two"};
  return names;
}
struct MatrixNormAttrs {
  MatrixNorm ord = MatrixNorm::fro;
  bool keepdims = false;
  static constexpr auto fields() {
    return Fields<&MatrixNormAttrs::ord, &MatrixNormAttrs::keepdims>();
  }
};
// Singular values up to rtol times the largest count as 0; rtol none means max(m, n) epsilon.
struct RankAttrs {
  std::optional<double> rtol = std::nullopt;
  static constexpr auto fields() { return Fields<&RankAttrs::rtol>(); }
};

namespace op {
extern const Op<> determinant, logdet, trace, inverse, expm;
extern const Op<> expm_frechet;  // A, E [.., N, N]: the derivative of expm at A in the direction E
extern const Op<> slogdet;       // sign (A's dtype), log|det| (real)
extern const Op<MatrixPowerAttrs> matrix_power;
extern const Op<MatrixNormAttrs> matrix_norm;
extern const Op<RankAttrs> pinv, matrix_rank;
extern const Op<RankAttrs> lstsq;  // A [.., M, N], B [.., M, K] -> [.., N, K]
}  // namespace op

extern const Family kMatrix;

}  // namespace rlx
