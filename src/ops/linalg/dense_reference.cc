#include "rlx/ops/linalg/dense_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace rlx::dense {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr int kSweeps = 60;  // Jacobi's method takes about ten

// The magnitude by which LAPACK chooses pivots: |re| + |im|.
double pivot_size(Complex z) { return std::abs(z.real()) + std::abs(z.imag()); }

double norm(const Matrix& a) {  // Frobenius
  double norm = 0;
  for (Complex z : a.values) norm = std::hypot(norm, z.real(), z.imag());
  return norm;
}

double one_norm(const Matrix& a) {  // the largest sum of a column
  double largest = 0;
  for (int64_t j = 0; j < a.columns; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < a.rows; ++i) sum += std::abs(a(i, j));
    largest = std::max(largest, sum);
  }
  return largest;
}

// The exponent of the largest part of a; 0 where there is none, or one that is not finite.
int exponent_of(const Matrix& a) {
  double largest = 0;
  for (Complex z : a.values)
    for (double part : {std::abs(z.real()), std::abs(z.imag())}) {
      if (!std::isfinite(part)) return 0;
      largest = std::max(largest, part);
    }
  return largest > 0 ? std::ilogb(largest) : 0;
}

// a times a power of two: near 1 the squares of a's elements neither overflow nor vanish.
Matrix scaled(Matrix a, int exponent) {
  for (Complex& z : a.values) z = {std::ldexp(z.real(), exponent), std::ldexp(z.imag(), exponent)};
  return a;
}

Matrix columns_of(const Matrix& a, int64_t first, int64_t last) {
  Matrix out(a.rows, last - first);
  for (int64_t i = 0; i < out.rows; ++i)
    for (int64_t j = 0; j < out.columns; ++j) out(i, j) = a(i, first + j);
  return out;
}

Matrix reordered(const Matrix& a, const std::vector<int64_t>& order) {
  Matrix out(a.rows, a.columns);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j) out(i, j) = a(i, order[static_cast<size_t>(j)]);
  return out;
}

template <class Less>
std::vector<int64_t> sorted_order(int64_t n, Less less) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), less);
  return order;
}

// The factor of modulus 1 that makes the first large component of column j real and positive.
Complex phase_of(const Matrix& a, int64_t j) {
  double largest = 0;
  for (int64_t i = 0; i < a.rows; ++i) largest = std::max(largest, std::abs(a(i, j)));
  for (int64_t i = 0; i < a.rows; ++i)
    if (const double size = std::abs(a(i, j)); largest > 0 && size >= 0.9 * largest)
      return std::conj(a(i, j)) / size;
  return 1;
}

void scale_column(Matrix& a, int64_t j, Complex factor) {
  for (int64_t i = 0; i < a.rows; ++i) a(i, j) *= factor;
}

// A plane rotation of columns p and q that makes the Hermitian 2x2 matrix [app, apq; ., aqq]
// diagonal.
struct Rotation {
  double c = 1;
  Complex s = 0, d = 1;  // d takes the phase of apq out of column q
  Rotation(double app, double aqq, Complex apq) {
    const double size = std::abs(apq);
    const double theta = (aqq - app) / (2 * size);
    const double t = std::copysign(1.0, theta) / (std::abs(theta) + std::hypot(theta, 1.0));
    c = 1 / std::hypot(t, 1.0);
    s = t * c;
    d = std::conj(apq) / size;
  }
  void apply(Matrix& a, int64_t p, int64_t q) const {
    for (int64_t i = 0; i < a.rows; ++i) {
      const Complex x = a(i, p), y = d * a(i, q);
      a(i, p) = c * x - s * y;
      a(i, q) = s * x + c * y;
    }
  }
};

// x -> (I - tau v v^H) x for every column of a, v having its first element in row `at`.
void reflect(Matrix& a, int64_t at, const std::vector<Complex>& v, Complex tau) {
  for (int64_t j = 0; j < a.columns; ++j) {
    Complex sum = 0;
    for (size_t i = 0; i < v.size(); ++i)
      sum += std::conj(v[i]) * a(at + static_cast<int64_t>(i), j);
    for (size_t i = 0; i < v.size(); ++i) a(at + static_cast<int64_t>(i), j) -= tau * sum * v[i];
  }
}

// Householder's reflection that takes column j from row j on to a real multiple of e_1, with
// LAPACK's choice of sign, which decides on the last columns of a complete Q.
struct Reflection {
  std::vector<Complex> v;
  Complex tau = 0;
  Reflection(const Matrix& a, int64_t j) : v(static_cast<size_t>(a.rows - j)) {
    double below = 0;
    for (int64_t i = j; i < a.rows; ++i) {
      v[static_cast<size_t>(i - j)] = a(i, j);
      if (i > j) below = std::hypot(below, a(i, j).real(), a(i, j).imag());
    }
    const Complex alpha = v[0];
    v[0] = 1;
    if (below == 0 && alpha.imag() == 0) return;
    const double beta = -std::copysign(std::hypot(std::abs(alpha), below), alpha.real());
    tau = Complex(beta - alpha.real(), -alpha.imag()) / beta;
    for (size_t i = 1; i < v.size(); ++i) v[i] /= alpha - beta;
  }
};

// The eigenvalue of the trailing 2x2 block of the leading m rows nearest to its last element.
Complex wilkinson_shift(const Matrix& t, int64_t m) {
  const Complex a = t(m - 2, m - 2), b = t(m - 2, m - 1), c = t(m - 1, m - 2), d = t(m - 1, m - 1);
  const Complex mean = (a + d) / 2.0, root = std::sqrt((a - d) * (a - d) / 4.0 + b * c);
  const Complex one = mean + root, other = mean - root;
  return std::abs(one - d) < std::abs(other - d) ? one : other;
}

// One step of the QR method on the leading m rows and columns of t, accumulated in z.
void qr_step(Matrix& t, Matrix& z, int64_t m, Complex shift) {
  Matrix q = Matrix::identity(t.rows), block(m, m);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < m; ++j) block(i, j) = t(i, j) - (i == j ? shift : 0.0);
  const Matrix part = qr(block, false).q;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < m; ++j) q(i, j) = part(i, j);
  t = adjoint(q) * t * q;
  z = z * q;
}

// a = z t z^H with t upper triangular.
void schur(Matrix& t, Matrix& z) {
  const double size = norm(t);
  int64_t m = t.rows;
  for (int step = 1; m > 1; ++step) {
    double rest = 0;
    for (int64_t j = 0; j + 1 < m; ++j) rest += std::norm(t(m - 1, j));
    if (std::sqrt(rest) <= kEpsilon * size) {
      for (int64_t j = 0; j + 1 < m; ++j) t(m - 1, j) = 0;
      --m, step = 0;
      continue;
    }
    check(step < 1000, "eig: the reference does not converge");
    qr_step(t, z, m, step % 12 == 0 ? Complex(0.7 * size, 0.4 * size) : wilkinson_shift(t, m));
  }
}

}  // namespace

Matrix Matrix::identity(int64_t n) {
  Matrix out(n, n);
  for (int64_t i = 0; i < n; ++i) out(i, i) = 1;
  return out;
}

Matrix Matrix::filled(int64_t r, int64_t c, Complex value) {
  Matrix out(r, c);
  std::fill(out.values.begin(), out.values.end(), value);
  return out;
}

namespace {
Matrix part_at(const Tensor& t, int64_t index, int64_t rows, int64_t columns) {
  Matrix out(rows, columns);
  int64_t at = index * rows * columns;
  for (Complex& z : out.values) z = t.get_complex(at++);
  return out;
}
}  // namespace

Matrix matrix_at(const Tensor& t, int64_t index) {
  return part_at(t, index, t.sizes()[t.sizes().size() - 2], t.sizes().back());
}

Matrix vector_at(const Tensor& t, int64_t index) { return part_at(t, index, t.sizes().back(), 1); }

int64_t matrix_count(const Tensor& t) {
  return std::accumulate(t.sizes().begin(), t.sizes().end() - 2, int64_t{1}, std::multiplies<>());
}

Matrix operator*(const Matrix& a, const Matrix& b) {
  Matrix out(a.rows, b.columns);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t k = 0; k < a.columns; ++k)
      for (int64_t j = 0; j < b.columns; ++j) out(i, j) += a(i, k) * b(k, j);
  return out;
}

Matrix operator+(Matrix a, const Matrix& b) {
  for (size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
  return a;
}

Matrix operator*(Complex factor, Matrix a) {
  for (Complex& z : a.values) z *= factor;
  return a;
}

Matrix adjoint(const Matrix& a) {
  Matrix out(a.columns, a.rows);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j) out(j, i) = std::conj(a(i, j));
  return out;
}

Matrix hermitian_part(const Matrix& a) { return 0.5 * (a + adjoint(a)); }

bool is_finite(const Matrix& a) {
  return std::all_of(a.values.begin(), a.values.end(),
                     [](Complex z) { return std::isfinite(z.real()) && std::isfinite(z.imag()); });
}

Lu lu(Matrix a) {
  Ints rows(static_cast<size_t>(a.rows));
  Lu out{std::move(a), {}, std::move(rows)};
  Matrix& m = out.lu;
  std::iota(out.permutation.begin(), out.permutation.end(), 0);
  for (int64_t k = 0; k < std::min(m.rows, m.columns); ++k) {
    int64_t p = k;
    for (int64_t i = k + 1; i < m.rows; ++i)
      if (pivot_size(m(i, k)) > pivot_size(m(p, k))) p = i;
    out.pivots.push_back(p);
    std::swap(out.permutation[static_cast<size_t>(k)], out.permutation[static_cast<size_t>(p)]);
    for (int64_t j = 0; j < m.columns; ++j) std::swap(m(k, j), m(p, j));
    if (m(k, k) == 0.0) continue;
    for (int64_t i = k + 1; i < m.rows; ++i) {
      m(i, k) /= m(k, k);
      for (int64_t j = k + 1; j < m.columns; ++j) m(i, j) -= m(i, k) * m(k, j);
    }
  }
  return out;
}

std::optional<Matrix> solve(const Matrix& a, const Matrix& b) {
  const Lu f = lu(a);
  for (int64_t i = 0; i < a.rows; ++i)
    if (f.lu(i, i) == 0.0) return std::nullopt;
  Matrix x(b.rows, b.columns);
  for (int64_t i = 0; i < b.rows; ++i)
    for (int64_t j = 0; j < b.columns; ++j) x(i, j) = b(f.permutation[static_cast<size_t>(i)], j);
  return triangular_solve(f.lu, triangular_solve(f.lu, std::move(x), true, true), false, false);
}

std::optional<Matrix> cholesky(const Matrix& a) {
  Matrix l(a.rows, a.rows);
  for (int64_t j = 0; j < a.rows; ++j) {
    double d = a(j, j).real();
    for (int64_t k = 0; k < j; ++k) d -= std::norm(l(j, k));
    if (!(d > 0)) return std::nullopt;
    l(j, j) = std::sqrt(d);
    for (int64_t i = j + 1; i < a.rows; ++i) {
      Complex sum = a(i, j);
      for (int64_t k = 0; k < j; ++k) sum -= l(i, k) * std::conj(l(j, k));
      l(i, j) = sum / l(j, j);
    }
  }
  return l;
}

Matrix triangular_solve(const Matrix& a, Matrix b, bool lower, bool unit) {
  const int64_t n = a.rows;
  for (int64_t step = 0; step < n; ++step) {
    const int64_t i = lower ? step : n - 1 - step;
    for (int64_t j = 0; j < b.columns; ++j) {
      for (int64_t k = lower ? 0 : i + 1; k < (lower ? i : n); ++k) b(i, j) -= a(i, k) * b(k, j);
      if (!unit) b(i, j) /= a(i, i);
    }
  }
  return b;
}

Qr qr(const Matrix& a, bool complete) {
  const int64_t k = std::min(a.rows, a.columns), width = complete ? a.rows : k;
  Matrix r = a, q(a.rows, width);
  std::vector<Reflection> reflections;
  for (int64_t j = 0; j < k; ++j) {
    reflections.emplace_back(r, j);
    reflect(r, j, reflections.back().v, std::conj(reflections.back().tau));
  }
  for (int64_t j = 0; j < width; ++j) q(j, j) = 1;
  for (int64_t j = k; j-- > 0;)
    reflect(q, j, reflections[static_cast<size_t>(j)].v, reflections[static_cast<size_t>(j)].tau);
  Matrix upper(width, a.columns);
  for (int64_t i = 0; i < k; ++i) {
    const double sign = r(i, i).real() < 0 ? -1 : 1;
    for (int64_t j = i; j < a.columns; ++j) upper(i, j) = sign * r(i, j);
    scale_column(q, i, sign);
  }
  return {q, upper};
}

Eigen eigh(Matrix a) {
  const int64_t n = a.rows;
  Matrix v = Matrix::identity(n);
  const double enough = 0.1 * kEpsilon * norm(a);
  bool again = true;
  for (int sweep = 0; again && sweep < kSweeps; ++sweep) {
    again = false;
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = p + 1; q < n; ++q) {
        if (std::abs(a(p, q)) <= enough) continue;
        const Rotation rotation(a(p, p).real(), a(q, q).real(), a(p, q));
        rotation.apply(a, p, q);
        a = adjoint(a);
        rotation.apply(a, p, q);
        rotation.apply(v, p, q);
        a(p, q) = a(q, p) = 0;
        again = true;
      }
  }
  const auto order =
      sorted_order(n, [&](int64_t i, int64_t j) { return a(i, i).real() < a(j, j).real(); });
  Eigen out{{}, reordered(v, order)};
  for (int64_t j = 0; j < n; ++j) {
    const int64_t from = order[static_cast<size_t>(j)];
    out.values.emplace_back(a(from, from).real());
    scale_column(out.vectors, j, phase_of(out.vectors, j));
  }
  return out;
}

Eigen eig(const Matrix& a) {
  const int64_t n = a.rows;
  Matrix t = a, z = Matrix::identity(n), y(n, n);
  schur(t, z);
  const double tiny = std::max(kEpsilon * norm(t), std::numeric_limits<double>::min());
  for (int64_t k = 0; k < n; ++k) {  // t y = y diag(t), y upper triangular
    y(k, k) = 1;
    for (int64_t i = k; i-- > 0;) {
      Complex sum = 0;
      for (int64_t j = i + 1; j <= k; ++j) sum += t(i, j) * y(j, k);
      const Complex gap = t(k, k) - t(i, i);
      y(i, k) = sum / (std::abs(gap) < tiny ? Complex(tiny) : gap);
    }
  }
  const auto key = [&](int64_t i) { return t(i, i).real() + t(i, i).imag() / 4; };
  const auto order = sorted_order(n, [&](int64_t i, int64_t j) { return key(i) < key(j); });
  Eigen out{{}, reordered(z * y, order)};
  for (int64_t j = 0; j < n; ++j) {
    const int64_t from = order[static_cast<size_t>(j)];
    out.values.push_back(t(from, from));
    scale_column(out.vectors, j,
                 phase_of(out.vectors, j) / norm(columns_of(out.vectors, j, j + 1)));
  }
  return out;
}

Svd svd(const Matrix& a, bool full_matrices) {
  const bool tall = a.rows >= a.columns;
  const int exponent = exponent_of(a);
  Matrix b = scaled(tall ? a : adjoint(a), -exponent), v = Matrix::identity(b.columns);
  const int64_t k = b.columns;
  const double enough = kEpsilon * static_cast<double>(std::max<int64_t>(2, b.rows));
  bool again = true;
  for (int sweep = 0; again && sweep < kSweeps; ++sweep) {
    again = false;
    for (int64_t p = 0; p < k; ++p)
      for (int64_t q = p + 1; q < k; ++q) {
        double app = 0, aqq = 0;
        Complex apq = 0;
        for (int64_t i = 0; i < b.rows; ++i)
          app += std::norm(b(i, p)), aqq += std::norm(b(i, q)), apq += std::conj(b(i, p)) * b(i, q);
        if (std::abs(apq) <= enough * std::sqrt(app * aqq)) continue;
        const Rotation rotation(app, aqq, apq);
        rotation.apply(b, p, q);
        rotation.apply(v, p, q);
        again = true;
      }
  }
  std::vector<double> s;
  for (int64_t j = 0; j < k; ++j) s.push_back(norm(columns_of(b, j, j + 1)));
  const auto at = [&](int64_t i) { return s[static_cast<size_t>(i)]; };
  const auto order = sorted_order(k, [&](int64_t i, int64_t j) { return at(i) > at(j); });
  b = reordered(b, order), v = reordered(v, order);
  std::sort(s.begin(), s.end(), std::greater<>());
  int64_t rank = 0;
  // Columns are orthogonal as measured by their own lengths, however short, unless nothing but zeros is left.
  while (rank < k && at(rank) > kEpsilon * kEpsilon * at(0)) ++rank;
  for (int64_t j = 0; j < rank; ++j) scale_column(b, j, 1 / at(j));
  if (rank < k) b = columns_of(qr(columns_of(b, 0, rank), true).q, 0, k);
  Matrix& u = tall ? b : v;
  Matrix& w = tall ? v : b;
  for (int64_t j = 0; j < k; ++j) {
    const Complex phase = phase_of(u, j);
    scale_column(u, j, phase), scale_column(w, j, phase);
  }
  const auto completed = [&](const Matrix& x) {
    Matrix q = qr(x, true).q;
    for (int64_t i = 0; i < x.rows; ++i)
      for (int64_t j = 0; j < x.columns; ++j) q(i, j) = x(i, j);
    return q;
  };
  if (full_matrices) u = completed(u), w = completed(w);
  for (double& value : s) value = std::ldexp(value, exponent);
  return {u, s, adjoint(w)};
}

// By Pade's approximant of degree 13, exact up to rounding for a 1-norm of 5.37: Higham, "The scaling and squaring method
// for the matrix exponential revisited", 2005.
Matrix expm(Matrix a) {
  if (!is_finite(a)) return Matrix::filled(a.rows, a.rows, kNotANumber);
  int squarings = 0;
  for (; one_norm(a) > 5.37; ++squarings) a = 0.5 * std::move(a);
  // (2 m - k)! m! / ((2 m)! (m - k)! k!) for m = 13, each from the one before.
  Matrix power = Matrix::identity(a.rows), sum = power, other = power;
  double factor = 1;
  for (int k = 1; k <= 13; ++k) {
    factor *= (14.0 - k) / ((27.0 - k) * k);
    power = power * a;
    sum = std::move(sum) + factor * power;
    other = std::move(other) + (k % 2 ? -factor : factor) * power;
  }
  Matrix out = *solve(other, sum);  // the denominator has no zeros there
  for (int i = 0; i < squarings; ++i) out = out * out;
  return out;
}

// The upper right block of expm([a, e; 0, a]), with e near 1: it is linear in e, and the squarings are to be those of a.
Matrix expm_frechet(const Matrix& a, const Matrix& e) {
  const int64_t n = a.rows;
  if (!is_finite(a) || !is_finite(e)) return Matrix::filled(n, n, kNotANumber);
  const int exponent = exponent_of(e) + std::ilogb(static_cast<double>(n + 1)) + 1;
  const Matrix direction = scaled(e, -exponent);
  Matrix whole(2 * n, 2 * n), out(n, n);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      whole(i, j) = whole(n + i, n + j) = a(i, j);
      whole(i, n + j) = direction(i, j);
    }
  whole = expm(std::move(whole));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) out(i, j) = whole(i, n + j);
  return scaled(out, exponent);
}

}  // namespace rlx::dense
