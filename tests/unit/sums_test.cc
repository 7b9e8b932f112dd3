// Sums, and what is made of sums, keep their digits at every size and along every axis; reductions
// to few results run in several blocks and do not build their operand in memory.
#include <gtest/gtest.h>

#include "../support/exact_sums.h"
#include "rlx/ops/core.h"
#include "rlx/ops/nn/losses.h"
#include "rlx/ops/nn/nn.h"
#include "rlx/ops/nn/norms.h"
#include "rlx/ops/reduce/cumulative.h"
#include "rlx/ops/reduce/statistics.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {
namespace {

// A shape with n elements to sum for each result.
struct Layout {
  std::string name;
  Ints sizes, axes;
};
std::vector<Layout> layouts(int64_t n) {
  std::vector<Layout> all{{"all of one axis", {n}, {0}},
                          {"the last axis", {3, n}, {1}},
                          {"last axis, many rows", {9, n}, {1}},
                          {"the first axis", {n, 3}, {0}},
                          {"the first of one column", {n, 1}, {0}},
                          {"the middle axis", {2, n, 3}, {1}}};
  for (int64_t a = 2; a * a <= n; ++a)
    if (n % a == 0) {
      all.push_back({"all of two axes", {a, n / a}, {0, 1}});
      all.push_back({"the outer axes", {n / a, a, 2}, {0, 1}});
      all.push_back({"around the middle", {n / a, 2, a}, {0, 2}});
      break;
    }
  return all;
}

void expect_exact(DType dtype, const Layout& l, const std::vector<SumInput>& inputs = sum_inputs(),
                  int vector_bits = 0) {
  Builder b("sum");
  const Value x = b.input("x", {dtype, Shape::of(l.sizes)});
  b.output(op::reduce_sum(b, x, {l.axes}));
  CompiledGraph f = Session("cpu").compile(b.finish(), {.threads = 2, .vector_bits = vector_bits});
  for (const SumInput& input : inputs) {
    const Tensor data = sum_input(dtype, l.sizes, input);
    const std::vector<ExactSum> want = exact_sums(data, l.axes);
    const Tensor got = f.run({{"x", data}})[0];
    const int64_t n = data.elements() / got.elements();
    for (int64_t i = 0; i < got.elements(); ++i) {
      const ExactSum& s = want[static_cast<size_t>(i)];
      if (dtype == DType::F16 && s.value() > 65519) {  // rounds to infinity
        ASSERT_TRUE(std::isinf(got.get_float(i)));
        continue;
      }
      ASSERT_LE(std::fabs(got.get_float(i) - s.value()), sum_bound(s, n, dtype))
          << fmt::format("{} of {} {}, {}: {} instead of {}", l.name, dtype,
                         fmt::join(l.sizes, "x"), input.name, got.get_float(i), s.value());
    }
  }
}

// Both sides of a run of steps of one vector and of four, of the blocks of a reduction, of the
// longest row on the stack.
TEST(Sums, EveryAxisMeetsTheBoundOfSummingByHalves) {
  for (int64_t n : {1, 17, 127, 129, 257, 1000, 1025, 2049, 4097, 16385, 32768, 49153, 65537})
    for (const Layout& l : layouts(n)) expect_exact(DType::F32, l);
}

TEST(Sums, EveryFloatDtype) {
  for (DType d : {DType::F16, DType::BF16, DType::F64})
    for (int64_t n : {4097, 40'000})
      for (const Layout& l : layouts(n)) expect_exact(d, l);
}

// Partial sums are not rounded to the result's dtype: here each would go up by almost half a unit, and the sum of them to
// the number above the right one.
TEST(Sums, PartsAreNotRounded) {
  const SumInput nine_of_sixteen{"nine of sixteen", [](int64_t i, int64_t) {
                                   return i % 16 < 9 ? 1 + std::ldexp(1.0, -7) : 1.0;
                                 }};
  for (const Ints& sizes : {Ints{96 << 14}, Ints{96 << 14, 1}})
    expect_exact(DType::BF16, {"all", sizes, {0}}, {nine_of_sixteen});
}

// Half as many sums side by side are twice as long.
TEST(Sums, NarrowVectors) {
  for (DType d : {DType::F32, DType::F64})
    for (int64_t n : {127, 1025, 20'000})
      for (const Layout& l : layouts(n)) expect_exact(d, l, sum_inputs(), 256);
}

TEST(Sums, Millions) {
  for (const Layout& l : layouts(300'007)) expect_exact(DType::F32, l);
  expect_exact(DType::F32, {"all", {10'000'000}, {0}}, {sum_inputs()[0]});
  expect_exact(DType::F32, {"the first axis", {10'000'000, 1}, {0}}, {sum_inputs()[0]});
  expect_exact(DType::F16, {"all", {1'000'003}, {0}});
  expect_exact(DType::F64, {"all", {1'000'003}, {0}});
}

// Every element of a running sum against the sum of what it covers.
void expect_exact_prefixes(DType dtype, const Ints& sizes, CumsumAttrs a) {
  Builder b("cumsum");
  b.output(op::cumsum(b, b.input("x", {dtype, Shape::of(sizes)}), a));
  CompiledGraph f = Session("cpu").compile(b.finish(), {.threads = 1});
  const auto axis = static_cast<size_t>(a.axis);
  const int64_t n = sizes[axis], inner = product(Ints(sizes.begin() + a.axis + 1, sizes.end()));
  for (const SumInput& input : sum_inputs()) {
    const Tensor x = sum_input(dtype, sizes, input), got = f.run({{"x", x}})[0];
    for (int64_t line = 0; line < x.elements() / n; ++line) {
      ExactSum s;
      for (int64_t k = 0; k < n; ++k) {
        const int64_t i = a.reverse ? n - 1 - k : k,
                      at = (line / inner * n + i) * inner + line % inner;
        if (!a.exclusive) s.add(x.get_float(at));
        if (std::fabs(s.value()) < 65000 || dtype != DType::F16) {
          ASSERT_LE(std::fabs(got.get_float(at) - s.value()), sum_bound(s, k + 1, dtype))
              << fmt::format("cumsum of {} {}, {}, element {}: {} instead of {}", dtype,
                             fmt::join(sizes, "x"), input.name, at, got.get_float(at), s.value());
        }
        if (a.exclusive) s.add(x.get_float(at));
      }
    }
  }
}

// Infinities, overflow and NaN as in a plain sum, also where sums are formed in runs.
TEST(Sums, GoThroughInfinities) {
  const float inf = std::numeric_limits<float>::infinity(), most = 3e38f;
  for (const Layout& l :
       {Layout{"row", {20'000}, {0}}, {"rows", {9, 20'000}, {1}}, {"columns", {20'000, 40}, {0}}}) {
    Builder b("sum");
    b.output(op::reduce_sum(b, b.input("x", {DType::F32, Shape::of(l.sizes)}), {l.axes}));
    CompiledGraph f = Session("cpu").compile(b.finish(), {.threads = 1});
    for (const auto& [first, second] :
         {std::pair{inf, 1.f}, {most, most}, {-inf, -most}, {inf, -inf}}) {
      Tensor x(DType::F32, l.sizes);
      float* data = x.mutable_data<float>();
      for (int64_t i = 0; i < x.elements(); ++i) data[i] = 1;
      const int64_t step = l.axes[0] == 0 && l.sizes.size() == 2 ? l.sizes[1] : 1;
      data[777 * step] = first, data[19'001 * step] = second;
      const float got = f.run({{"x", x}})[0].data<float>()[0], want = first + second;
      EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : got == want)
          << l.name << ": " << first << " and " << second << " give " << got;
    }
  }
}

TEST(Sums, RunningSums) {
  expect_exact_prefixes(DType::F32, {1'000'003}, {.axis = 0});
  expect_exact_prefixes(DType::F32, {100'000, 3}, {.axis = 0, .exclusive = true});
  expect_exact_prefixes(DType::F32, {2, 50'000, 2}, {.axis = 1, .reverse = true});
  for (DType d : {DType::F16, DType::BF16, DType::F64})
    expect_exact_prefixes(d, {2, 100'000}, {.axis = 1});
}

TEST(Sums, RunningSumsGoThroughInfinities) {
  Builder b("cumsum");
  b.output(op::cumsum(b, b.input("x", {DType::F32, {6}}), {.axis = 0}));
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor got = Session("cpu")
                         .compile(b.finish())
                         .run({{"x", Tensor::from<float>({6}, {1, 3e38f, 3e38f, -1, -inf, 2})}})[0];
  EXPECT_EQ(got.data<float>()[1], 3e38f);
  EXPECT_EQ(got.data<float>()[2], inf);
  EXPECT_EQ(got.data<float>()[3], inf);
  EXPECT_TRUE(std::isnan(got.data<float>()[4]) && std::isnan(got.data<float>()[5]));
}

// Rising by little at a time: rescaling at each new largest element would round each time.
TEST(Sums, RunningLogSumExp) {
  constexpr int64_t n = 1'000'000;
  for (const double slope : {0.0, 1e-6, -1e-6, 1e-4}) {
    Builder b("cumlogsumexp");
    b.output(op::cumlogsumexp(b, b.input("x", {DType::F32, {n}}), {.axis = 0}));
    Tensor x(DType::F32, {n});
    for (int64_t i = 0; i < n; ++i)
      x.mutable_data<float>()[i] = static_cast<float>(slope * static_cast<double>(i));
    const Tensor got = Session("cpu").compile(b.finish()).run({{"x", x}})[0];
    long double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      sum += std::exp(static_cast<long double>(x.data<float>()[i]));
      const double want = static_cast<double>(std::log(sum));
      if (i % 997 && i < n - 1) continue;
      ASSERT_NEAR(got.data<float>()[i], want, 4e-6 + 4e-7 * std::fabs(want))
          << "slope " << slope << ", element " << i;
    }
  }
}

// Means, norms, statistics and losses of a long row of numbers around 8.
TEST(Sums, WhatIsMadeOfThem) {
  constexpr int64_t n = 300'007;
  const Tensor x =
      sum_input(DType::F32, {n}, {"around 8", [](int64_t i, int64_t) {
                                    return 8 + static_cast<double>(i * 7919 % 1009) / 1009;
                                  }});
  const auto sum = [&](auto f) {
    ExactSum s;
    for (int64_t i = 0; i < n; ++i) s.add(f(static_cast<double>(x.data<float>()[i])));
    return s.value();
  };
  const auto count = static_cast<double>(n);
  const double mean = sum([](double v) { return v; }) / count;
  const double squares = sum([](double v) { return v * v; });
  const double variance = sum([&](double v) { return (v - mean) * (v - mean); }) / count;
  const double exponentials = sum([](double v) { return std::exp(v - 8); });
  const double first = x.data<float>()[0];

  struct Case {
    std::string name;
    std::function<Value(Builder&, Value)> build;  // of x [n]; the first element counts
    double want;
  };
  const auto channel = [](Builder& b, Value v) { return op::reshape(b, v, {Shape{1, 1, n}}); };
  const auto filled = [](Builder& b, Ints sizes, double v) {
    return b.constant(Tensor::full(DType::F32, std::move(sizes), v));
  };
  const double normalised = (first - mean) / std::sqrt(variance + 1e-5);
  const std::vector<Case> cases{
      {"mean", [](Builder& b, Value v) { return op::reduce_mean(b, v, {{0}}); }, mean},
      {"l2", [](Builder& b, Value v) { return op::reduce_l2(b, v, {{0}}); }, std::sqrt(squares)},
      {"variance", [](Builder& b, Value v) { return op::variance(b, v, {{0}}); }, variance},
      {"logsumexp", [](Builder& b, Value v) { return op::logsumexp(b, v, {{0}}); },
       8 + std::log(exponentials)},
      {"softmax", [](Builder& b, Value v) { return op::softmax(b, v); },
       std::exp(first - 8) / exponentials},
      {"layer_norm",
       [&](Builder& b, Value v) {
         return op::layer_norm(b, v, filled(b, {n}, 1), filled(b, {n}, 0));
       },
       normalised},
      {"rms_norm",
       [&](Builder& b, Value v) {
         return op::rms_norm(b, v, filled(b, {n}, 1), filled(b, {n}, 0));
       },
       first / std::sqrt(squares / count + 1e-5)},
      {"group_norm",
       [&](Builder& b, Value v) {
         return op::group_norm(b, channel(b, v), filled(b, {1}, 1), filled(b, {1}, 0), {1});
       },
       normalised},
      {"batch_norm_training's variance",
       [&](Builder& b, Value v) {
         return b.emit(op::batch_norm_training.def, ChannelNormAttrs{},
                       Values{channel(b, v), filled(b, {1}, 1), filled(b, {1}, 0)})[2];
       },
       variance},
      {"normalize", [](Builder& b, Value v) { return op::normalize(b, v); },
       first / std::sqrt(squares)},
      {"mse_loss", [&](Builder& b, Value v) { return op::mse_loss(b, v, filled(b, {n}, 1)); },
       sum([](double v) { return (v - 1) * (v - 1); }) / count},
      {"l1_loss",
       [&](Builder& b, Value v) { return op::l1_loss(b, v, filled(b, {n}, 1), {Reduction::sum}); },
       sum([](double v) { return v - 1; })},
      {"softmax_cross_entropy",
       [&](Builder& b, Value v) {
         return op::softmax_cross_entropy(b, v, b.constant(Tensor::full(DType::I32, {}, 0)));
       },
       8 + std::log(exponentials) - first},
  };
  for (const Case& c : cases) {
    Builder b("made_of_sums");
    b.output(c.build(b, b.input("x", {DType::F32, {n}})));
    const Tensor got = Session("cpu").compile(b.finish(), {.threads = 2}).run({{"x", x}})[0];
    EXPECT_NEAR(got.get_float(0) / c.want, 1, 30 * epsilon_of(DType::F32)) << c.name;
  }
}

}  // namespace
}  // namespace rlx::testing
