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

// Odd factors as 9s and primes; empty for 1 and when a prime factor is too large for a stage.
std::vector<int64_t> odd_radices(int64_t n) {
  std::vector<int64_t> out;
  for (; n % 9 == 0; n /= 9) out.push_back(9);
  for (int64_t p = 3; p <= kFftMaxPrime; p += 2)
    for (; n % p == 0; n /= p) out.push_back(p);
  return n == 1 ? out : std::vector<int64_t>{};
}

bool is_smooth(int64_t n, int64_t most = kFftMaxPrime) {
  for (int64_t p = 2; p <= most; ++p)
    while (n % p == 0) n /= p;
  return n == 1;
}

// The radices of a smooth n. Powers of two are as few and as equal as they can be and stand at the ends, whose stages
// read and write memory; a single one is last, or first.
std::vector<int64_t> radices(int64_t n, int64_t largest, bool single_first) {
  int twos = 0, most = 0;
  for (; n % 2 == 0; n /= 2) ++twos;
  while (int64_t{2} << most <= largest) ++most;
  std::vector<int64_t> powers;
  for (int left = (twos + most - 1) / most; left > 0; --left) {
    const int bits = (twos + left - 1) / left;
    powers.push_back(int64_t{1} << bits);
    twos -= bits;
  }
  std::vector<int64_t> out = odd_radices(n);
  if (powers.empty()) return out;
  out.insert(out.end(), powers.begin() + 1, powers.end());
  const bool first = powers.size() > 1 || single_first;
  out.insert(first ? out.begin() : out.end(), powers[0]);
  return out;
}

// The smallest number of points at least n whose stages are cheap, a multiple of `unit`, a power of two.
int64_t friendly_size(int64_t n, int64_t unit) {
  int64_t best = unit;
  while (best < n) best *= 2;
  for (int64_t odd : {3, 5, 7, 9, 15}) {
    int64_t size = odd * unit;
    while (size < n) size *= 2;
    best = std::min(best, size);
  }
  return best;
}

// The divisor of n nearest to its root from below, of those whose cofactor and itself are multiples of `lanes` if there
// are any not far from it.
int64_t balanced_divisor(int64_t n, int64_t lanes) {
  auto largest = static_cast<int64_t>(std::sqrt(static_cast<double>(n)));
  while (largest * largest > n) --largest;
  for (int64_t d = largest; 4 * d >= largest && d >= lanes; --d)
    if (n % d == 0 && d % lanes == 0 && n / d % lanes == 0) return d;
  int64_t d = largest;
  while (n % d != 0) --d;
  return d;
}

int64_t power(int64_t base, int64_t exponent, int64_t modulus) {
  int64_t out = 1;
  for (; exponent; exponent /= 2, base = base * base % modulus)
    if (exponent % 2) out = out * base % modulus;
  return out;
}

// A number whose powers are all of 1 .. p - 1 modulo the prime p; 0 when p is no prime or beyond 31 bits.
int64_t generator(int64_t p) {
  if (p < 3 || p > INT32_MAX) return 0;
  for (int64_t d = 2; d * d <= p; ++d)
    if (p % d == 0) return 0;
  std::vector<int64_t> factors;
  int64_t rest = p - 1;
  for (int64_t d = 2; d * d <= rest; ++d) {
    if (rest % d == 0) factors.push_back(d);
    while (rest % d == 0) rest /= d;
  }
  if (rest > 1) factors.push_back(rest);
  for (int64_t g = 2;; ++g)
    if (std::ranges::none_of(factors, [&](int64_t f) { return power(g, (p - 1) / f, p) == 1; }))
      return g;
}

// The transform of `padded` points over `padded`, by the double-precision transform itself; real parts first.
std::vector<double> spectrum_of(const std::vector<Root>& x, int64_t padded) {
  std::vector<double> parts(static_cast<size_t>(2 * padded)), spectrum(parts.size());
  for (size_t k = 0; k < x.size(); ++k)
    parts[k] = x[k].re, parts[k + static_cast<size_t>(padded)] = x[k].im;
  const FftPlan plan({.dtype = DType::F64, .n = padded, .scale = 1.0 / static_cast<double>(padded)},
                     Isa::Baseline);
  std::vector<double> between(plan.phases() > 1 ? plan.between_bytes(0) / sizeof(double) : 0);
  std::vector<std::byte> scratch(plan.scratch_bytes());
  for (int phase = 0; phase < plan.phases(); ++phase)
    plan.run(phase, phase == 0 ? parts.data() : between.data(),
             phase + 1 == plan.phases() ? spectrum.data() : between.data(), scratch.data(), 0,
             plan.blocks(phase));
  return spectrum;
}

// How far behind one buffer of lanes the next begins, so that they do not meet in the same sets of the first cache.
constexpr int64_t kBufferGapBytes = 17 * 64;

template <class T>
class Tables {
 public:
  Tables(const FftProblem& p, Isa isa);
  FftProgram<T> program;
  Isa isa;
  struct Phase {
    FftLines<T> x, y;
    int64_t blocks = 0, between = 0;  // numbers
  };
  std::vector<Phase> phases;
  int64_t scratch = 0;  // numbers, not bytes

  void run(int phase, const T* x, T* y, T* scratch, int64_t begin, int64_t end) const;

 private:
  using Way = typename FftProgram<T>::Way;
  using LineWay = typename FftLine<T>::Way;

  void choose(const FftProblem& p, int64_t n);
  FftTables<T> tables(int64_t n, bool single_first = false);
  FftTables<T> stages(int64_t n, bool single_first);
  FftConvolution<T> convolution(int64_t n, int64_t padded, bool rader, bool pairs);
  LineWay line_way(int64_t n) const;
  FftLine<T> line(int64_t n);
  int groups_of(int64_t columns, int64_t buffer) const;
  void row(FftLine<T>& f);
  void matrix(FftLine<T>& f);
  void half();
  T* numbers(int64_t count) { return numbers_.emplace_back(static_cast<size_t>(count)).data(); }
  int32_t* order(int64_t count) { return orders_.emplace_back(static_cast<size_t>(count)).data(); }
  void put(T* to, int64_t i, Root r) { put(to, 2 * i, 2 * i + 1, r); }
  void put(T* to, int64_t re, int64_t im, Root r) {
    to[re] = static_cast<T>(r.re);
    to[im] = static_cast<T>(r.im);
  }
  int64_t buffer(int64_t points) const {
    return 2 * points * lanes_ + kBufferGapBytes / static_cast<int64_t>(sizeof(T));
  }

  int64_t lanes_;
  std::deque<std::vector<T>> numbers_;
  std::deque<std::vector<int32_t>> orders_;
  std::deque<std::vector<FftStage<T>>> stages_;
  std::deque<FftTables<T>> inner_;
  std::deque<FftLine<T>> lines_;
};

template <class T>
FftTables<T> Tables<T>::stages(int64_t n, bool single_first) {
  std::vector<FftStage<T>>& list = stages_.emplace_back();
  int64_t stride = 1;
  for (int64_t radix : radices(n, isa == Isa::Avx512 ? 16 : 8, single_first)) {
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

template <class T>
FftConvolution<T> Tables<T>::convolution(int64_t n, int64_t padded, bool rader, bool pairs) {
  FftConvolution<T> f;
  f.padded = padded;
  std::vector<Root> kernel(static_cast<size_t>(padded));
  if (rader) {
    const int64_t g = generator(n), back = power(g, n - 2, n);
    int32_t *gather = order(padded), *scatter = order(padded);
    int64_t forth = 1, reverse = 1;
    for (int64_t k = 0; k < padded; ++k, forth = forth * g % n, reverse = reverse * back % n) {
      gather[k] = static_cast<int32_t>(forth);
      scatter[k] = static_cast<int32_t>(reverse);
      kernel[static_cast<size_t>(k)] = root(reverse, n);
    }
    f.gather = gather, f.scatter = scatter;
  } else {
    T* chirp = numbers(2 * n);
    int64_t square = 0;  // k^2 modulo 2 n
    for (int64_t k = 0; k < n; square = (square + 2 * k + 1) % (2 * n), ++k) {
      const Root r = root(square, 2 * n);
      put(chirp, k, r);
      for (int64_t at : {k, k ? padded - k : 0}) kernel[static_cast<size_t>(at)] = {r.re, -r.im};
    }
    f.chirp = chirp;
  }
  T* factors = numbers(2 * padded);
  const std::vector<double> spectrum = spectrum_of(kernel, padded);
  const double* re = spectrum.data();
  for (int64_t k = 0; k < padded; ++k)
    put(factors, pairs ? 2 * k : k, pairs ? 2 * k + 1 : padded + k, {re[k], re[k + padded]});
  f.factors = factors;
  return f;
}

// A stage of a larger radix costs more than what a convolution of the next friendly size does.
constexpr int64_t kRaderMaxPrime = 13;

bool suits_rader(int64_t n) { return is_smooth(n - 1, kRaderMaxPrime) && generator(n) != 0; }

template <class T>
FftTables<T> Tables<T>::tables(int64_t n, bool single_first) {
  if (is_smooth(n)) return stages(n, single_first);
  const bool rader = suits_rader(n);
  FftTables<T> f;
  f.n = n;
  const int64_t padded = rader ? n - 1 : friendly_size(2 * n - 1, 1);
  f.points = std::max(n, padded);
  f.convolution = convolution(n, padded, rader, true);
  f.inner = &inner_.emplace_back(stages(padded, false));
  return f;
}

// Buffers of lanes should stay in the second-level cache.
constexpr int64_t kLaneBytes = 2 << 20;
// What is larger has more pages, and lines that map to the same sets, than caches take when it is walked column by column.
constexpr int64_t kNearBytes = 1 << 20;
// Lines whose buffers and tables stay in the second-level cache.
constexpr int64_t kRowBytes = 256 << 10;

template <class T>
typename Tables<T>::LineWay Tables<T>::line_way(int64_t n) const {
  const auto bytes = static_cast<int64_t>(2 * sizeof(T)) * n;
  if (!is_smooth(n))
    return n >= 64 * lanes_ && n < INT32_MAX / 8 ? LineWay::convolved : LineWay::none;
  if (n % lanes_ == 0 && n / lanes_ >= lanes_ && bytes <= kRowBytes) return LineWay::row;
  return balanced_divisor(n, lanes_) >= lanes_ ? LineWay::matrix : LineWay::none;
}

template <class T>
FftLine<T> Tables<T>::line(int64_t n) {
  FftLine<T> f;
  f.n = n;
  f.way = line_way(n);
  if (f.way == LineWay::row) row(f);
  if (f.way == LineWay::matrix) matrix(f);
  if (f.way == LineWay::convolved) {
    const bool rader = suits_rader(n) && line_way(n - 1) != LineWay::none;
    const int64_t padded = rader ? n - 1 : friendly_size(2 * n - 1, lanes_ * lanes_);
    f.convolution = convolution(n, padded, rader, false);
    f.inner = &lines_.emplace_back(line(padded));
    f.scratch = 4 * padded + f.inner->scratch;
  }
  return f;
}

template <class T>
void Tables<T>::row(FftLine<T>& f) {
  const int64_t m = f.n / lanes_;
  f.tables = stages(m, false);
  f.buffer = buffer(m);
  f.scratch = 2 * f.buffer;
  T* w = numbers(2 * ceil_div(m, lanes_) * lanes_ * lanes_);
  f.across = w;
  for (int64_t p = 0; p < m; p += lanes_)
    for (int64_t k = 0; k < lanes_; ++k, w += 2 * lanes_)
      for (int64_t i = 0; i < lanes_; ++i)
        put(w, i, lanes_ + i, root(k * (std::min(p, m - lanes_) + i), f.n));
}

// How many groups of columns of a matrix are read and written at once.
template <class T>
int Tables<T>::groups_of(int64_t columns, int64_t buffer) const {
  const auto bytes = static_cast<int64_t>(sizeof(T));
  if (2 * bytes * program.n * program.lines < kNearBytes) return 1;
  for (int groups : {4, 2})
    if (columns >= groups * lanes_ && (2 + groups) * buffer * bytes <= kLaneBytes) return groups;
  return 1;
}

template <class T>
void Tables<T>::matrix(FftLine<T>& f) {
  const int64_t rows = balanced_divisor(f.n, lanes_), columns = f.n / rows,
                groups = ceil_div(columns, lanes_);
  f.column = stages(rows, true), f.row = stages(columns, false);
  f.buffer = buffer(std::max(rows, columns));
  f.middle = 2 * align_up(rows, lanes_) * columns;
  f.groups = groups_of(rows, f.buffer);
  f.scratch = f.middle + (f.groups > 1 ? 2 + f.groups : 2) * f.buffer;
  T *group = numbers(2 * groups * rows), *lane = numbers(2 * rows * lanes_);
  for (int64_t k = 0; k < rows; ++k) {
    for (int64_t g = 0; g < groups; ++g)
      put(group, g * rows + k, root(k * std::min(g * lanes_, columns - lanes_), f.n));
    for (int64_t i = 0; i < lanes_; ++i)
      put(lane + k * 2 * lanes_, i, lanes_ + i, root(k * i, f.n));
  }
  f.group = group, f.lane = lane;
}

template <class T>
void Tables<T>::half() {
  program.half_pitch = program.n;
  T* w = numbers(2 * program.n);
  for (int64_t k = 0; k < program.n; ++k) put(w, k, program.n + k, root(k, 2 * program.n));
  program.half = w;
}

// Fewer lines than this, each longer than that: shared out by their halves.
constexpr int64_t kFewLines = 12, kLongLine = 1 << 14;

// [outer, n, inner] of complex numbers: elements of c64 are neighbours, blocks of real numbers n apart. Pairs of real
// ones are complex ones that lie in two rows.
template <class T>
FftLines<T> layout(int64_t n, int64_t inner, bool blocks) {
  if (blocks) return {nullptr, inner, 2 * n * inner, 1, inner, n * inner};
  return {nullptr, inner, 2 * n * inner, 2, 2 * inner, 1};
}
template <class T>
FftLines<T> layout_of_pairs(int64_t n, int64_t inner) {
  return {nullptr, inner, 2 * n * inner, inner == 1 ? 2 : 1, 2 * inner, inner};
}

template <class T>
Tables<T>::Tables(const FftProblem& p, Isa which)
    : isa(which), lanes_(vector_bytes(which) / static_cast<int64_t>(sizeof(T))) {
  const int64_t n = p.real == FftReal::none ? p.n : p.n / 2;
  program.n = n;
  program.lines = p.outer * p.inner;
  program.inverse = p.inverse;
  program.real = p.real;
  program.scale = static_cast<T>(p.scale);
  const bool blocks = p.dtype != DType::C64;
  const FftLines<T> all = layout<T>(n, p.inner, blocks), bins = layout<T>(n + 1, p.inner, false),
                    pairs = layout_of_pairs<T>(n, p.inner);
  phases.push_back({all, all, 0, 0});
  if (p.real == FftReal::to_bins) phases[0] = {pairs, bins, 0, 0};
  if (p.real == FftReal::from_bins) phases[0] = {bins, pairs, 0, 0};
  if (program.lines == 0 || n == 0) return;
  if (p.real != FftReal::none) half();
  choose(p, n);
}

template <class T>
void Tables<T>::choose(const FftProblem& p, int64_t n) {
  const LineWay way = line_way(n);
  const bool fits = 4 * n * vector_bytes(isa) <= kLaneBytes, few = 2 * program.lines < lanes_,
             rows = p.inner == 1 && way == LineWay::row;
  if (way == LineWay::none || (fits && !few && !rows)) {
    program.way = Way::lanes;
    program.tables = tables(n);
    program.buffer = buffer(std::max(program.tables.points, n + 1));
    program.groups = groups_of(p.inner, program.buffer);
    program.row_blocks = p.inner >= lanes_ ? ceil_div(p.inner, program.groups * lanes_) : 0;
    phases[0].blocks =
        program.row_blocks ? p.outer * program.row_blocks : ceil_div(program.lines, lanes_);
    scratch = (program.groups > 1 ? 2 + program.groups : 2) * program.buffer;
    return;
  }
  const bool shared = p.inner == 1 && program.lines < kFewLines && n >= kLongLine;
  program.line.n = n;
  if (shared && is_smooth(n) && balanced_divisor(n, lanes_) >= lanes_) {
    program.way = Way::phases;
    program.line.way = LineWay::matrix;
    matrix(program.line);
    const FftLine<T>& f = program.line;
    const FftLines<T> middle{nullptr, 1, f.middle, 0, 0, 0}, z{nullptr, 1, 2 * n, 0, 1, n};
    const Phase whole = phases[0];
    const bool to = p.real == FftReal::to_bins, from = p.real == FftReal::from_bins;
    const int64_t width = f.groups * lanes_,
                  halves[] = {ceil_div(f.row.n, width), ceil_div(f.column.n, width)};
    phases.clear();
    if (from) phases.push_back({whole.x, z, ceil_div(n, kFftBinBlock), 2 * n});
    phases.push_back({from ? z : whole.x, middle, halves[0], f.middle});
    phases.push_back({middle, to ? z : whole.y, halves[1], 2 * n});
    if (to) phases.push_back({z, whole.y, ceil_div(n, kFftBinBlock), 0});
    for (size_t i = 0; i < phases.size(); ++i) {
      program.phase_groups[i] = phases[i].blocks;
      phases[i].blocks *= program.lines, phases[i].between *= program.lines;
    }
    scratch = f.scratch - f.middle;
    return;
  }
  program.way = Way::lines;
  program.line = line(n);
  phases[0].blocks = program.lines;
  scratch =
      program.line.scratch + (p.real == FftReal::none ? 0 : 2 * n) + (p.inner == 1 ? 0 : 4 * n + 2);
}

template <class T>
void Tables<T>::run(int phase, const T* x, T* y, T* memory, int64_t begin, int64_t end) const {
  const Phase& at = phases[static_cast<size_t>(phase)];
  const FftLines<const T> in{x, at.x.inner, at.x.outer_step, at.x.inner_step, at.x.step, at.x.im};
  FftLines<T> out = at.y;
  out.base = y;
  for_isa(isa, [&](auto width) { fft_run<T, width>(program, phase, in, out, begin, end, memory); });
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
  size_t bytes(int64_t numbers) const {
    return static_cast<size_t>(numbers) *
           (problem.dtype == DType::F64 ? sizeof(double) : sizeof(float));
  }
};

FftPlan::FftPlan(const FftProblem& p, Isa isa) : impl_(std::make_unique<Impl>(p, isa)) {
  check(p.dtype == DType::C64 || p.dtype == DType::F32 || p.dtype == DType::F64,
        "fft: no kernel for {}", p.dtype);
  check(p.real == FftReal::none ||
            (p.dtype == DType::C64 && p.n % 2 == 0 && p.inverse == (p.real == FftReal::from_bins)),
        "fft: no kernel for these real lines");
}
FftPlan::~FftPlan() = default;

int FftPlan::phases() const {
  return std::visit([](const auto& t) { return static_cast<int>(t.phases.size()); }, impl_->tables);
}

int64_t FftPlan::blocks(int phase) const {
  return std::visit([&](const auto& t) { return t.phases[static_cast<size_t>(phase)].blocks; },
                    impl_->tables);
}

size_t FftPlan::between_bytes(int phase) const {
  return std::visit(
      [&](const auto& t) { return impl_->bytes(t.phases[static_cast<size_t>(phase)].between); },
      impl_->tables);
}

size_t FftPlan::scratch_bytes() const {
  return std::visit([&](const auto& t) { return impl_->bytes(t.scratch); }, impl_->tables);
}

double FftPlan::flops() const {
  const FftProblem& p = impl_->problem;
  const auto n = static_cast<double>(p.n);
  const double full = 5 * n * std::log2(std::max(n, 2.0)) * static_cast<double>(p.outer * p.inner);
  return p.real == FftReal::none ? full : full / 2;
}

void FftPlan::run(int phase, const void* x, void* y, std::byte* scratch, int64_t begin,
                  int64_t end) const {
  std::visit(
      [&]<class T>(const Tables<T>& t) {
        t.run(phase, static_cast<const T*>(x), static_cast<T*>(y), reinterpret_cast<T*>(scratch),
              begin, end);
      },
      impl_->tables);
}

}  // namespace rlx::cpu
