// Gradients that cancel: norms and softmax in f32 on the CPU against f64, for cotangents that lie almost along what the op
// takes out (a constant, the normalised value itself) and operands far from 0.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "rlx/ops/evaluate.h"
#include "rlx/ops/ops.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/reverse.h"

namespace rlx {
namespace {

struct Subject {
  std::string name;
  Ints sizes;
  int64_t channels;  // of gamma and beta; 0: the op has none
  std::function<Value(Builder&, Value x, Value gamma, Value beta)> apply;
};

const std::vector<Subject>& subjects() {
  static const std::vector<Subject> list = {
      {"layer_norm",
       {37, 200},
       200,
       [](Builder& b, Value x, Value g, Value s) {
         return op::layer_norm(b, x, g, s, {-1, 1e-5});
       }},
      {"layer_norm of short rows",
       {100, 16},
       16,
       [](Builder& b, Value x, Value g, Value s) {
         return op::layer_norm(b, x, g, s, {-1, 1e-5});
       }},
      {"rms_norm",
       {37, 200},
       200,
       [](Builder& b, Value x, Value g, Value s) { return op::rms_norm(b, x, g, s, {-1, 1e-5}); }},
      {"group_norm",
       {3, 4, 50},
       4,
       [](Builder& b, Value x, Value g, Value s) {
         return op::group_norm(b, x, g, s, {.num_groups = 2});
       }},
      {"instance_norm",
       {3, 4, 50},
       4,
       [](Builder& b, Value x, Value g, Value s) { return op::instance_norm(b, x, g, s); }},
      {"batch_norm_training",
       {9, 4, 30},
       4,
       [](Builder& b, Value x, Value g, Value s) { return op::batch_norm_training(b, x, g, s); }},
      {"softmax",
       {37, 200},
       0,
       [](Builder& b, Value x, Value, Value) { return op::softmax(b, x); }},
  };
  return list;
}

Graph gradient_of(const Subject& s, DType d) {
  Builder b("f");
  const Type t{d, Shape(s.sizes.begin(), s.sizes.end())};
  const Value x = b.input("x", t), ct = b.input("ct", t);
  const Dim channels(std::max<int64_t>(s.channels, 1));
  const Value gamma = b.constant(Tensor::from<double>(
      {channels.value()}, std::vector<double>(static_cast<size_t>(channels.value()), 1.0)));
  const Value one = op::cast(b, gamma, {d}), zero = op::mul(b, one, b.constant(d, 0));
  const Value y = s.apply(b, x, one, zero);
  b.output(reverse(b, {&y, 1}, {&ct, 1}, {&x, 1})[0]);
  b.output(y);
  return b.finish();
}

Tensor cast_values(const Tensor& t, DType d) {
  Tensor out(d, t.sizes());
  for (int64_t i = 0; i < t.elements(); ++i) out.set_float(i, t.get_float(i));
  return out;
}

double largest(const Tensor& t) {
  double most = 0;
  for (int64_t i = 0; i < t.elements(); ++i) most = std::max(most, std::fabs(t.get_float(i)));
  return most;
}

TEST(SmallGradients, NormsAndSoftmaxKeepTheirDigits) {
  constexpr double kEpsilon = 0x1p-23;
  for (const Subject& s : subjects()) {
    const Graph narrow = gradient_of(s, DType::F32), wide = gradient_of(s, DType::F64);
    CompiledGraph f = Session(Device::cpu).compile(narrow, {.threads = 1});
    for (double offset : {0.0, 100.0}) {
      std::mt19937 rng(7);
      std::normal_distribution<double> normal;
      Tensor x(DType::F32, s.sizes);
      for (int64_t i = 0; i < x.elements(); ++i) x.set_float(i, offset + normal(rng));
      // A rms norm of numbers far from 0, and a softmax, have no mean to take out of x.
      const Tensor x64 = cast_values(x, DType::F64);
      const Tensor z = evaluate(wide, std::array{x64, x64})[1];
      for (const char* kind :
           {"random", "along z", "along z and 1", "constant", "near a constant"}) {
        Tensor ct(DType::F32, s.sizes);
        for (int64_t i = 0; i < ct.elements(); ++i) {
          const double v = z.get_float(i), r = normal(rng);
          const std::string k = kind;
          ct.set_float(i, k == "random"          ? r
                          : k == "along z"       ? 2 * v
                          : k == "along z and 1" ? 2 * v + 3
                          : k == "constant"      ? 1
                                                 : 100 + r);
        }
        const Tensor want = evaluate(wide, std::array{x64, cast_values(ct, DType::F64)})[0];
        const Tensor got = f.run({{"x", x}, {"ct", ct}})[0];
        // Relative to the cotangent times the slope of the op: 1 / deviation for norms.
        const double slope = s.name == "rms_norm" && offset > 0 ? 1 / offset : 1;
        const double unit = kEpsilon * largest(ct) * slope;
        double worst = 0;
        for (int64_t i = 0; i < got.elements(); ++i)
          worst = std::max(worst, std::fabs(got.get_float(i) - want.get_float(i)) / unit);
        EXPECT_LE(worst, 4) << s.name << ", x around " << offset << ", cotangent " << kind;
      }
    }
  }
}

}  // namespace
}  // namespace rlx
