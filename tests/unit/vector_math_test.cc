// The math functions of the LLVM emitter against libm in a wider format: bounds in ULP, special
// values, and equal bits for every vector width.
#ifdef RLX_CPU
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "rlx/backend/cpu/jit.h"
#include "rlx/codegen/kernel_builder.h"

namespace rlx::cpu {
namespace {

using codegen::Extent;
using codegen::Kernel;
using codegen::KernelBuilder;
using codegen::KernelOp;
using codegen::LoopKind;

// The bounds that vector_math.h states.
struct Bound {
  KernelOp op;
  double f32, f64;
  long double (*reference)(long double);
};
const Bound kBounds[] = {
    {KernelOp::Exp, 1, 1, [](long double x) { return std::exp(x); }},
    {KernelOp::Log, 1, 1, [](long double x) { return std::log(x); }},
    {KernelOp::Tanh, 2, 2, [](long double x) { return std::tanh(x); }},
    {KernelOp::Erf, 1, 2, [](long double x) { return std::erf(x); }},
    {KernelOp::Sin, 2, 2, [](long double x) { return std::sin(x); }},
    {KernelOp::Cos, 2, 2, [](long double x) { return std::cos(x); }},
};
constexpr double kPowBound32 = 1, kPowBound64 = 2;

template <class T>
constexpr DType kType = std::is_same_v<T, float> ? DType::F32 : DType::F64;

Kernel map_kernel(KernelOp op, DType dtype, int arity) {
  constexpr int64_t kTile = 1024;
  KernelBuilder b(std::string(info(op).name));
  codegen::BufferId in[2];
  for (int i = 0; i < arity; ++i) in[i] = b.input(dtype);
  codegen::BufferId out = b.output(dtype);
  codegen::Size n = b.size(), blocks = b.size();
  b.loop(LoopKind::Block, blocks, [&](codegen::ValueId block) {
    b.loop(LoopKind::Vector, Extent::tail(n, kTile, block), [&](codegen::ValueId i) {
      codegen::ValueId x[2];
      for (int k = 0; k < arity; ++k) x[k] = b.load(in[k], {{kTile, block}, {1, i}});
      b.store(out, {{kTile, block}, {1, i}},
              b.apply(op, std::span<const codegen::ValueId>(x, arity)));
    });
  });
  return b.finish();
}

template <class T>
std::vector<T> run(int bits, KernelOp op, const std::vector<T>& x,
                   const std::vector<T>* y = nullptr) {
  Kernel k = map_kernel(op, kType<T>, y ? 2 : 1);
  const Kernel* list[] = {&k};
  CpuJit jit({.vector_bits = bits});
  KernelFn fn = jit.compile(list)[0];
  std::vector<T> out(x.size());
  std::vector<void*> buffers{const_cast<T*>(x.data())};
  if (y) buffers.push_back(const_cast<T*>(y->data()));
  buffers.push_back(out.data());
  int64_t sizes[] = {static_cast<int64_t>(x.size()), static_cast<int64_t>(x.size() + 1023) / 1024};
  fn(buffers.data(), sizes, 0, sizes[1]);
  return out;
}

std::vector<int> widths() {
  return host_vector_bits() == 512 ? std::vector<int>{256, 512} : std::vector<int>{256};
}

// |got - want| in units of the last place of want, in the format T; 0 for equal specials.
template <class T>
double ulp_error(T got, long double want) {
  T near = static_cast<T>(want);
  if (std::isnan(near) || std::isnan(got)) return std::isnan(near) && std::isnan(got) ? 0 : 1e30;
  if (std::isinf(near) || std::isinf(got)) {
    // Rounding to infinity may be off by one last place of the largest number.
    if (near == got) return 0;
    T finite = std::isinf(near) ? got : near;
    return std::abs(finite) == std::numeric_limits<T>::max() &&
                   std::signbit(got) == std::signbit(near)
               ? 1
               : 1e30;
  }
  int exponent =
      std::max(std::ilogb(want == 0 ? T{0} : near), std::numeric_limits<T>::min_exponent - 1);
  if (near == 0) exponent = std::numeric_limits<T>::min_exponent - 1;
  long double ulp = std::ldexp(1.0L, exponent - std::numeric_limits<T>::digits + 1);
  return static_cast<double>(std::abs(static_cast<long double>(got) - want) / ulp);
}

template <class T>
struct Worst {
  double error = 0;
  T at{}, at2{}, got{};
  void see(double e, T x, T y, T g) {
    if (e > error) error = e, at = x, at2 = y, got = g;
  }
};

// Every 1009th bit pattern: all exponents, both signs, NaNs, infinities, denormals.
std::vector<float> all_floats() {
  std::vector<float> x;
  for (uint64_t u = 0; u < (uint64_t{1} << 32); u += 1009)
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(u)));
  return x;
}

// Uniform bit patterns, and the ranges where the functions do something.
std::vector<double> many_doubles() {
  std::mt19937_64 random(1);
  std::vector<double> x;
  for (int i = 0; i < 300000; ++i) x.push_back(std::bit_cast<double>(random()));
  for (double range : {1e-3, 1.0, 3.0, 10.0, 50.0, 800.0, 1e4, 1e7}) {
    std::uniform_real_distribution<double> d(-range, range);
    for (int i = 0; i < 100000; ++i) x.push_back(d(random));
  }
  // Close to multiples of pi/2, where reduction cancels, and close to 1, where log does.
  for (int i = 1; i < 50000; ++i) x.push_back(i * 1.5707963267948966);
  for (int i = -20000; i < 20000; ++i) x.push_back(1 + i * 0x1p-40);
  return x;
}

template <class T>
void check_unary(const Bound& f, const std::vector<T>& x, double bound) {
  std::vector<T> first;
  for (int bits : widths()) {
    std::vector<T> got = run(bits, f.op, x);
    Worst<T> worst;
    for (size_t i = 0; i < x.size(); ++i) {
      worst.see(ulp_error(got[i], f.reference(x[i])), x[i], T{}, got[i]);
    }
    ::testing::Test::RecordProperty(std::string(info(f.op).name) + std::to_string(bits),
                                    std::to_string(worst.error));
    fmt::print("{} {} {} bits: {:.3f} ULP at {}\n", info(f.op).name, kType<T>, bits, worst.error,
               worst.at);
    EXPECT_LE(worst.error, bound) << info(f.op).name << " at " << bits
                                  << " bits: x = " << std::hexfloat << worst.at << " gave "
                                  << worst.got;
    if (first.empty()) first = got;
    for (size_t i = 0; i < x.size(); ++i) {
      bool same = std::isnan(got[i]) || std::memcmp(&got[i], &first[i], sizeof(T)) == 0;
      ASSERT_TRUE(same) << info(f.op).name << "(" << x[i] << ") differs between vector widths";
    }
  }
}

TEST(VectorMath, F32WithinBounds) {
  std::vector<float> x = all_floats();
  for (const Bound& f : kBounds) check_unary<float>(f, x, f.f32);
}

TEST(VectorMath, F64WithinBounds) {
  std::vector<double> x = many_doubles();
  for (const Bound& f : kBounds) check_unary<double>(f, x, f.f64);
}

template <class T>
void check_pow(double bound) {
  std::mt19937_64 random(2);
  std::vector<T> x, y;
  auto add = [&](double a, double b) {
    x.push_back(static_cast<T>(a)), y.push_back(static_cast<T>(b));
  };
  std::uniform_real_distribution<double> unit(-1, 1);
  for (int i = 0; i < 400000; ++i) {
    double e = unit(random) * std::numeric_limits<T>::max_exponent;
    double a = std::exp2(unit(random) * std::numeric_limits<T>::max_exponent);
    add(a, e / std::max(std::abs(std::log2(a)), 1e-30));  // results over the whole range
    add(std::exp2(8 * unit(random)), 20 * unit(random));
    add(1 + 1e-3 * unit(random), 1e4 * unit(random));
    add(-std::exp2(3 * unit(random)), std::rint(30 * unit(random)));
  }
  for (int bits : widths()) {
    std::vector<T> got = run(bits, KernelOp::Pow, x, &y);
    Worst<T> worst;
    for (size_t i = 0; i < x.size(); ++i)
      worst.see(ulp_error(got[i],
                          std::pow(static_cast<long double>(x[i]), static_cast<long double>(y[i]))),
                x[i], y[i], got[i]);
    fmt::print("pow {} {} bits: {:.3f} ULP at {}, {}\n", kType<T>, bits, worst.error, worst.at,
               worst.at2);
    EXPECT_LE(worst.error, bound) << "pow(" << worst.at << ", " << worst.at2 << ") = " << worst.got;
  }
}

TEST(VectorMath, PowWithinBounds) {
  check_pow<float>(kPowBound32);
  check_pow<double>(kPowBound64);
}

template <class T>
std::vector<T> special_values() {
  using L = std::numeric_limits<T>;
  std::vector<T> s;
  for (T v : {T{0},          L::denorm_min(),
              L::min(),      T(0.1),
              T(0.5),        std::nextafter(T(1), T(0)),
              T(1),          std::nextafter(T(1), T(2)),
              T(2),          T(3),
              T(4),          T(87),
              T(88.7),       T(89),
              T(103),        T(104),
              T(709),        T(745),
              T(1e6),        T(1e9),
              L::max(),      L::infinity(),
              L::quiet_NaN()})
    s.push_back(v), s.push_back(-v);
  return s;
}

// NaN for NaN, the same infinity, the same zero with its sign, else within the bound.
template <class T>
void expect_like(const char* name, T x, T y, T got, long double want, double bound) {
  T near = static_cast<T>(want);
  EXPECT_LE(ulp_error(got, want), bound)
      << name << "(" << x << ", " << y << ") = " << got << ", not " << near;
  bool zeros = near == 0 && got == 0;
  EXPECT_TRUE(!zeros || std::signbit(got) == std::signbit(near))
      << name << "(" << x << ", " << y << ")";
}

template <class T>
void check_specials() {
  std::vector<T> s = special_values<T>(), x, y;
  for (T a : s)
    for (T b : s) x.push_back(a), y.push_back(b);
  for (int bits : widths()) {
    for (const Bound& f : kBounds) {
      std::vector<T> got = run(bits, f.op, s);
      for (size_t i = 0; i < s.size(); ++i)
        expect_like<T>(info(f.op).name.data(), s[i], 0, got[i], f.reference(s[i]),
                       kType<T> == DType::F32 ? f.f32 : f.f64);
    }
    std::vector<T> got = run(bits, KernelOp::Pow, x, &y);
    for (size_t i = 0; i < x.size(); ++i)
      expect_like<T>("pow", x[i], y[i], got[i],
                     std::pow(static_cast<long double>(x[i]), static_cast<long double>(y[i])),
                     kType<T> == DType::F32 ? kPowBound32 : kPowBound64);
  }
}

TEST(VectorMath, SpecialValues) {
  check_specials<float>();
  check_specials<double>();
}

// The measuring stick itself.
TEST(VectorMath, UlpErrorSeesOneUlp) {
  EXPECT_EQ(ulp_error(1.0f, 1.0L), 0);
  EXPECT_NEAR(ulp_error(std::nextafter(1.0f, 2.0f), 1.0L), 1, 1e-6);
  EXPECT_GT(ulp_error(0.0f, 1e-20L), 1e6);
  EXPECT_GT(ulp_error(std::numeric_limits<float>::quiet_NaN(), 1.0L), 1e9);
  EXPECT_GT(ulp_error(std::numeric_limits<float>::infinity(), 1.0L), 1e9);
}

}  // namespace
}  // namespace rlx::cpu

#endif  // RLX_CPU
