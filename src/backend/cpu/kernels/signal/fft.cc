#include "rlx/backend/cpu/kernels/signal/fft.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numbers>
#include <variant>
#include <vector>

#include "rlx/backend/cpu/kernels/signal/fft_tables.h"
#include "rlx/base/checked.h"
#include "rlx/base/error.h"

namespace rlx::cpu {
namespace {

struct Root {
  double re, im;
};

// e^(i pi / 2 * a / n) for 0 <= a <= n / 2. The angle has 64 bits; what a double leaves of it is the argument's error,
// made good to first order.
Root turn(int64_t a, int64_t n) {
  const auto angle = static_cast<long double>(a) * (std::numbers::pi_v<long double> / 2) /
                     static_cast<long double>(n);
  const auto high = static_cast<double>(angle), low = static_cast<double>(angle - high);
  const double c = std::cos(high), s = std::sin(high);
  return {c - low * s, s + low * c};
}

// e^(-2 pi i k / n), the angle reduced to the first octant.
Root root(int64_t k, int64_t n) {
  k %= n;
  if (2 * k > n) {  // conjugate of the upper half
    const Root r = root(n - k, n);
    return {r.re, -r.im};
  }
  if (4 * k > n) {  // a quarter turn back
    const Root r = root(4 * k - n, 4 * n);
    return {r.im, -r.re};
  }
  if (8 * k > n) {  // mirrored at the diagonal
    const Root r = turn(n - 4 * k, n);
    return {r.im, -r.re};
  }
  const Root r = turn(4 * k, n);
  return {r.re, -r.im};
}

// The radices of n, powers of two as 8s and 4s; empty when a prime factor is too large.
std::vector<int64_t> radices(int64_t n) {
  std::vector<int64_t> out;
  int twos = 0;
  for (; n % 2 == 0; n /= 2) ++twos;
  for (; twos >= 5 || twos == 3; twos -= 3) out.push_back(8);
  for (; twos >= 2; twos -= 2) out.push_back(4);
  if (twos) out.push_back(2);
  for (int64_t p = 3; p <= kFftMaxPrime; p += 2)
    for (; n % p == 0; n /= p) out.push_back(p);
  return n == 1 ? out : std::vector<int64_t>{};
}

// The smallest of 2^a, 3 * 2^a, 5 * 2^a, 9 * 2^a that is at least n.
int64_t friendly_size(int64_t n) {
  int64_t best = 1;
  while (best < n) best *= 2;
  for (int64_t odd : {3, 5, 9}) {
    int64_t size = odd;
    while (size < n) size *= 2;
    best = std::min(best, size);
  }
  return best;
}

// The largest divisor of n up to its root.
int64_t balanced_divisor(int64_t n) {
  auto d = static_cast<int64_t>(std::sqrt(static_cast<double>(n)));
  while (n % d != 0) --d;
  return d;
}

template <class T>
class Tables {
 public:
  Tables(const FftProblem& p, Isa isa);
  FftProgram<T> program;
  FftLines<T> layout;
  Isa isa;
  int64_t blocks = 0, scratch = 0;  // numbers, not bytes

  void run(const T* x, T* y, T* scratch, int64_t begin, int64_t end) const;

 private:
  FftTables<T> tables(int64_t n);
  FftTables<T> stages(int64_t n, const std::vector<int64_t>& factors);
  FftTables<T> bluestein(int64_t n);
  FftSplit<T> split(int64_t n);
  T* numbers(int64_t count) { return numbers_.emplace_back(static_cast<size_t>(count)).data(); }
  void put(T* to, int64_t i, Root r) {
    to[2 * i] = static_cast<T>(r.re);
    to[2 * i + 1] = static_cast<T>(r.im);
  }
  int64_t lanes() const { return vector_bytes(isa) / static_cast<int64_t>(sizeof(T)); }

  std::deque<std::vector<T>> numbers_;
  std::deque<std::vector<FftStage<T>>> stages_;
  std::deque<FftTables<T>> inner_;
};

template <class T>
FftTables<T> Tables<T>::stages(int64_t n, const std::vector<int64_t>& factors) {
  std::vector<FftStage<T>>& list = stages_.emplace_back();
  int64_t stride = 1;
  for (int64_t radix : factors) {
    const int64_t groups = n / (stride * radix);
    T* twiddles = numbers(2 * groups * (radix - 1));
    for (int64_t p = 0; p < groups; ++p)
      for (int64_t k = 1; k < radix; ++k)
        put(twiddles, p * (radix - 1) + k - 1, root(p * k, groups * radix));
    T* roots = numbers(2 * radix);
    for (int64_t j = 0; j < radix; ++j) put(roots, j, root(j, radix));
    list.push_back({radix, stride, groups, twiddles, roots});
    stride *= radix;
  }
  FftTables<T> f;
  f.n = f.points = n;
  f.stages = static_cast<int64_t>(list.size());
  f.stage = list.data();
  return f;
}

// The spectrum of the conjugate chirp, by the double-precision transform itself.
std::vector<double> chirp_spectrum(const std::vector<Root>& chirp, int64_t padded) {
  std::vector<double> b(static_cast<size_t>(2 * padded)), spectrum(b.size());
  for (size_t k = 0; k < chirp.size(); ++k)
    for (size_t at : {k, k ? static_cast<size_t>(padded) - k : 0}) {
      b[at] = chirp[k].re;
      b[at + static_cast<size_t>(padded)] = -chirp[k].im;
    }
  const FftPlan plan({DType::F64, 1, padded, 1, false, 1.0 / static_cast<double>(padded)},
                     Isa::Baseline);
  std::vector<std::byte> scratch(plan.scratch_bytes());
  plan.run(b.data(), spectrum.data(), scratch.data(), 0, plan.blocks());
  return spectrum;
}

template <class T>
FftTables<T> Tables<T>::bluestein(int64_t n) {
  FftTables<T> f;
  f.n = n;
  f.padded = f.points = friendly_size(2 * n - 1);
  std::vector<Root> chirp;
  int64_t square = 0;  // k^2 modulo 2 n
  for (int64_t k = 0; k < n; square = (square + 2 * k + 1) % (2 * n), ++k)
    chirp.push_back(root(square, 2 * n));
  T *c = numbers(2 * n), *kernel = numbers(2 * f.padded);
  for (int64_t k = 0; k < n; ++k) put(c, k, chirp[static_cast<size_t>(k)]);
  const std::vector<double> spectrum = chirp_spectrum(chirp, f.padded);
  const double* re = spectrum.data();
  for (int64_t k = 0; k < f.padded; ++k) put(kernel, k, {re[k], re[k + f.padded]});
  f.chirp = c, f.kernel = kernel;
  return f;
}

template <class T>
FftTables<T> Tables<T>::tables(int64_t n) {
  const std::vector<int64_t> factors = radices(n);
  if (n == 1 || !factors.empty()) return stages(n, factors);
  FftTables<T> f = bluestein(n);
  f.inner = &inner_.emplace_back(stages(f.padded, radices(f.padded)));
  return f;
}

template <class T>
FftSplit<T> Tables<T>::split(int64_t n) {
  FftSplit<T> f;
  const int64_t rows = balanced_divisor(n), columns = n / rows;
  f.column = tables(rows), f.row = tables(columns);
  f.points = std::max(f.column.points, f.row.points);
  f.pitch = align_up(columns, int64_t{16});
  T *re = numbers(2 * rows * f.pitch), *im = re + rows * f.pitch;
  for (int64_t k = 0; k < rows; ++k)
    for (int64_t j = 0; j < columns; ++j) {
      const Root w = root(k * j, n);
      re[k * f.pitch + j] = static_cast<T>(w.re), im[k * f.pitch + j] = static_cast<T>(w.im);
    }
  f.twiddles = re;
  return f;
}

// How a line is laid out: elements of a c64 are neighbours, blocks of real numbers are n apart.
template <class T>
FftLines<T> layout_of(const FftProblem& p) {
  const int64_t each = p.dtype == DType::C64 ? 2 : 1;
  return {nullptr, p.inner,        2 * p.n * p.inner,
          each,    each * p.inner, p.dtype == DType::C64 ? 1 : p.n * p.inner};
}

// Buffers of lanes should stay in the second-level cache.
constexpr int64_t kLaneBytes = 2 << 20;

template <class T>
Tables<T>::Tables(const FftProblem& p, Isa which) : layout(layout_of<T>(p)), isa(which) {
  program.lines = p.outer * p.inner;
  program.inverse = p.inverse;
  program.scale = static_cast<T>(p.scale);
  if (program.lines == 0 || p.n == 0) return;
  const int64_t rows = balanced_divisor(p.n);
  const bool smooth = !radices(p.n).empty(), splits = rows >= 8 && (smooth || p.n / rows <= 4096);
  const bool fits = 4 * p.n * vector_bytes(isa) <= kLaneBytes, few = 2 * program.lines < lanes();
  program.by_line = !fits || (few && p.n >= 64 && (splits || !smooth));
  if (!program.by_line) {
    program.tables = tables(p.n);
    blocks = ceil_div(program.lines, lanes());
    scratch = 4 * program.tables.points * lanes();
    return;
  }
  blocks = program.lines;
  if (!splits) program.tables = bluestein(p.n);
  const int64_t points = splits ? p.n : program.tables.padded;
  program.split = split(points);
  scratch = 2 * points * (splits ? 1 : 3) + 4 * program.split.points * lanes();
}

template <class T>
void Tables<T>::run(const T* x, T* y, T* memory, int64_t begin, int64_t end) const {
  const FftLines<const T> in{x,           layout.inner, layout.outer_step, layout.inner_step,
                             layout.step, layout.im};
  FftLines<T> out = layout;
  out.base = y;
  for_isa(isa, [&](auto width) { fft_run<T, width>(program, in, out, begin, end, memory); });
}

}  // namespace

struct FftPlan::Impl {
  FftProblem problem;
  std::variant<Tables<float>, Tables<double>> tables;
  Impl(const FftProblem& p, Isa isa)
      : problem(p),
        tables(p.dtype == DType::F64
                   ? std::variant<Tables<float>, Tables<double>>(std::in_place_index<1>, p, isa)
                   : std::variant<Tables<float>, Tables<double>>(std::in_place_index<0>, p, isa)) {}
};

FftPlan::FftPlan(const FftProblem& p, Isa isa) : impl_(std::make_unique<Impl>(p, isa)) {
  check(p.dtype == DType::C64 || p.dtype == DType::F32 || p.dtype == DType::F64,
        "fft: no kernel for {}", p.dtype);
}
FftPlan::~FftPlan() = default;

int64_t FftPlan::blocks() const {
  return std::visit([](const auto& t) { return t.blocks; }, impl_->tables);
}

size_t FftPlan::scratch_bytes() const {
  const size_t number = impl_->problem.dtype == DType::F64 ? sizeof(double) : sizeof(float);
  return std::visit([&](const auto& t) { return static_cast<size_t>(t.scratch) * number; },
                    impl_->tables);
}

double FftPlan::flops() const {
  const FftProblem& p = impl_->problem;
  const auto n = static_cast<double>(p.n);
  return 5 * n * std::log2(std::max(n, 2.0)) * static_cast<double>(p.outer * p.inner);
}

void FftPlan::run(const void* x, void* y, std::byte* scratch, int64_t begin, int64_t end) const {
  std::visit(
      [&]<class T>(const Tables<T>& t) {
        t.run(static_cast<const T*>(x), static_cast<T*>(y), reinterpret_cast<T*>(scratch), begin,
              end);
      },
      impl_->tables);
}

}  // namespace rlx::cpu
