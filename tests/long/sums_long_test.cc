// Sums of 1e8 elements along every kind of axis.
#include <gtest/gtest.h>

#include "../support/exact_sums.h"
#include "rlx/ops/core.h"
#include "rlx/ops/image/pool.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {
namespace {

TEST(SumsLong, HundredMillion) {
  constexpr int64_t n = 100'000'000;
  struct Layout {
    DType dtype;
    Ints sizes, axes;
  };
  for (const Layout& l : {Layout{DType::F32, {n}, {0}},
                          {DType::F32, {n, 1}, {0}},
                          {DType::F32, {n / 2, 2}, {0}},
                          {DType::F32, {2, n / 2}, {1}},
                          {DType::F32, {10, n / 10}, {1}},
                          {DType::F32, {n / 40, 40}, {0}},
                          {DType::F32, {10'000, 10'000}, {0, 1}},
                          {DType::F32, {1'000, 10, 10'000}, {0, 2}},
                          {DType::F32, {2, n / 4, 2}, {1}},
                          {DType::F16, {n}, {0}},
                          {DType::BF16, {n}, {0}},
                          {DType::F64, {n}, {0}}}) {
    Builder b("sum");
    b.output(op::reduce_sum(b, b.input("x", {l.dtype, Shape::of(l.sizes)}), {l.axes}));
    CompiledGraph f = Session("cpu").compile(b.finish());
    for (const SumInput& input : sum_inputs()) {
      const Tensor x = sum_input(l.dtype, l.sizes, input);
      const std::vector<ExactSum> want = exact_sums(x, l.axes);
      f.bind_input(0, x.raw());
      f.run();
      const Tensor got = f.output_tensor(0);
      for (int64_t i = 0; i < got.elements(); ++i) {
        const ExactSum& s = want[static_cast<size_t>(i)];
        if (l.dtype == DType::F16 && std::fabs(s.value()) > 65519) continue;
        ASSERT_LE(std::fabs(got.get_float(i) - s.value()),
                  sum_bound(s, n / got.elements(), l.dtype))
            << fmt::format("{} {}, {}: {} instead of {}", l.dtype, fmt::join(l.sizes, "x"),
                           input.name, got.get_float(i), s.value());
      }
    }
  }
}

// Every hundred-thousandth element of a running sum, and the last one.
TEST(SumsLong, RunningSum) {
  constexpr int64_t n = 100'000'000;
  Builder b("cumsum");
  b.output(op::cumsum(b, b.input("x", {DType::F32, {n}}), {.axis = 0}));
  CompiledGraph f = Session("cpu").compile(b.finish());
  for (const SumInput& input : sum_inputs()) {
    const Tensor x = sum_input(DType::F32, {n}, input);
    f.bind_input(0, x.raw());
    f.run();
    const auto* got = static_cast<const float*>(f.output(0));
    ExactSum s;
    for (int64_t i = 0; i < n; ++i) {
      s.add(x.data<float>()[i]);
      if (i % 100'000 && i < n - 1) continue;
      ASSERT_LE(std::fabs(got[i] - s.value()), sum_bound(s, i + 1, DType::F32))
          << input.name << ", element " << i;
    }
  }
}

// A product, a window and scattered updates of 1e8 terms: 0.1 each.
TEST(SumsLong, KernelsOfAHundredMillion) {
  constexpr int64_t n = 100'000'000;
  const Tensor x = sum_input(DType::F32, {n}, sum_inputs()[0]);
  const double tenth = 0.1f, epsilon = epsilon_of(DType::F32), count = n;
  const auto run = [&](Builder& b, const void* second) {
    CompiledGraph f = Session("cpu").compile(b.finish());
    f.bind_input(0, x.raw());
    if (second) f.bind_input(1, second);
    f.run();
    return f.output_tensor(0);
  };
  for (const bool transposed : {false, true}) {
    Builder b("product");
    const Type right{DType::F32, transposed ? Shape{1, n} : Shape{n, 1}};
    b.output(op::matmul(b, b.input("a", {DType::F32, {1, n}}), b.input("b", right),
                        {.transpose_b = transposed}));
    EXPECT_NEAR(run(b, x.raw()).get_float(0) / (tenth * tenth * count), 1, 200 * epsilon);
  }
  {
    Builder b("window");
    b.output(
        op::pool(b, b.input("x", {DType::F32, {1, n}}), {.kind = PoolKind::sum, .kernel = {n}}));
    EXPECT_NEAR(run(b, nullptr).get_float(0) / (tenth * count), 1,
                (16 + std::log2(count / 128)) * epsilon);
  }
  {
    Builder b("updates");
    const Value updates = b.input("updates", {DType::F32, {n}}),
                places = b.input("at", {DType::U8, {n}});
    b.output(op::scatter_add(b, updates, places, {.axis = 0, .size = 2}));
    const Tensor at(DType::U8, {n});
    EXPECT_NEAR(run(b, at.raw()).get_float(0) / (tenth * count), 1, 2 * epsilon);
  }
}

}  // namespace
}  // namespace rlx::testing
