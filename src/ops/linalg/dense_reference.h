// Dense linear algebra on matrices of complex<double> by the obvious methods: the reference values
// of the factorisations (factor.h, matrix.h). Independent of LAPACK and not fast.
//
//   std::optional<Matrix> x = dense::solve(a, b);      // nullopt: singular
//
// Real matrices stay real. What a method leaves free (signs, phases, order) is fixed as factor.h
// says.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "rlx/ops/evaluate.h"

namespace rlx::dense {

// Both parts, so that it is NaN in real and complex tensors alike.
inline constexpr Complex kNotANumber{std::numeric_limits<double>::quiet_NaN(),
                                     std::numeric_limits<double>::quiet_NaN()};

struct Matrix {
  int64_t rows, columns;
  std::vector<Complex> values;  // row-major
  Matrix(int64_t r, int64_t c) : rows(r), columns(c), values(static_cast<size_t>(r * c)) {}
  static Matrix identity(int64_t n);
  static Matrix filled(int64_t r, int64_t c, Complex value);
  Complex& operator()(int64_t i, int64_t j) { return values[static_cast<size_t>(i * columns + j)]; }
  const Complex& operator()(int64_t i, int64_t j) const {
    return values[static_cast<size_t>(i * columns + j)];
  }
};

// Matrix number `index` of a tensor [.., rows, columns]; vectors [.., n] are columns.
Matrix matrix_at(const Tensor& t, int64_t index);
Matrix vector_at(const Tensor& t, int64_t index);
// Writes values as part number `index` of that many elements each.
template <class Values>
void put_part(Tensor& t, int64_t index, const Values& values) {
  int64_t at = index * static_cast<int64_t>(values.size());
  for (const auto& v : values) t.set_complex(at++, static_cast<Complex>(v));
}
int64_t matrix_count(const Tensor& t);

Matrix operator*(const Matrix& a, const Matrix& b);
Matrix operator+(Matrix a, const Matrix& b);
Matrix operator*(Complex factor, Matrix a);
Matrix adjoint(const Matrix& a);
Matrix hermitian_part(const Matrix& a);  // (a + a^H) / 2
bool is_finite(const Matrix& a);

// L (unit diagonal, below) and U (on and above the diagonal) in one matrix. Row i was swapped with
// row pivots[i] >= i; row i of L U is row permutation[i] of a.
struct Lu {
  Matrix lu;
  Ints pivots, permutation;
};
Lu lu(Matrix a);
std::optional<Matrix> solve(const Matrix& a, const Matrix& b);
// Of the Hermitian matrix a: lower L with L L^H = a; nullopt when a is not positive definite.
std::optional<Matrix> cholesky(const Matrix& a);
// X with A X = B; of A only the named triangle is read, without its diagonal (ones) when `unit`.
Matrix triangular_solve(const Matrix& a, Matrix b, bool lower, bool unit);

struct Qr {
  Matrix q, r;
};
Qr qr(const Matrix& a, bool complete);

struct Eigen {
  std::vector<Complex> values;
  Matrix vectors;  // columns
};
Eigen eigh(Matrix a);  // of the Hermitian matrix a, ascending
Eigen eig(const Matrix& a);

struct Svd {
  Matrix u;
  std::vector<double> s;  // descending
  Matrix vh;
};
Svd svd(const Matrix& a, bool full_matrices);

Matrix expm(Matrix a);
Matrix expm_frechet(const Matrix& a, const Matrix& e);  // the derivative of expm at a along e

// What these methods take on [.., m, n]: `sweeps` times m n max(m, n) for each matrix.
template <int sweeps>
double cost(const Node& n, std::span<const Type> in) {
  double elements = 0, longest = 1;
  for (const auto& list : {in, std::span<const Type>(n.out)})
    for (const Type& t : list) {
      elements = std::max(elements, element_count(t));
      for (size_t d = t.shape.size() - std::min<size_t>(t.shape.size(), 2); d < t.shape.size(); ++d)
        longest = std::max(longest, element_count({DType::F32, {t.shape[d]}}));
    }
  return sweeps * elements * longest;
}

}  // namespace rlx::dense
