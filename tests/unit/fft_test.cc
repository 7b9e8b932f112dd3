// Fourier transforms: every kernel against NumPy's numbers at many lengths (tests/golden/
// fft_probes.txt, which fft_probes.py writes), the relations that transforms obey, the spectral
// helpers, and gradients with PyTorch's numbers.
#include "rlx/backend/cpu/kernels/signal/fft.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "../support/worse.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/ops.h"
#include "rlx/ops/rules.h"
#include "rlx/ops/signal/fft_helpers.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/transform.h"

namespace rlx {
namespace {

using Numbers = std::vector<Complex>;

size_t at(int64_t i) { return static_cast<size_t>(i); }

// A fixed number in [-1/2, 1/2), exact in f32; the same as in fft_probes.py.
double noise(uint32_t i) {
  uint32_t h = i + 1;
  h = (h ^ h >> 16) * 0x85EBCA6Bu;
  h = (h ^ h >> 13) * 0xC2B2AE35u;
  h = h ^ h >> 16;
  return (h >> 8) * 0x1p-24 - 0.5;
}
Numbers signal_of(int64_t n) {
  Numbers x;
  for (uint32_t k = 0; k < n; ++k) x.emplace_back(noise(2 * k), noise(2 * k + 1));
  return x;
}

double norm_of(const Numbers& x) {
  double sum = 0;
  for (Complex z : x) sum += std::norm(z);
  return std::sqrt(sum);
}

// ---- kernels against NumPy

struct Probes {
  int64_t n;
  std::vector<std::pair<int64_t, Complex>> bins;
};
std::vector<Probes> read_probes() {
  std::ifstream file(RLX_SOURCE_DIR "/tests/golden/fft_probes.txt");
  std::vector<Probes> out;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Probes p{};
    words >> p.n;
    std::string re, im;
    for (int64_t k; words >> k >> re >> im;)
      p.bins.emplace_back(
          k, Complex(std::strtod(re.c_str(), nullptr), std::strtod(im.c_str(), nullptr)));
    out.push_back(p);
  }
  return out;
}

// All phases, the blocks of each from the last to the first, over memory that holds no numbers.
void run_plan(const cpu::FftPlan& plan, const void* x, void* y) {
  std::vector<std::byte> scratch(plan.scratch_bytes(), std::byte{0xff}), from, to;
  for (int phase = 0; phase < plan.phases(); ++phase) {
    const bool last = phase + 1 == plan.phases();
    to.assign(last ? 0 : plan.between_bytes(phase), std::byte{0xff});
    for (int64_t block = plan.blocks(phase); block-- > 0;)
      plan.run(phase, phase == 0 ? x : from.data(), last ? y : to.data(), scratch.data(), block,
               block + 1);
    from.swap(to);
  }
}

// The same signal on every line of [outer, n, inner]; the largest error of a probe on any line, in
// roundings of the dtype relative to the signal's norm, which is the typical size of a bin.
double probe_error(const Probes& probes, DType dtype, int64_t outer, int64_t inner, cpu::Isa isa) {
  const int64_t n = probes.n, total = 2 * outer * n * inner;
  const bool blocks = dtype != DType::C64;
  const Numbers x = signal_of(n);
  std::vector<double> in(at(total));
  auto re = [&](int64_t line, int64_t k) {
    const int64_t o = line / inner, q = line % inner;
    return at(blocks ? (o * 2 * n + k) * inner + q : 2 * ((o * n + k) * inner + q));
  };
  const size_t im = blocks ? at(n * inner) : 1;
  for (int64_t line = 0; line < outer * inner; ++line)
    for (int64_t k = 0; k < n; ++k)
      in[re(line, k)] = x[at(k)].real(), in[re(line, k) + im] = x[at(k)].imag();
  std::vector<float> narrow(in.begin(), in.end()), narrow_out(in.size());
  std::vector<double> out(in.size());
  const cpu::FftPlan plan({dtype, outer, n, inner, false, 1}, isa);
  if (dtype == DType::F64)
    run_plan(plan, in.data(), out.data());
  else
    run_plan(plan, narrow.data(), narrow_out.data());
  if (dtype != DType::F64) out.assign(narrow_out.begin(), narrow_out.end());
  double worst = 0;
  for (int64_t line = 0; line < outer * inner; ++line)
    for (const auto& [k, want] : probes.bins) {
      const Complex got(out[re(line, k)], out[re(line, k) + im]);
      const double error = std::abs(got - want);
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
  return worst / norm_of(x) / (dtype == DType::F64 ? 0x1p-52 : 0x1p-23);
}

// Measured for single bins: at most 3 by stages alone, 5.6 with Bluestein's convolution.
constexpr double kRoundings = 8;

TEST(FftKernel, EveryLengthAgainstNumPy) {
  const std::vector<Probes> all = read_probes();
  ASSERT_GE(all.size(), 280u);
  for (cpu::Isa isa : {cpu::Isa::Baseline, cpu::Isa::Avx2, cpu::Isa::Avx512}) {
    if (!cpu::isa_supported(isa)) continue;
    for (const Probes& p : all) {
      if (p.n > 20000 && isa != cpu::host_isa()) continue;
      for (DType d : {DType::C64, DType::F32, DType::F64}) {
        EXPECT_LE(probe_error(p, d, 1, 1, isa), kRoundings) << p.n << " one line";
        if (p.n == 16384 || p.n == 16807 || p.n == 65537) {
          EXPECT_LE(probe_error(p, d, 2, 2, isa), kRoundings) << p.n << " long columns";
        }
        if (p.n > 2048) continue;
        EXPECT_LE(probe_error(p, d, 18, 1, isa), kRoundings) << p.n << " rows";
        if (p.n <= 130 || p.n == 1009 || p.n == 1024) {
          EXPECT_LE(probe_error(p, d, 2, 17, isa), kRoundings) << p.n << " columns";
          EXPECT_LE(probe_error(p, d, 3, 2, isa), kRoundings) << p.n << " short columns";
        }
      }
    }
  }
}

// By the definition, in long double.
Numbers direct(const Numbers& x, bool inverse) {
  using Long = std::complex<long double>;
  const size_t n = x.size();
  const long double turn = (inverse ? 2 : -2) * 3.14159265358979323846264338327950288L;
  std::vector<Long> w;
  for (size_t k = 0; k < n; ++k)
    w.push_back(std::polar(1.0L, turn * static_cast<long double>(k) / static_cast<long double>(n)));
  Numbers y;
  for (size_t k = 0; k < n; ++k) {
    long double re = 0, im = 0;
    for (size_t j = 0; j < n; ++j) {
      const Long turned = w[j * k % n];
      const long double u = x[j].real(), v = x[j].imag();
      re += u * turned.real() - v * turned.imag();
      im += u * turned.imag() + v * turned.real();
    }
    y.emplace_back(re, im);
  }
  return y;
}

// A problem's lines: the signal times a power of two and of i that differ from line to line, so that lines that are
// mixed up are seen. The largest error of any number of the result, in roundings relative to its line.
class Lines {
 public:
  Lines(cpu::FftProblem p, cpu::Isa isa) : p_(p), isa_(isa) {
    signal_ = signal_of(p.n);
    if (p.real != cpu::FftReal::none)
      for (Complex& z : signal_) z = z.real();
    want_ = direct(signal_, p.inverse);
    if (p.real != cpu::FftReal::from_bins) return;
    want_ = signal_;
    for (Complex& z : want_) z *= static_cast<double>(p.n);
    signal_ = direct(signal_, false);
  }
  double error() const {
    return p_.dtype == DType::F64 ? error_in<double>(0x1p-52) : error_in<float>(0x1p-23);
  }

 private:
  template <class T>
  double error_in(double rounding) const {
    const bool bins_in = p_.real == cpu::FftReal::from_bins,
               bins = p_.real == cpu::FftReal::to_bins;
    const int64_t in = bins_in ? p_.n / 2 + 1 : p_.n, out = bins ? p_.n / 2 + 1 : p_.n;
    std::vector<T> x(at(2 * p_.outer * in * p_.inner)),
        y(at(2 * p_.outer * out * p_.inner), T(-77));
    for (int64_t line = 0; line < p_.outer * p_.inner; ++line)
      for (int64_t k = 0; k < in; ++k) {
        Complex z = signal_[at(k)] * factor(line);
        // What a real signal's bins 0 and n / 2 have of imaginary parts does not count.
        if (bins_in && (k == 0 || 2 * k == p_.n)) z += Complex(0, 3);
        const auto [re, im] = places(line, k, in, bins);
        x[re] = static_cast<T>(z.real());
        if (im) x[im] = static_cast<T>(z.imag());
      }
    const cpu::FftPlan plan(p_, isa_);
    run_plan(plan, x.data(), y.data());
    double worst = 0;
    for (int64_t line = 0; line < p_.outer * p_.inner; ++line)
      for (int64_t k = 0; k < out; ++k) {
        const auto [re, im] = places(line, k, out, bins_in);
        const Complex got(y[re], im ? y[im] : T(0)), want = want_[at(k)] * factor(line) * p_.scale;
        const double error = std::abs(got - want) / std::abs(factor(line)) / p_.scale;
        worst = std::isnan(error) ? INFINITY : std::max(worst, error);
      }
    return worst / norm_of(signal_) / rounding;
  }
  Complex factor(int64_t line) const {
    const double size = std::ldexp(1.0, static_cast<int>(line % 7) - 3);
    return p_.real == cpu::FftReal::none
               ? size * std::pow(Complex(0, 1), static_cast<int>(line % 4))
               : size;
  }
  // Where the parts of an element are; the imaginary one of a real number nowhere (0).
  std::pair<size_t, size_t> places(int64_t line, int64_t k, int64_t n, bool real) const {
    const int64_t o = line / p_.inner, q = line % p_.inner, i = (o * n + k) * p_.inner + q;
    if (real) return {at(i), 0};
    if (p_.dtype == DType::C64) return {at(2 * i), at(2 * i + 1)};
    const int64_t re = (o * 2 * n + k) * p_.inner + q;
    return {at(re), at(re + n * p_.inner)};
  }

  cpu::FftProblem p_;
  cpu::Isa isa_;
  Numbers signal_, want_;
};

template <class F>
void for_each_isa(F&& f) {
  for (cpu::Isa isa : {cpu::Isa::Baseline, cpu::Isa::Avx2, cpu::Isa::Avx512})
    if (cpu::isa_supported(isa)) f(isa);
}

// Batches below, at and above the vectors' lanes, as rows and as columns, both ways.
TEST(FftKernel, EveryLayout) {
  for_each_isa([](cpu::Isa isa) {
    for (int64_t n : {1,   2,  3,  4,  5,  6,  8,   9,   12,  16,  17,  24,  31,  32,
                      257, 36, 48, 64, 65, 72, 127, 128, 129, 131, 144, 256, 272, 288})
      for (bool inverse : {false, true})
        for (const auto& [outer, inner] : std::vector<std::pair<int64_t, int64_t>>{
                 {1, 1}, {2, 1}, {7, 1}, {8, 1}, {9, 1}, {17, 1}, {1, 8}, {2, 17}, {1, 35}, {3, 2}})
          for (DType d : {DType::C64, DType::F32, DType::F64})
            EXPECT_LE(Lines({d, outer, n, inner, inverse, 0.5}, isa).error(), kRoundings)
                << n << " of [" << outer << ", " << inner << "] " << to_string(d)
                << (inverse ? " back " : " ") << cpu::isa_name(isa);
  });
}

TEST(FftKernel, RealLines) {
  for_each_isa([](cpu::Isa isa) {
    for (int64_t n : {2,   4,   6,   8,   10,  16,  22,  30,  32,  34,  62,  64,  66,   96,   126,
                      128, 130, 254, 256, 258, 262, 288, 510, 512, 514, 576, 768, 1022, 1024, 1026})
      for (const auto& [outer, inner] : std::vector<std::pair<int64_t, int64_t>>{
               {1, 1}, {2, 1}, {9, 1}, {17, 1}, {1, 8}, {2, 17}, {1, 35}, {3, 2}}) {
        if (n > 300 && outer * inner > 17) continue;
        for (cpu::FftReal real : {cpu::FftReal::to_bins, cpu::FftReal::from_bins})
          EXPECT_LE(Lines({.outer = outer,
                           .n = n,
                           .inner = inner,
                           .inverse = real == cpu::FftReal::from_bins,
                           .scale = 0.5,
                           .real = real},
                          isa)
                        .error(),
                    kRoundings)
              << n << " of [" << outer << ", " << inner << "] "
              << (real == cpu::FftReal::to_bins ? "to" : "from") << " bins " << cpu::isa_name(isa);
      }
  });
}

// More than a megabyte of columns: several groups of lanes at once, and what is left of a row of them.
TEST(FftKernel, WideColumns) {
  for_each_isa([](cpu::Isa isa) {
    for (int64_t inner : {1100, 1025})
      for (int64_t n : {36, 64, 131}) {
        const int64_t outer = 128 / n + 1;
        for (bool inverse : {false, true})
          for (DType d : {DType::C64, DType::F32, DType::F64})
            EXPECT_LE(Lines({d, outer, n, inner, inverse, 0.5}, isa).error(), kRoundings)
                << n << " of [" << outer << ", " << inner << "] " << to_string(d)
                << (inverse ? " back " : " ") << cpu::isa_name(isa);
        for (cpu::FftReal real : {cpu::FftReal::to_bins, cpu::FftReal::from_bins})
          EXPECT_LE(Lines({.outer = 2 * outer,
                           .n = 2 * (n / 2),
                           .inner = inner,
                           .inverse = real == cpu::FftReal::from_bins,
                           .scale = 0.5,
                           .real = real},
                          isa)
                        .error(),
                    kRoundings)
              << n << " real, of [" << outer << ", " << inner << "] " << cpu::isa_name(isa);
      }
  });
}

TEST(FftReference, AgainstNumPy) {
  for (const Probes& p : read_probes()) {
    if (p.n > 5000 && p.n != 65536) continue;
    const Numbers x = signal_of(p.n);
    Tensor t(DType::F64, {2 * p.n});
    for (int64_t k = 0; k < p.n; ++k)
      t.set_float(k, x[at(k)].real()), t.set_float(p.n + k, x[at(k)].imag());
    Builder b("fft");
    b.output(op::fft(b, b.input("x", t.type())));
    const Tensor y = evaluate(b.finish(), Tensors{t})[0];
    for (const auto& [k, want] : p.bins)
      EXPECT_LE(std::abs(Complex(y.get_float(k), y.get_float(p.n + k)) - want),
                kRoundings * 0x1p-52 * norm_of(x))
          << p.n << " bin " << k;
  }
}

// ---- relations, on the compiled graph

using Body = std::function<Value(Builder&, Value)>;

Tensor run(const Body& body, const Tensor& x) {
  Builder b("f");
  b.output(body(b, b.input("x", x.type())));
  return Session("cpu")
      .compile(b.finish(), {.threads = 2, .poison = true})
      .run(NamedTensors{{"x", x}})[0];
}

Tensor complex_tensor(Ints sizes, uint32_t seed = 0) {
  Tensor t(DType::C64, std::move(sizes));
  for (int64_t i = 0; i < t.elements(); ++i)
    t.set_complex(i, {noise(seed + 2 * static_cast<uint32_t>(i)),
                      noise(seed + 2 * static_cast<uint32_t>(i) + 1)});
  return t;
}
Tensor real_tensor(Ints sizes, DType dtype = DType::F32) {
  Tensor t(dtype, std::move(sizes));
  for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, noise(static_cast<uint32_t>(i)));
  return t;
}

Numbers numbers(const Tensor& t) {
  Numbers out;
  for (int64_t i = 0; i < t.elements(); ++i) out.push_back(t.get_complex(i));
  return out;
}
double distance(const Numbers& a, const Numbers& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = testing::worse(most, std::abs(a[i] - b[i]));
  return most;
}

Body transform(FftAttrs attrs) {
  return [attrs](Builder& b, Value x) { return op::fft(b, x, attrs); };
}

constexpr int64_t kLengths[] = {1, 2, 7, 12, 64, 97, 360, 1024, 1031};

TEST(Fft, RoundTrips) {
  for (int64_t n : kLengths)
    for (FftNorm norm : {FftNorm::none, FftNorm::backward, FftNorm::forward, FftNorm::ortho}) {
      const Tensor x = complex_tensor({3, n});
      const Tensor back = run(
          [&](Builder& b, Value v) {
            return op::fft(b, op::fft(b, v, {.norm = norm}), {.inverse = true, .norm = norm});
          },
          x);
      Numbers want = numbers(x);
      const double factor = norm == FftNorm::none ? static_cast<double>(n) : 1.0;
      for (Complex& z : want) z *= factor;
      EXPECT_LE(distance(numbers(back), want), 4e-6 * factor) << n;
    }
  for (int64_t n : {1, 2, 3, 8, 37, 100}) {
    const Tensor x = real_tensor({2, n});
    const Tensor back =
        run([&](Builder& b, Value v) { return op::irfft(b, op::rfft(b, v), {.n = n}); }, x);
    EXPECT_LE(distance(numbers(back), numbers(x)), 1e-6) << n;
  }
}

TEST(Fft, Parseval) {
  for (int64_t n : kLengths) {
    const Tensor x = complex_tensor({n});
    const double before = norm_of(numbers(x));
    EXPECT_NEAR(norm_of(numbers(run(transform({.norm = FftNorm::ortho}), x))), before,
                1e-6 * before)
        << n;
  }
}

TEST(Fft, Linear) {
  for (int64_t n : kLengths) {
    const Tensor x = complex_tensor({n}), y = complex_tensor({n}, 999);
    Tensor sum(DType::C64, {n});
    for (int64_t i = 0; i < n; ++i)
      sum.set_complex(i, 2.0 * x.get_complex(i) - Complex(0, 0.5) * y.get_complex(i));
    const Numbers fx = numbers(run(transform({}), x)), fy = numbers(run(transform({}), y));
    Numbers want;
    for (size_t i = 0; i < fx.size(); ++i) want.push_back(2.0 * fx[i] - Complex(0, 0.5) * fy[i]);
    EXPECT_LE(distance(numbers(run(transform({}), sum)), want),
              2e-6 * std::sqrt(static_cast<double>(n)) + 1e-6)
        << n;
  }
}

// A shift by one multiplies bin k by e^(-2 pi i k / n).
TEST(Fft, ShiftTurnsPhases) {
  for (int64_t n : kLengths) {
    const Tensor x = complex_tensor({n});
    Tensor shifted(DType::C64, {n});
    for (int64_t i = 0; i < n; ++i) shifted.set_complex((i + 1) % n, x.get_complex(i));
    Numbers want = numbers(run(transform({}), x));
    for (int64_t k = 0; k < n; ++k)
      want[at(k)] *= std::polar(1.0, -2 * M_PI * static_cast<double>(k) / static_cast<double>(n));
    EXPECT_LE(distance(numbers(run(transform({}), shifted)), want),
              2e-6 * std::sqrt(static_cast<double>(n)) + 1e-6)
        << n;
  }
}

TEST(Fft, BlocksAreComplexNumbers) {
  const Tensor z = complex_tensor({2, 12, 3});
  Tensor blocks(DType::F32, {2, 24, 3});
  for (int64_t o = 0; o < 2; ++o)
    for (int64_t k = 0; k < 36; ++k) {
      blocks.set_float(o * 72 + k, z.get_complex(o * 36 + k).real());
      blocks.set_float(o * 72 + 36 + k, z.get_complex(o * 36 + k).imag());
    }
  const Tensor a = run(transform({.inverse = true, .axis = 1}), z),
               c = run(transform({.inverse = true, .axis = 1}), blocks);
  for (int64_t o = 0; o < 2; ++o)
    for (int64_t k = 0; k < 36; ++k)
      EXPECT_EQ(a.get_complex(o * 36 + k),
                Complex(c.get_float(o * 72 + k), c.get_float(o * 72 + 36 + k)));
}

// Lines side by side, one after the other, and by halves; complex and real.
TEST(Fft, ThreadsDoNotChangeBits) {
  const auto same = [](const Tensor& x, const Body& body) {
    Builder b("f");
    b.output(body(b, b.input("x", x.type())));
    const Graph g = b.finish();
    auto with = [&](int threads) {
      return Session("cpu").compile(g, {.threads = threads}).run(NamedTensors{{"x", x}})[0];
    };
    const Tensor one = with(1);
    for (int threads : {2, 3, 8})
      EXPECT_TRUE(one.same_bits(with(threads))) << x.elements() << " by " << threads;
  };
  for (const Ints& sizes : {Ints{37, 120}, {37, 1024}, {1, 40000}, {3, 65536}, {1, 65537}}) {
    same(complex_tensor(sizes), transform({}));
    same(complex_tensor(sizes), transform({.inverse = true, .axis = 0}));
  }
  same(real_tensor({2, 65536}), [](Builder& b, Value x) { return op::rfft(b, x); });
  same(complex_tensor({2, 32769}), [](Builder& b, Value z) { return op::irfft(b, z); });
}

// Real lines by the halves that threads share, against the transform of as many complex numbers in double.
TEST(Fft, LongRealLines) {
  for (int64_t n : {40000, 65536, 118098}) {
    const Tensor x = real_tensor({2, n});
    const Tensor bins = run([](Builder& b, Value v) { return op::rfft(b, v); }, x);
    for (int64_t line = 0; line < 2; ++line) {
      Tensor z(DType::F64, {2 * n});
      for (int64_t k = 0; k < n; ++k) z.set_float(k, x.get_float(line * n + k));
      const Tensor want = run(transform({}), z);
      double worst = 0;
      for (int64_t k = 0; k <= n / 2; ++k)
        worst = testing::worse(worst, std::abs(bins.get_complex(line * (n / 2 + 1) + k) -
                                               Complex(want.get_float(k), want.get_float(n + k))));
      EXPECT_LE(worst, kRoundings * 0x1p-23 * norm_of(numbers(x))) << n;
    }
    const Tensor back = run([](Builder& b, Value v) { return op::irfft(b, v); }, bins);
    EXPECT_LE(distance(numbers(back), numbers(x)), 1e-6) << n;
  }
}

TEST(Fft, ErrorsSayWhatIsWrong) {
  Builder b("f");
  auto code = [&](const std::function<void()>& make) {
    try {
      make();
    } catch (const Error& e) {
      return std::string(e.code());
    }
    return std::string("none");
  };
  const Value odd = b.input("odd", {DType::F32, {3}}), empty = b.input("empty", {DType::C64, {0}}),
              whole = b.input("whole", {DType::I32, {4}}),
              half = b.input("half", {DType::C64, {4}}),
              block = b.input("block", {DType::F64, {4, 4}});
  EXPECT_EQ(code([&] { op::fft(b, odd); }), "fft-length");
  EXPECT_EQ(code([&] { op::fft(b, empty); }), "fft-length");
  EXPECT_EQ(code([&] { op::irfft(b, half, {.n = 9}); }), "fft-length");
  EXPECT_EQ(code([&] { op::fftn(b, block, {.axes = {0, 1}}); }), "fft-axes");
  EXPECT_EQ(code([&] { op::fft(b, half, {.axis = 1}); }), "axis-range");
  EXPECT_NE(code([&] { op::fft(b, whole); }).find("dtype"), std::string::npos);
  EXPECT_EQ(code([&] { signal::fft_real(b, block, FftNorm::none); }), "fft-dtype");
  EXPECT_EQ(code([&] { signal::irfft(b, odd, odd, 7, FftNorm::backward); }), "fft-length");
  EXPECT_EQ(code([&] { signal::stft(b, odd, 4, 1, FftNorm::backward); }), "fft-length");
}

// ---- gradients

// PyTorch 2: x = [1, 2, 4, 8, 3], w = [1, -2, 0.5]; (rfft(x) * (w + 0.25i)).real.sum().backward()
TEST(Fft, GradientOfRfftIsPyTorchs) {
  Builder b("f");
  const Value x = b.input("x", {DType::F32, {5}});
  const Value w =
      b.constant(Tensor::from<std::complex<float>>({3}, {{1, 0.25}, {-2, 0.25}, {0.5, 0.25}}));
  b.output(sum_axes(b, op::real(b, op::mul(b, op::rfft(b, x), w)), {0}));
  const Tensor g =
      evaluate(grad(b.finish(), {"x"}), Tensors{Tensor::from<float>({5}, {1, 2, 4, 8, 3})})[0];
  const double want[] = {-0.5, 0.362167956, 2.68172467, 2.8633603, -0.407252928};
  for (int64_t i = 0; i < 5; ++i) EXPECT_NEAR(g.get_float(i), want[i], 1e-6) << i;
}

// PyTorch 2: z = [1+2j, 3-1j, -2+0.5j]; w = [1, 2, -1, 3]; (irfft(z, 4) * w).sum().backward(): half the
// spectrum stands for two bins, the ends for one, and their imaginary parts for none.
TEST(Fft, GradientOfIrfftIsPyTorchs) {
  Builder b("f");
  const Value z = b.input("z", {DType::C64, {3}});
  const Value w = b.constant(Tensor::from<float>({4}, {1, 2, -1, 3}));
  const Value y = op::irfft(b, z, {.n = 4});
  b.output(sum_axes(b, op::mul(b, y, w), {0}));
  const Tensor at_z = Tensor::from<std::complex<float>>({3}, {{1, 2}, {3, -1}, {-2, 0.5}});
  const Tensor g = evaluate(grad(b.finish(), {"z"}), Tensors{at_z})[0];
  const Complex want[] = {{1.25, 0}, {1, 0.5}, {-1.25, 0}};
  for (int64_t i = 0; i < 3; ++i) EXPECT_LE(std::abs(g.get_complex(i) - want[i]), 1e-6) << i;
}

// ---- the spectral helpers

std::vector<double> reals(const Tensor& t) {
  std::vector<double> out;
  for (int64_t i = 0; i < t.elements(); ++i) out.push_back(t.get_float(i));
  return out;
}
void expect_near(const std::vector<double>& got, const std::vector<double>& want,
                 double tolerance = 1e-6) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << i;
}
Tensor row(const std::vector<float>& v) {
  return Tensor::from<float>({static_cast<int64_t>(v.size())}, v);
}

Value both(Builder& b, signal::Spectrum s) { return op::concat(b, s.first, s.second, {0}); }

TEST(SpectralHelpers, SpecifiedValues) {
  using namespace signal;
  // fft of (1, 2, 3), exactly three points
  expect_near(
      reals(run([](Builder& b, Value x) { return op::fft(b, x); }, row({1, 2, 3, 0, 0, 0}))),
      {6, -1.5, -1.5, 0, 0.866025, -0.866025});
  // padded to 4
  expect_near(reals(run([](Builder& b, Value x) { return both(b, rfft(b, x, FftNorm::none)); },
                        row({1, 2, 3}))),
              {6, -2, 2, 0, -2, 0});
  expect_near(
      reals(run([](Builder& b, Value x) { return psd_real(b, x, FftNorm::none); }, row({1, 2, 3}))),
      {12, 2.666667, 1.333333});
  auto constant = [](const std::function<Value(Builder&)>& make) {
    Builder b("f");
    b.output(make(b));
    return reals(evaluate(b.finish(), Tensors{})[0]);
  };
  EXPECT_EQ(constant([](Builder& b) { return fftfreq_tensor(b, 4); }),
            (std::vector<double>{0, .25, .5, -.25}));
  EXPECT_EQ(constant([](Builder& b) { return fftfreq_tensor(b, 5); }),
            (std::vector<double>{0, .2, .4, -.4, -.2}));
  EXPECT_EQ(constant([](Builder& b) { return rfftfreq_tensor(b, 5); }),
            (std::vector<double>{0, .2, .4}));
}

TEST(SpectralHelpers, RoundTripsAtAnyRank) {
  for (int64_t n : {1, 2, 3, 5, 8, 13, 32})
    for (FftNorm norm : {FftNorm::forward, FftNorm::ortho, FftNorm::backward, FftNorm::none}) {
      const Tensor x = real_tensor({2, 3, n});
      const Tensor back = run(
          [&](Builder& b, Value v) {
            const auto [re, im] = signal::rfft(b, v, norm);
            return signal::irfft(b, re, im, n, norm);
          },
          x);
      const double factor = norm == FftNorm::none ? static_cast<double>(signal::next_pow2(n)) : 1;
      std::vector<double> want = reals(x);
      for (double& v : want) v *= factor;
      expect_near(reals(back), want, 1e-6 * factor);
    }
}

TEST(SpectralHelpers, Stft) {
  const Tensor x = real_tensor({2, 11});
  const Tensor y =
      run([](Builder& b, Value v) { return signal::stft(b, v, 5, 3, FftNorm::none); }, x);
  ASSERT_EQ(y.sizes(), (Ints{3, 2, 10}));  // frames, channels, 5 bins of 8 points
  for (int64_t frame = 0; frame < 3; ++frame)
    for (int64_t c = 0; c < 2; ++c)
      for (int64_t k = 0; k < 5; ++k) {
        Complex want = 0;
        for (int64_t i = 0; i < 5; ++i)
          want += x.get_float(c * 11 + 3 * frame + i) *
                  std::polar(1.0, -2 * M_PI * static_cast<double>(i * k) / 8);
        const int64_t first = (frame * 2 + c) * 10 + k;
        EXPECT_NEAR(y.get_float(first), want.real(), 1e-6);
        EXPECT_NEAR(y.get_float(first + 5), want.imag(), 1e-6);
      }
}

TEST(SpectralHelpers, Convolution) {
  for (int64_t n_fft : {0, 8, 16, 50}) {
    const Tensor y = run(
        [&](Builder& b, Value x) {
          const Value kernel = b.constant(Tensor::from<float>({3}, {1, 0.5, -2}));
          return signal::fft_conv1d(b, x, kernel, n_fft, FftNorm::backward);
        },
        row({1, 2, 3, 4}));
    expect_near(reals(y), {1, 2.5, 2, 1.5, -4, -8}, 4e-6);
  }
}

TEST(SpectralHelpers, WholeSpectrumBack) {
  const Tensor x = real_tensor({4});
  const Tensor back = run(
      [](Builder& b, Value v) {
        const auto [re, im] = signal::fft_batch_real(b, v, FftNorm::ortho);
        return signal::ifft_spectrum(b, re, im, FftNorm::ortho);
      },
      x);
  expect_near(reals(back), reals(x));
}

}  // namespace
}  // namespace rlx
