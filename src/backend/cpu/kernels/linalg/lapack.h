// Dense linear algebra on single matrices by LAPACK and BLAS (OpenBLAS), for T = float, double or
// std::complex<float>. Matrices are row-major and dense; conventions are those of rlx/ops/linalg/factor.h.
//
//   SvdJob<float> svd(m, n, /*full=*/false);     // when planned: asks LAPACK for its workspace
//   svd(a, u, s, vh, scratch);                   // svd.scratch_bytes() of scratch; any thread
//
// The library is loaded when the first job is made (loading starts its threads, so a program that
// needs none of this is spared) and told to use one thread per call: callers share batches out, and
// results do not depend on the number of threads. Calls allocate nothing of ours. Raises
// Error(unsupported, "lapack") when the library is missing or a matrix is too large for it.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace rlx::cpu {

// Which libraries answer, a line each for BLAS and LAPACK. Loads them; never raises.
std::string linear_algebra_libraries();

template <class T>
struct RealOf {
  using type = T;
};
template <class T>
struct RealOf<std::complex<T>> {
  using type = T;
};
template <class T>
using Real = typename RealOf<T>::type;
template <class T>  // double, or std::complex<double> for complex T
using Wide = std::conditional_t<std::is_same_v<T, Real<T>>, double, std::complex<double>>;

// a x = b; a [n, n], b and x [n, columns]. False when a pivot is 0; x is undefined then.
template <class T>
class SolveJob {
 public:
  SolveJob(int64_t n, int64_t columns);
  size_t scratch_bytes() const;
  bool operator()(const T* a, const T* b, T* x, std::byte* scratch) const;

 private:
  int32_t n_, columns_;
};

// The factor of the Hermitian part of a [n, n]; NaN when it is not positive definite.
template <class T>
class CholeskyJob {
 public:
  CholeskyJob(int64_t n, bool lower);
  void operator()(const T* a, T* factor) const;

 private:
  int32_t n_;
  bool lower_;
};

// op(a) x = b or x op(a) = b; x and b [rows, columns].
struct Triangle {
  bool left, lower, transpose, unit_diagonal;
};
template <class T>
class TriangularJob {
 public:
  TriangularJob(int64_t rows, int64_t columns, Triangle triangle);
  void operator()(const T* a, const T* b, T* x) const;

 private:
  int32_t rows_, columns_;
  Triangle triangle_;
};

template <class T>
class LuJob {
 public:
  LuJob(int64_t m, int64_t n);
  size_t scratch_bytes() const;
  void operator()(const T* a, T* lu, int32_t* pivots, int32_t* permutation,
                  std::byte* scratch) const;

 private:
  int32_t m_, n_;
};

template <class T>
class QrJob {
 public:
  QrJob(int64_t m, int64_t n, bool complete);
  size_t scratch_bytes() const;
  void operator()(const T* a, T* q, T* r, std::byte* scratch) const;
  // Columns [k, m) of the complete Q of `columns` [m, n] (column-major, room for m columns).
  void complete(T* columns, T* tau, T* work) const;
  int32_t work_size() const { return work_; }

 private:
  int32_t m_, n_, width_, work_ = 0;
};

template <class T>
class EighJob {
 public:
  explicit EighJob(int64_t n);
  size_t scratch_bytes() const;
  void operator()(const T* a, Real<T>* values, T* vectors, std::byte* scratch) const;

 private:
  int32_t n_, work_ = 0, real_work_ = 0, int_work_ = 0;
};

template <class T>  // float and std::complex<float>
class EigJob {
 public:
  explicit EigJob(int64_t n);
  size_t scratch_bytes() const;
  void operator()(const T* a, std::complex<float>* values, std::complex<float>* vectors,
                  std::byte* scratch) const;

 private:
  int32_t n_, work_ = 0;
};

template <class T>
class SvdJob {
 public:
  SvdJob(int64_t m, int64_t n, bool full);
  size_t scratch_bytes() const;
  void operator()(const T* a, T* u, Real<T>* s, T* vh, std::byte* scratch) const;

 private:
  int32_t m_, n_, k_, work_ = 0, real_work_ = 0;
  bool full_;
  QrJob<T> left_, right_;
};

// e^a by scaling and squaring with Pade's approximant of degree 13, computed in f64: squaring loses
// digits.
template <class T>
class ExpmJob {
 public:
  explicit ExpmJob(int64_t n);
  size_t scratch_bytes() const;
  void operator()(const T* a, T* out, std::byte* scratch) const;

 private:
  int32_t n_;
  SolveJob<Wide<T>> solve_;
};

// Its derivative at a in the direction e, by differentiating each step of the same method.
template <class T>
class ExpmFrechetJob {
 public:
  explicit ExpmFrechetJob(int64_t n);
  size_t scratch_bytes() const;
  void operator()(const T* a, const T* e, T* out, std::byte* scratch) const;

 private:
  int32_t n_;
  SolveJob<Wide<T>> solve_;
};

}  // namespace rlx::cpu
