// What the files of this folder share: LAPACKE's and CBLAS' functions of one type, and loops that are shorter than a call.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "rlx/backend/cpu/kernels/linalg/lapack.h"
#include "rlx/base/checked.h"
#include "rlx/base/error.h"

namespace rlx::cpu::lapack {

void* library();  // raises "lapack" where there is none

template <class F>
F* symbol(const std::string& name) {
  void* found = dlsym(library(), name.c_str());
  if (!found) fail(ErrorKind::unsupported, "lapack", "LAPACK has no {}", name);
  return reinterpret_cast<F*>(found);
}

template <class T>
constexpr bool kComplex = !std::is_same_v<T, Real<T>>;

template <class T>
std::string prefix() {
  constexpr bool wide = sizeof(Real<T>) == 8;
  return kComplex<T> ? (wide ? "z" : "c") : (wide ? "d" : "s");
}

// LAPACKE's and CBLAS' functions of one type; `int` results are LAPACK's info.
template <class T>
struct Routines {
  using R = Real<T>;
  using Scalar = std::conditional_t<kComplex<T>, const void*, T>;

  int (*getrf)(int layout, int m, int n, T* a, int lda, int* pivots);
  int (*potrf)(int layout, char uplo, int n, T* a, int lda);
  int (*geqrf)(int layout, int m, int n, T* a, int lda, T* tau, T* work, int lwork);
  int (*orgqr)(int layout, int m, int n, int k, T* a, int lda, const T* tau, T* work, int lwork);
  using RealEigh = int(int layout, char jobz, char uplo, int n, T* a, int lda, R* w, T* work,
                       int lwork, int* iwork, int liwork);
  using ComplexEigh = int(int layout, char jobz, char uplo, int n, T* a, int lda, R* w, T* work,
                          int lwork, R* rwork, int lrwork, int* iwork, int liwork);
  std::conditional_t<kComplex<T>, ComplexEigh, RealEigh>* eigh;
  using RealSvd = int(int layout, char jobz, int m, int n, T* a, int lda, R* s, T* u, int ldu,
                      T* vt, int ldvt, T* work, int lwork, int* iwork);
  using ComplexSvd = int(int layout, char jobz, int m, int n, T* a, int lda, R* s, T* u, int ldu,
                         T* vt, int ldvt, T* work, int lwork, R* rwork, int* iwork);
  std::conditional_t<kComplex<T>, ComplexSvd, RealSvd>* gesdd;
  using RealEig = int(int layout, char left, char right, int n, T* a, int lda, T* wr, T* wi, T* vl,
                      int ldvl, T* vr, int ldvr, T* work, int lwork);
  using ComplexEig = int(int layout, char left, char right, int n, T* a, int lda, T* w, T* vl,
                         int ldvl, T* vr, int ldvr, T* work, int lwork, R* rwork);
  std::conditional_t<kComplex<T>, ComplexEig, RealEig>* geev;
  void (*trsm)(int layout, int side, int uplo, int transpose, int diagonal, int m, int n,
               Scalar alpha, const T* a, int lda, T* b, int ldb);
  void (*gemm)(int layout, int transpose_a, int transpose_b, int m, int n, int k, Scalar alpha,
               const T* a, int lda, const T* b, int ldb, Scalar beta, T* c, int ldc);

  Routines() {
    load(getrf, "getrf"), load(potrf, "potrf"), load(geqrf, "geqrf"), load(gesdd, "gesdd");
    load(geev, "geev"), load(orgqr, kComplex<T> ? "ungqr" : "orgqr");
    load(eigh, kComplex<T> ? "heevd" : "syevd");
    trsm = symbol<std::remove_pointer_t<decltype(trsm)>>("cblas_" + prefix<T>() + "trsm");
    gemm = symbol<std::remove_pointer_t<decltype(gemm)>>("cblas_" + prefix<T>() + "gemm");
  }
  template <class F>
  static void load(F*& target, const std::string& name) {
    target = symbol<F>("LAPACKE_" + prefix<T>() + name + "_work");
  }
};

template <class T>
const Routines<T>& routines() {
  static const Routines<T> all;
  return all;
}

// Values of CBLAS' and LAPACKE's enumerations.
inline constexpr int kRowMajor = 101, kColumnMajor = 102, kNoTranspose = 111, kTranspose = 112,
                     kUpper = 121, kLower = 122, kNonUnit = 131, kUnit = 132, kLeft = 141,
                     kRight = 142;

template <class T>
typename Routines<T>::Scalar scalar(const T& value) {
  if constexpr (kComplex<T>)
    return &value;
  else
    return value;
}

int32_t size32(int64_t n);  // raises "lapack"

inline int32_t leading_dim(int32_t n) { return std::max(n, 1); }
inline int64_t area(int32_t m, int32_t n) { return static_cast<int64_t>(m) * n; }

// LAPACK answers a workspace query in an element of the workspace.
template <class T>
int32_t asked(T answer) {
  return static_cast<int32_t>(std::ceil(std::real(answer)));
}

// ---- memory and small loops ---------------------------------------------------------------------

// Cuts scratch memory into parts; without memory it only counts.
class Cut {
 public:
  explicit Cut(std::byte* base = nullptr) : base_(base) {}
  template <class U>
  U* take(int64_t count) {
    const size_t begin = used_;
    used_ += static_cast<size_t>(align_up(count * static_cast<int64_t>(sizeof(U)), 64));
    return base_ ? reinterpret_cast<U*>(base_ + begin) : nullptr;
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

// to [columns, rows] = from [rows, columns] transposed, tile by tile.
template <class T>
void transpose(const T* from, int64_t rows, int64_t columns, T* to) {
  constexpr int64_t kTile = 16;
  for (int64_t i0 = 0; i0 < rows; i0 += kTile)
    for (int64_t j0 = 0; j0 < columns; j0 += kTile)
      for (int64_t i = i0; i < std::min(i0 + kTile, rows); ++i)
        for (int64_t j = j0; j < std::min(j0 + kTile, columns); ++j)
          to[j * rows + i] = from[i * columns + j];
}

template <class T>
T conjugate(T x) {
  if constexpr (kComplex<T>)
    return std::conj(x);
  else
    return x;
}

template <class T>
T not_a_number() {
  const Real<T> nan = std::numeric_limits<Real<T>>::quiet_NaN();
  if constexpr (kComplex<T>)
    return T(nan, nan);
  else
    return nan;
}

template <class T>
bool all_finite(const T* a, int64_t count) {
  return std::all_of(
      a, a + count, [](T x) { return std::isfinite(std::real(x)) && std::isfinite(std::imag(x)); });
}

// The factor of modulus 1 that makes the first large component of a vector real and positive.
template <class T>
T phase_of(const T* v, int64_t count) {
  Real<T> largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(v[i]));
  for (int64_t i = 0; i < count; ++i)
    if (const Real<T> size = std::abs(v[i]); size > 0 && size >= Real<T>(0.9) * largest)
      return conjugate(v[i]) / size;
  return 1;
}

template <class T>
void product(int32_t n, const T* a, const T* b, T* c) {
  const T one = 1, zero = 0;
  routines<T>().gemm(kRowMajor, kNoTranspose, kNoTranspose, n, n, n, scalar(one), a, n, b, n,
                     scalar(zero), c, n);
}

// Up to this size a plain elimination is quicker than the calls of LAPACK.
inline constexpr int32_t kSmall = 24;

// Solves in place: x holds the right sides; a is overwritten. False when a pivot is 0.
template <class T>
bool eliminate(int64_t n, int64_t columns, T* a, T* x) {
  for (int64_t p = 0; p < n; ++p) {
    int64_t best = p;
    for (int64_t i = p + 1; i < n; ++i)
      if (std::abs(a[i * n + p]) > std::abs(a[best * n + p])) best = i;
    if (a[best * n + p] == T(0)) return false;
    if (best != p) {
      std::swap_ranges(a + p * n, a + (p + 1) * n, a + best * n);
      std::swap_ranges(x + p * columns, x + (p + 1) * columns, x + best * columns);
    }
    for (int64_t i = p + 1; i < n; ++i) {
      const T factor = a[i * n + p] / a[p * n + p];
      for (int64_t j = p + 1; j < n; ++j) a[i * n + j] -= factor * a[p * n + j];
      for (int64_t j = 0; j < columns; ++j) x[i * columns + j] -= factor * x[p * columns + j];
    }
  }
  for (int64_t i = n; i-- > 0;) {
    for (int64_t k = i + 1; k < n; ++k)
      for (int64_t j = 0; j < columns; ++j) x[i * columns + j] -= a[i * n + k] * x[k * columns + j];
    for (int64_t j = 0; j < columns; ++j) x[i * columns + j] /= a[i * n + i];
  }
  return true;
}

}  // namespace rlx::cpu::lapack
