// The exponential of a matrix and its derivative: scaling, an approximant of Pade, squaring.
#include <cstring>
#include <numeric>

#include "rlx/backend/cpu/kernels/linalg/lapack_calls.h"

namespace rlx::cpu {

namespace {

using namespace lapack;

// Pade's approximant of degree 13: Higham, "The scaling and squaring method for the matrix exponential
// revisited", 2005.
constexpr double kPade[] = {64764752532480000.,
                            32382376266240000.,
                            7771770303897600.,
                            1187353796428800.,
                            129060195264000.,
                            10559470521600.,
                            670442572800.,
                            33522128640.,
                            1323241920.,
                            40840800.,
                            960960.,
                            16380.,
                            182.,
                            1.};

// The largest sum of a column; NaN where there is one.
template <class T>
double one_norm(int64_t n, const T* a) {
  double norm = 0;
  for (int64_t j = 0; j < n; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::abs(Wide<T>(a[i * n + j]));
    norm = norm != norm || sum <= norm ? norm : sum;
  }
  return norm;
}

// How often a is to be halved.
int squarings_of(double norm, double bound) {
  return norm > bound ? static_cast<int>(std::ceil(std::log2(norm / bound))) : 0;
}

// The approximant at x is the quotient of v + x w and v - x w, even polynomials of x2, x4 and x6 both: w with first = 1, v
// with 0. target = x6 (b13 x6 + b11 x4 + b9 x2) + b7 x6 + b5 x4 + b3 x2 + b1 for w, one index less for v; `sum` is
// what stands in brackets.
template <class W>
void even_part(int32_t n, int first, const W* x2, const W* x4, const W* x6, W* sum, W* target) {
  const int64_t count = int64_t{n} * n;
  for (int64_t i = 0; i < count; ++i)
    sum[i] = kPade[first + 12] * x6[i] + kPade[first + 10] * x4[i] + kPade[first + 8] * x2[i];
  product(n, x6, sum, target);
  for (int64_t i = 0; i < count; ++i)
    target[i] += kPade[first + 6] * x6[i] + kPade[first + 4] * x4[i] + kPade[first + 2] * x2[i];
  for (int64_t i = 0; i < n; ++i) target[i * n + i] += kPade[first];
}

}  // namespace

template <class T>
ExpmJob<T>::ExpmJob(int64_t n) : n_(size32(n)), solve_(n, n) {}

template <class T>
size_t ExpmJob<T>::scratch_bytes() const {
  Cut cut;
  for (int i = 0; i < 7; ++i) cut.take<Wide<T>>(area(n_, n_));
  return cut.used() + solve_.scratch_bytes();
}

template <class T>
void ExpmJob<T>::operator()(const T* a, T* out, std::byte* scratch) const {
  using W = Wide<T>;
  const int64_t n = n_, count = n * n;
  const double norm = one_norm(n, a);
  if (n == 0) return;
  if (!std::isfinite(norm)) return void(std::fill_n(out, count, not_a_number<T>()));
  const int squarings = squarings_of(norm, 5.37);
  Cut cut(scratch);
  W* part[7];
  for (W*& p : part) p = cut.take<W>(count);
  auto [x, x2, x4, x6, u, v, t] = part;
  const double scale = std::ldexp(1.0, -squarings);
  for (int64_t i = 0; i < count; ++i) x[i] = W(a[i]) * scale;
  product(n_, x, x, x2), product(n_, x2, x2, x4), product(n_, x4, x2, x6);
  even_part(n_, 1, x2, x4, x6, u, t);
  product(n_, x, t, u);
  even_part(n_, 0, x2, x4, x6, t, v);
  for (int64_t i = 0; i < count; ++i) {
    const W odd = u[i], even = v[i];
    u[i] = even - odd, v[i] = even + odd;
  }
  solve_(u, v, t, scratch + cut.used());  // never singular: the approximant has no poles there
  for (int i = 0; i < squarings; ++i) {
    product(n_, t, t, x);
    std::swap(t, x);
  }
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(t[i]);
}

template <class T>
ExpmFrechetJob<T>::ExpmFrechetJob(int64_t n) : n_(size32(n)), solve_(n, n) {}

template <class T>
size_t ExpmFrechetJob<T>::scratch_bytes() const {
  Cut cut;
  for (int i = 0; i < 16; ++i) cut.take<Wide<T>>(area(n_, n_));
  return cut.used() + solve_.scratch_bytes();
}

// The bound 4.74 holds for the derivative, too: Al-Mohy and Higham, "Computing the Frechet derivative of the matrix
// exponential, with an application to condition number estimation", 2009. A d before a name is its derivative.
template <class T>
void ExpmFrechetJob<T>::operator()(const T* a, const T* e, T* out, std::byte* scratch) const {
  using W = Wide<T>;
  const int64_t n = n_, count = n * n;
  const double norm = one_norm(n, a);
  if (n == 0) return;
  if (!std::isfinite(norm) || !all_finite(e, count))
    return void(std::fill_n(out, count, not_a_number<T>()));
  const int squarings = squarings_of(norm, 4.74);
  Cut cut(scratch);
  W* part[16];
  for (W*& p : part) p = cut.take<W>(count);
  auto [x, x2, x4, x6, dx, dx2, dx4, dx6, sum, w, v, u, dw, dv, du, t] = part;
  // target = p q' + p' q
  const auto product_rule = [&](const W* p, const W* dp, const W* q, const W* dq, W* target) {
    product(n_, p, dq, target);
    product(n_, dp, q, t);
    for (int64_t i = 0; i < count; ++i) target[i] += t[i];
  };
  const auto even_parts = [&](int first, W* target, W* slope) {
    even_part(n_, first, x2, x4, x6, sum, target);
    product(n_, dx6, sum, slope);
    for (int64_t i = 0; i < count; ++i)
      sum[i] = kPade[first + 12] * dx6[i] + kPade[first + 10] * dx4[i] + kPade[first + 8] * dx2[i];
    product(n_, x6, sum, t);
    for (int64_t i = 0; i < count; ++i)
      slope[i] +=
          t[i] + kPade[first + 6] * dx6[i] + kPade[first + 4] * dx4[i] + kPade[first + 2] * dx2[i];
  };
  const double scale = std::ldexp(1.0, -squarings);
  for (int64_t i = 0; i < count; ++i) x[i] = W(a[i]) * scale, dx[i] = W(e[i]) * scale;
  product(n_, x, x, x2), product(n_, x2, x2, x4), product(n_, x4, x2, x6);
  product_rule(x, dx, x, dx, dx2);
  product_rule(x2, dx2, x2, dx2, dx4);
  product_rule(x4, dx4, x2, dx2, dx6);
  even_parts(1, w, dw);
  even_parts(0, v, dv);
  product(n_, x, w, u);
  product_rule(x, dx, w, dw, du);
  // q r = p with p = v + u, q = v - u, so q r' = p' - q' r.
  W *const p = x2, *const q = x4, *const dp = dx2, *const dq = dx4, *const rest = sum;
  for (int64_t i = 0; i < count; ++i) {
    p[i] = v[i] + u[i], q[i] = v[i] - u[i];
    dp[i] = dv[i] + du[i], dq[i] = dv[i] - du[i];
  }
  W *r = w, *dr = dw;
  solve_(q, p, r, scratch + cut.used());
  product(n_, dq, r, rest);
  for (int64_t i = 0; i < count; ++i) rest[i] = dp[i] - rest[i];
  solve_(q, rest, dr, scratch + cut.used());
  W *next = x, *dnext = dx;
  for (int i = 0; i < squarings; ++i) {
    product_rule(r, dr, r, dr, dnext);
    product(n_, r, r, next);
    std::swap(r, next), std::swap(dr, dnext);
  }
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(dr[i]);
}

template class ExpmJob<float>;
template class ExpmJob<double>;
template class ExpmJob<std::complex<float>>;
template class ExpmFrechetJob<float>;
template class ExpmFrechetJob<double>;
template class ExpmFrechetJob<std::complex<float>>;

}  // namespace rlx::cpu
