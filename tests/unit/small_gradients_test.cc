// Gradients that cancel: norms and softmax in f32 on the CPU against f64, for cotangents that lie almost along what the op
// takes out (a constant, the normalised value itself) and operands far from 0. Activations at numbers whose powers overflow.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "../support/worse.h"
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
    CompiledGraph f = Session("cpu").compile(narrow, {.threads = 1});
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
          worst = testing::worse(worst, std::fabs(got.get_float(i) - want.get_float(i)) / unit);
        EXPECT_LE(worst, 4) << s.name << ", x around " << offset << ", cotangent " << kind;
      }
    }
  }
}

// Where a power inside of a slope overflows, the slope itself has long become a constant.
TEST(SmallGradients, ActivationsFarOutHaveFiniteDerivatives) {
  using Function = Value (*)(Builder&, Value);
  const std::pair<const char*, Function> activations[] = {
      {"gelu", [](Builder& b, Value x) -> Value { return op::gelu(b, x); }},
      {"gelu_tanh", [](Builder& b, Value x) -> Value { return op::gelu_tanh(b, x); }},
      {"quick_gelu", [](Builder& b, Value x) -> Value { return op::quick_gelu(b, x); }},
      {"silu", [](Builder& b, Value x) -> Value { return op::silu(b, x); }},
      {"mish", [](Builder& b, Value x) -> Value { return op::mish(b, x); }},
      {"sigmoid", [](Builder& b, Value x) -> Value { return op::sigmoid(b, x); }},
      {"tanh", [](Builder& b, Value x) -> Value { return op::tanh(b, x); }},
      {"softplus", [](Builder& b, Value x) -> Value { return op::softplus(b, x); }},
      {"log_sigmoid", [](Builder& b, Value x) -> Value { return op::log_sigmoid(b, x); }},
      {"elu", [](Builder& b, Value x) -> Value { return op::elu(b, x); }},
      {"celu", [](Builder& b, Value x) -> Value { return op::celu(b, x); }},
      {"selu", [](Builder& b, Value x) -> Value { return op::selu(b, x); }},
      {"softsign", [](Builder& b, Value x) -> Value { return op::softsign(b, x); }},
      {"tanhshrink", [](Builder& b, Value x) -> Value { return op::tanhshrink(b, x); }},
      {"hard_swish", [](Builder& b, Value x) -> Value { return op::hard_swish(b, x); }},
      {"hard_sigmoid", [](Builder& b, Value x) -> Value { return op::hard_sigmoid(b, x); }}};
  std::vector<float> x;
  for (float v : {10.f, 50.f, 99.f, 101.f, 1e4f, 1e10f, 1e13f, 1e20f, 1e25f, 1e30f, 3e38f})
    x.insert(x.end(), {v, -v});
  const Tensor places = Tensor::from<float>({static_cast<int64_t>(x.size())}, x);
  const Tensor ones = Tensor::from<float>(places.sizes(), std::vector<float>(x.size(), 1));
  for (const auto& [name, f] : activations) {
    Builder b("f");
    const Value in = b.input("x", places.type()), ct = b.constant(ones), y = f(b, in);
    const Value slope = reverse(b, {&y, 1}, {&ct, 1}, {&in, 1})[0];
    b.output(slope);
    const Value bend = reverse(b, {&slope, 1}, {&ct, 1}, {&in, 1})[0];
    if (bend.valid()) b.output(bend);  // else it is zero everywhere
    const Graph g = b.finish();
    for (const Device& d : {Device("cpu"), Device("reference")}) {
      const auto out = Session(d).compile(g, {.threads = 1}).run({{"x", places}});
      for (size_t order = 0; order < out.size(); ++order)
        for (int64_t i = 0; i < places.elements(); ++i) {
          const double at = places.get_float(i);
          if (order == 1 && std::fabs(at) > 1e30) continue;  // twice x need not be a number
          EXPECT_TRUE(std::isfinite(out[order].get_float(i)))
              << name << ", derivative " << order + 1 << " at " << at;
        }
    }
  }
}

}  // namespace
}  // namespace rlx
