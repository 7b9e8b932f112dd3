#include "rlx/backend/cpu/kernels/linalg/lapack.h"

#include <cstring>
#include <filesystem>
#include <numeric>

#include "rlx/backend/cpu/kernels/linalg/lapack_calls.h"

namespace rlx::cpu {

// ---- the library --------------------------------------------------------------------------------

namespace lapack {

void* library() {
  static void* const handle = [] {
    void* found = dlopen("liblapacke.so.3", RTLD_NOW | RTLD_LOCAL);
    if (!found) fail(ErrorKind::unsupported, "lapack", "cannot load LAPACK: {}", dlerror());
    // Other implementations of BLAS have no such function, and then no threads of their own either.
    if (void* set = dlsym(found, "openblas_set_num_threads"))
      reinterpret_cast<void (*)(int)>(set)(1);
    return found;
  }();
  return handle;
}

int32_t size32(int64_t n) {
  if (n > std::numeric_limits<int32_t>::max())
    fail(ErrorKind::unsupported, "lapack", "a matrix with {} rows is too large for LAPACK", n);
  return static_cast<int32_t>(n);
}

}  // namespace lapack

namespace {

using namespace lapack;

// The file that has the function, with links followed.
std::string file_of(const char* function) {
  Dl_info info{};
  void* found = dlsym(library(), function);
  if (!found || !dladdr(found, &info) || !info.dli_fname) return "none";
  std::error_code none;
  const std::filesystem::path real = std::filesystem::canonical(info.dli_fname, none);
  return none ? info.dli_fname : real.string();
}

}  // namespace

std::string linear_algebra_libraries() {
  try {
    std::string blas = file_of("dgemm_");
    if (void* config = dlsym(library(), "openblas_get_config"))
      blas += fmt::format(" ({})", reinterpret_cast<char* (*)()>(config)());
    return fmt::format("BLAS: {}\nLAPACK: {}", blas, file_of("dgetrf_"));
  } catch (const Error& e) {
    return fmt::format("BLAS, LAPACK: none: {}", e.message());
  }
}

// ---- solve --------------------------------------------------------------------------------------

template <class T>
SolveJob<T>::SolveJob(int64_t n, int64_t columns) : n_(size32(n)), columns_(size32(columns)) {
  routines<T>();
}

template <class T>
size_t SolveJob<T>::scratch_bytes() const {
  Cut cut;
  cut.take<T>(area(n_, n_)), cut.take<int>(n_);
  return cut.used();
}

// In column-major terms a is A^T = P L U, and x^T A^T = b^T: two products with inverse triangles from
// the right, then the swaps of P in reverse, which are swaps of rows of x.
template <class T>
bool SolveJob<T>::operator()(const T* a, const T* b, T* x, std::byte* scratch) const {
  if (n_ == 0) return true;
  Cut cut(scratch);
  T* const lu = cut.take<T>(area(n_, n_));
  int* const pivots = cut.take<int>(n_);
  std::copy_n(a, area(n_, n_), lu);
  if constexpr (!kComplex<T>)
    if (n_ <= kSmall) {
      std::copy_n(b, area(n_, columns_), x);
      return eliminate(n_, columns_, lu, x);
    }
  if (routines<T>().getrf(kColumnMajor, n_, n_, lu, n_, pivots) > 0) return false;
  if (columns_ == 0) return true;
  std::copy_n(b, area(n_, columns_), x);
  const T one = 1;
  for (const bool upper : {true, false})
    routines<T>().trsm(kColumnMajor, kRight, upper ? kUpper : kLower, kNoTranspose,
                       upper ? kNonUnit : kUnit, columns_, n_, scalar(one), lu, n_, x, columns_);
  for (int32_t i = n_; i-- > 0;)
    if (const int32_t p = pivots[i] - 1; p != i)
      std::swap_ranges(x + area(i, columns_), x + area(i + 1, columns_), x + area(p, columns_));
  return true;
}

// ---- cholesky -----------------------------------------------------------------------------------

template <class T>
CholeskyJob<T>::CholeskyJob(int64_t n, bool lower) : n_(size32(n)), lower_(lower) {
  routines<T>();
}

// In column-major terms the memory holds the transpose: its upper factor is our lower one.
template <class T>
void CholeskyJob<T>::operator()(const T* a, T* factor) const {
  const int64_t n = n_;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      factor[i * n + j] = (a[i * n + j] + conjugate(a[j * n + i])) * Real<T>(0.5);
  bool positive =
      n == 0 || routines<T>().potrf(kColumnMajor, lower_ ? 'U' : 'L', n_, factor, n_) == 0;
  for (int64_t i = 0; i < n; ++i) positive = positive && std::real(factor[i * n + i]) > 0;
  if (!positive) std::fill_n(factor, n * n, not_a_number<T>());
  for (int64_t i = 0; i < n && positive; ++i)
    for (int64_t j = 0; j < n; ++j)
      if (lower_ ? j > i : j < i) factor[i * n + j] = 0;
}

// ---- triangular solve ---------------------------------------------------------------------------

template <class T>
TriangularJob<T>::TriangularJob(int64_t rows, int64_t columns, Triangle triangle)
    : rows_(size32(rows)), columns_(size32(columns)), triangle_(triangle) {
  routines<T>();
}

template <class T>
void TriangularJob<T>::operator()(const T* a, const T* b, T* x) const {
  if (rows_ == 0 || columns_ == 0) return;
  std::copy_n(b, area(rows_, columns_), x);
  const T one = 1;
  const auto& [left, lower, flip, unit] = triangle_;
  routines<T>().trsm(kRowMajor, left ? kLeft : kRight, lower ? kLower : kUpper,
                     flip ? kTranspose : kNoTranspose, unit ? kUnit : kNonUnit, rows_, columns_,
                     scalar(one), a, left ? rows_ : columns_, x, columns_);
}

// ---- lu -----------------------------------------------------------------------------------------

template <class T>
LuJob<T>::LuJob(int64_t m, int64_t n) : m_(size32(m)), n_(size32(n)) {
  routines<T>();
}

template <class T>
size_t LuJob<T>::scratch_bytes() const {
  Cut cut;
  cut.take<T>(area(m_, n_));
  return cut.used();
}

template <class T>
void LuJob<T>::operator()(const T* a, T* lu, int32_t* pivots, int32_t* permutation,
                          std::byte* scratch) const {
  std::iota(permutation, permutation + m_, 0);
  if (m_ == 0 || n_ == 0) return;
  T* const columns = Cut(scratch).take<T>(area(m_, n_));
  transpose(a, m_, n_, columns);
  routines<T>().getrf(kColumnMajor, m_, n_, columns, m_, pivots);
  transpose(columns, n_, m_, lu);
  for (int32_t i = 0; i < std::min(m_, n_); ++i) {
    --pivots[i];
    std::swap(permutation[i], permutation[pivots[i]]);
  }
}

// ---- qr -----------------------------------------------------------------------------------------

template <class T>
QrJob<T>::QrJob(int64_t m, int64_t n, bool complete)
    : m_(size32(m)), n_(size32(n)), width_(complete ? m_ : std::min(m_, n_)) {
  T size = 0, other = 0;
  const int32_t k = std::min(m_, n_), rows = leading_dim(m_);
  routines<T>().geqrf(kColumnMajor, m_, n_, nullptr, rows, nullptr, &size, -1);
  routines<T>().orgqr(kColumnMajor, m_, width_, k, nullptr, rows, nullptr, &other, -1);
  work_ = std::max({asked(size), asked(other), 1});
}

template <class T>
size_t QrJob<T>::scratch_bytes() const {
  Cut cut;
  cut.take<T>(area(m_, std::max(n_, width_)));
  cut.take<T>(std::min(m_, n_)), cut.take<T>(work_);
  return cut.used();
}

template <class T>
void QrJob<T>::operator()(const T* a, T* q, T* r, std::byte* scratch) const {
  Cut cut(scratch);
  T* const columns = cut.take<T>(area(m_, std::max(n_, width_)));
  const int32_t k = std::min(m_, n_), rows = leading_dim(m_);
  T* const tau = cut.take<T>(k);
  T* const work = cut.take<T>(work_);
  transpose(a, m_, n_, columns);
  routines<T>().geqrf(kColumnMajor, m_, n_, columns, rows, tau, work, work_);
  auto sign = [&](const T* diagonal) { return std::real(*diagonal) < 0 ? T(-1) : T(1); };
  std::fill_n(r, area(width_, n_), T(0));
  T* const signs = q;  // the first row of q holds them until q is written
  for (int32_t i = 0; i < k; ++i) {
    const T factor = sign(columns + area(i, m_) + i);
    for (int32_t j = i; j < n_; ++j) r[area(i, n_) + j] = factor * columns[area(j, m_) + i];
    signs[i] = factor;
  }
  routines<T>().orgqr(kColumnMajor, m_, width_, k, columns, rows, tau, work, work_);
  for (int32_t j = 0; j < k; ++j)
    for (int32_t i = 0; i < m_; ++i) columns[area(j, m_) + i] *= signs[j];
  transpose(columns, width_, m_, q);
}

template <class T>
void QrJob<T>::complete(T* columns, T* tau, T* work) const {
  const int32_t k = std::min(m_, n_), rows = leading_dim(m_);
  routines<T>().geqrf(kColumnMajor, m_, n_, columns, rows, tau, work, work_);
  routines<T>().orgqr(kColumnMajor, m_, m_, k, columns, rows, tau, work, work_);
}

// ---- eigh ---------------------------------------------------------------------------------------

template <class T>
EighJob<T>::EighJob(int64_t n) : n_(size32(n)) {
  T size = 0;
  Real<T> real_size = 0;
  int int_size = 0;
  if constexpr (kComplex<T>)
    routines<T>().eigh(kColumnMajor, 'V', 'L', n_, nullptr, leading_dim(n_), nullptr, &size, -1,
                       &real_size, -1, &int_size, -1);
  else
    routines<T>().eigh(kColumnMajor, 'V', 'L', n_, nullptr, leading_dim(n_), nullptr, &size, -1,
                       &int_size, -1);
  work_ = asked(size), real_work_ = asked(real_size), int_work_ = int_size;
}

template <class T>
size_t EighJob<T>::scratch_bytes() const {
  Cut cut;
  cut.take<T>(area(n_, n_)), cut.take<T>(work_), cut.take<Real<T>>(real_work_);
  cut.take<int>(int_work_);
  return cut.used();
}

template <class T>
void EighJob<T>::operator()(const T* a, Real<T>* values, T* vectors, std::byte* scratch) const {
  const int64_t n = n_;
  Cut cut(scratch);
  T* const columns = cut.take<T>(n * n);
  T* const work = cut.take<T>(work_);
  [[maybe_unused]] Real<T>* const real_work = cut.take<Real<T>>(real_work_);
  int* const int_work = cut.take<int>(int_work_);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      columns[j * n + i] = (a[i * n + j] + conjugate(a[j * n + i])) * Real<T>(0.5);
  int info = 1;
  if (n == 0) return;
  if (all_finite(a, n * n)) {
    if constexpr (kComplex<T>)
      info = routines<T>().eigh(kColumnMajor, 'V', 'L', n_, columns, n_, values, work, work_,
                                real_work, real_work_, int_work, int_work_);
    else
      info = routines<T>().eigh(kColumnMajor, 'V', 'L', n_, columns, n_, values, work, work_,
                                int_work, int_work_);
  }
  if (info != 0) {
    std::fill_n(values, n, std::numeric_limits<Real<T>>::quiet_NaN());
    std::fill_n(vectors, n * n, not_a_number<T>());
    return;
  }
  for (int64_t j = 0; j < n; ++j) {
    const T phase = phase_of(columns + j * n, n);
    for (int64_t i = 0; i < n; ++i) vectors[i * n + j] = columns[j * n + i] * phase;
  }
}

// ---- eig ----------------------------------------------------------------------------------------

template <class T>
EigJob<T>::EigJob(int64_t n) : n_(size32(n)) {
  T size = 0;
  [[maybe_unused]] Real<T> real_size = 0;
  const int32_t rows = leading_dim(n_);
  if constexpr (kComplex<T>)
    routines<T>().geev(kColumnMajor, 'N', 'V', n_, nullptr, rows, nullptr, nullptr, 1, nullptr,
                       rows, &size, -1, &real_size);
  else
    routines<T>().geev(kColumnMajor, 'N', 'V', n_, nullptr, rows, nullptr, nullptr, nullptr, 1,
                       nullptr, rows, &size, -1);
  work_ = asked(size);
}

template <class T>
size_t EigJob<T>::scratch_bytes() const {
  Cut cut;
  cut.take<T>(area(n_, n_)), cut.take<T>(area(n_, n_)), cut.take<T>(work_), cut.take<T>(2 * n_);
  cut.take<Real<T>>(2 * n_), cut.take<std::complex<float>>(n_);
  cut.take<std::complex<float>>(area(n_, n_)), cut.take<int32_t>(n_);
  return cut.used();
}

template <class T>
void EigJob<T>::operator()(const T* a, std::complex<float>* values, std::complex<float>* vectors,
                           std::byte* scratch) const {
  const int64_t n = n_;
  if (n == 0) return;
  Cut cut(scratch);
  T* const matrix = cut.take<T>(n * n);
  T* const found = cut.take<T>(n * n);  // columns
  T* const work = cut.take<T>(work_);
  T* const w = cut.take<T>(2 * n);  // values; for real T their real and imaginary parts
  [[maybe_unused]] Real<T>* const real_work = cut.take<Real<T>>(2 * n);
  auto* const raw_values = cut.take<std::complex<float>>(n);
  auto* const raw_vectors = cut.take<std::complex<float>>(n * n);
  int32_t* const order = cut.take<int32_t>(n);
  transpose(a, n, n, matrix);
  int info = 1;
  if (all_finite(a, n * n)) {
    if constexpr (kComplex<T>)
      info = routines<T>().geev(kColumnMajor, 'N', 'V', n_, matrix, n_, w, nullptr, 1, found, n_,
                                work, work_, real_work);
    else
      info = routines<T>().geev(kColumnMajor, 'N', 'V', n_, matrix, n_, w, w + n, nullptr, 1, found,
                                n_, work, work_);
  }
  if (info != 0) {
    std::fill_n(values, n, not_a_number<std::complex<float>>());
    std::fill_n(vectors, n * n, not_a_number<std::complex<float>>());
    return;
  }
  for (int64_t j = 0; j < n; ++j) {
    if constexpr (kComplex<T>) {
      raw_values[j] = w[j];
      std::copy_n(found + j * n, n, raw_vectors + j * n);
    } else {  // a pair's vectors are column j plus and minus i times column j + 1
      raw_values[j] = {w[j], w[n + j]};
      const int64_t first = w[n + j] < 0 ? j - 1 : j;
      for (int64_t i = 0; i < n; ++i)
        raw_vectors[j * n + i] = {found[first * n + i], w[n + j] == 0 ? 0.f
                                                        : w[n + j] < 0
                                                            ? -found[(first + 1) * n + i]
                                                            : found[(first + 1) * n + i]};
    }
  }
  auto key = [&](int32_t i) {
    return static_cast<double>(raw_values[i].real()) + raw_values[i].imag() / 4.0;
  };
  std::iota(order, order + n, 0);
  std::sort(order, order + n,
            [&](int32_t i, int32_t j) { return key(i) < key(j) || (key(i) == key(j) && i < j); });
  for (int64_t j = 0; j < n; ++j) {
    const auto* const v = raw_vectors + order[j] * n;
    double length = 0;
    for (int64_t i = 0; i < n; ++i) length += static_cast<double>(std::norm(v[i]));
    const auto factor = phase_of(v, n) / static_cast<float>(std::sqrt(length));
    values[j] = raw_values[order[j]];
    for (int64_t i = 0; i < n; ++i) vectors[i * n + j] = v[i] * factor;
  }
}

// ---- svd ----------------------------------------------------------------------------------------

template <class T>
SvdJob<T>::SvdJob(int64_t m, int64_t n, bool full)
    : m_(size32(m)),
      n_(size32(n)),
      k_(std::min(m_, n_)),
      full_(full),
      left_(m_, k_, true),
      right_(n_, k_, true) {
  T size = 0;
  const int32_t rows = leading_dim(m_), small = leading_dim(k_);
  if constexpr (kComplex<T>) {
    routines<T>().gesdd(kColumnMajor, 'S', m_, n_, nullptr, rows, nullptr, nullptr, rows, nullptr,
                        small, &size, -1, nullptr, nullptr);
    const int32_t large = std::max(m_, n_);
    real_work_ = std::max({5 * k_ * k_ + 5 * k_, 2 * large * k_ + 2 * k_ * k_ + k_, 1});
  } else {
    routines<T>().gesdd(kColumnMajor, 'S', m_, n_, nullptr, rows, nullptr, nullptr, rows, nullptr,
                        small, &size, -1, nullptr);
  }
  work_ = std::max({asked(size), left_.work_size(), right_.work_size()});
}

template <class T>
size_t SvdJob<T>::scratch_bytes() const {
  const int32_t large = std::max(m_, n_);
  Cut cut;
  cut.take<T>(area(large, large)), cut.take<T>(area(m_, k_)), cut.take<T>(area(k_, n_));
  cut.take<T>(k_), cut.take<T>(work_), cut.take<Real<T>>(real_work_), cut.take<int>(8 * k_);
  return cut.used();
}

template <class T>
void SvdJob<T>::operator()(const T* a, T* u, Real<T>* s, T* vh, std::byte* scratch) const {
  const int32_t large = std::max(m_, n_), u_width = full_ ? m_ : k_, v_width = full_ ? n_ : k_;
  Cut cut(scratch);
  T* const matrix = cut.take<T>(area(large, large));  // then a basis that is completed
  T* const left = cut.take<T>(area(m_, k_));
  T* const right = cut.take<T>(area(k_, n_));
  T* const tau = cut.take<T>(k_);
  T* const work = cut.take<T>(work_);
  [[maybe_unused]] Real<T>* const real_work = cut.take<Real<T>>(real_work_);
  int* const int_work = cut.take<int>(8 * k_);
  int info = 1;
  if (all_finite(a, area(m_, n_))) {
    transpose(a, m_, n_, matrix);
    if (k_ == 0)
      info = 0;
    else if constexpr (kComplex<T>)
      info = routines<T>().gesdd(kColumnMajor, 'S', m_, n_, matrix, m_, s, left, m_, right, k_,
                                 work, work_, real_work, int_work);
    else
      info = routines<T>().gesdd(kColumnMajor, 'S', m_, n_, matrix, m_, s, left, m_, right, k_,
                                 work, work_, int_work);
  }
  if (info != 0) {
    std::fill_n(s, k_, std::numeric_limits<Real<T>>::quiet_NaN());
    std::fill_n(u, area(m_, u_width), not_a_number<T>());
    std::fill_n(vh, area(v_width, n_), not_a_number<T>());
    return;
  }
  for (int32_t j = 0; j < k_; ++j) {
    const T phase = phase_of(left + area(j, m_), m_);
    for (int32_t i = 0; i < m_; ++i) u[area(i, u_width) + j] = left[area(j, m_) + i] *= phase;
    for (int32_t i = 0; i < n_; ++i)
      vh[area(j, n_) + i] = right[area(i, k_) + j] * conjugate(phase);
  }
  if (u_width > k_) {
    std::copy_n(left, area(m_, k_), matrix);
    left_.complete(matrix, tau, work);
    for (int32_t j = k_; j < m_; ++j)
      for (int32_t i = 0; i < m_; ++i) u[area(i, u_width) + j] = matrix[area(j, m_) + i];
  }
  if (v_width > k_) {
    for (int64_t i = 0; i < area(k_, n_); ++i) matrix[i] = conjugate(vh[i]);
    right_.complete(matrix, tau, work);
    for (int64_t i = area(k_, n_); i < area(n_, n_); ++i) vh[i] = conjugate(matrix[i]);
  }
}

template class SolveJob<float>;
template class SolveJob<double>;
template class SolveJob<std::complex<float>>;
template class SolveJob<std::complex<double>>;
template class CholeskyJob<float>;
template class CholeskyJob<double>;
template class CholeskyJob<std::complex<float>>;
template class TriangularJob<float>;
template class TriangularJob<double>;
template class TriangularJob<std::complex<float>>;
template class LuJob<float>;
template class LuJob<double>;
template class LuJob<std::complex<float>>;
template class QrJob<float>;
template class QrJob<double>;
template class QrJob<std::complex<float>>;
template class EighJob<float>;
template class EighJob<double>;
template class EighJob<std::complex<float>>;
template class EigJob<float>;
template class EigJob<std::complex<float>>;
template class SvdJob<float>;
template class SvdJob<double>;
template class SvdJob<std::complex<float>>;

}  // namespace rlx::cpu
