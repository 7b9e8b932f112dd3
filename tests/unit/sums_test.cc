// Sums, and what is made of sums, keep their digits at every size and along every axis; reductions
// to few results run in several blocks and do not build their operand in memory.
#include <gtest/gtest.h>

#include "../support/exact_sums.h"
#include "rlx/ops/core.h"
#include "rlx/ops/cumulative.h"
#include "rlx/ops/statistics.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {
namespace {

// A shape with n elements to sum for each result.
struct Layout {
  std::string name;
  Ints sizes, axes;
};
std::vector<Layout> layouts(int64_t n) {
  std::vector<Layout> all{{"all of one axis", {n}, {0}},        {"the last axis", {3, n}, {1}},
                          {"last axis, many rows", {9, n}, {1}}, {"the first axis", {n, 3}, {0}},
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

void expect_exact(DType dtype, const Layout& l, int threads = 2) {
  Builder b("sum");
  const Value x = b.input("x", {dtype, Shape::of(l.sizes)});
  b.output(op::reduce_sum(b, x, {l.axes}));
  CompiledGraph f = Session(Device::cpu).compile(b.finish(), {.threads = threads});
  for (const SumInput& input : sum_inputs()) {
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
  for (int64_t n : {1, 2, 17, 127, 129, 255, 257, 1000, 1024, 1025, 2049, 4096, 4097, 16384, 16385,
                    32768, 32769, 49153, 65537, 100'000})
    for (const Layout& l : layouts(n)) expect_exact(DType::F32, l);
}

TEST(Sums, EveryFloatDtype) {
  for (DType d : {DType::F16, DType::BF16, DType::F64})
    for (int64_t n : {129, 4097, 40'000})
      for (const Layout& l : layouts(n)) expect_exact(d, l);
}

TEST(Sums, Millions) {
  for (const Layout& l : layouts(1'000'003)) expect_exact(DType::F32, l);
  for (const Layout& l : {Layout{"all", {10'000'000}, {0}}, {"first", {10'000'000, 1}, {0}}})
    expect_exact(DType::F32, l);
  expect_exact(DType::F16, {"all", {1'000'003}, {0}});
  expect_exact(DType::F64, {"all", {1'000'003}, {0}});
}

}  // namespace
}  // namespace rlx::testing
