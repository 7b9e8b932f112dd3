// Compiling takes work in proportion to the program, counted and not timed. The folders that walk over whole programs are
// compiled once more for this test, so that they call a counter at every basic block (tests/CMakeLists.txt): a loop over
// everything inside a loop over everything shows, wherever it stands. bench/compile_growth measures the same by the clock.
#include <gtest/gtest.h>

#include <cmath>

#include "../../bench/growth_cases.h"
#include "rlx/ops/quant/quantise.h"
#include "rlx/runtime/runtime.h"

namespace {
int64_t blocks = 0;
}

extern "C" void __sanitizer_cov_trace_pc() { ++blocks; }

namespace rlx {
namespace {

using namespace growth;

// Of log(work) over log(size). A search that has an end takes up to it in more places of a longer program, and
// placing a buffer climbs a tree; a loop over everything inside another is 2.
constexpr double kMost = 1.25, kMostOfPlan = 1.45;
constexpr int64_t kFew = 100000;  // blocks that show nothing: some 0.2 ms

// From a size to four times that.
double exponent(int64_t at_quarter, int64_t at_whole) {
  return std::log2(static_cast<double>(at_whole) / static_cast<double>(at_quarter)) / 2;
}

using Counts = std::array<int64_t, kStages>;

Counts counts(const Case& c, int64_t size) {
  Counts out{};
  cpu::CpuTarget target({.compile_threads = 1});
  each_stage(c, size, target, [&](growth::Stage stage, auto&& work) {
    const int64_t before = blocks;
    auto result = work();
    out[stage] = blocks - before;
    return result;
  });
  return out;
}

class GrowthCounts : public ::testing::TestWithParam<Case> {};

TEST_P(GrowthCounts, EveryStageIsInProportion) {
  const Case& c = GetParam();
  const int64_t quarter = c.sizes[1], whole = 4 * quarter;
  const Counts a = counts(c, quarter), b = counts(c, whole);
  for (size_t s = 0; s <= plan; ++s) {
    if (b[s] < kFew) continue;
    EXPECT_LE(exponent(a[s], b[s]), s == plan ? kMostOfPlan : kMost)
        << kStageNames[s] << ": " << a[s] << " blocks for " << quarter << ", " << b[s] << " for "
        << whole;
  }
  // The counter is there, and deterministic.
  EXPECT_GT(b[passes], 0);
  EXPECT_EQ(counts(c, quarter)[verifying], a[verifying]);
}

INSTANTIATE_TEST_SUITE_P(Families, GrowthCounts, ::testing::ValuesIn(kCases),
                         [](const auto& p) { return std::string(p.param.name); });

// Values by name: the whole of a program's parameters and inputs, one by one and together.
int64_t setting(int64_t n) {
  Builder b("leaves");
  Value sum = b.input("x", kVector);
  NamedTensors params, inputs;
  for (int64_t i = 0; i < n; ++i) {
    const std::string p = fmt::format("p{}", i), x = fmt::format("x{}", i);
    sum = op::add(b, op::add(b, sum, b.param(p, kVector)), b.input(x, kVector));
    params.emplace(p, Tensor(DType::F32, {64}));
    inputs.emplace(x, Tensor(DType::F32, {64}));
  }
  b.output(sum);
  CompiledGraph f = Session("reference").compile(b.finish());
  const int64_t before = blocks;
  f.set_params(params);
  for (const auto& [name, value] : params) f.set_param(name, value);
  for (const auto& [name, value] : inputs) f.set_input(name, value);
  return blocks - before;
}

TEST(GrowthCounts, LeavesAreLookedUp) {
  const int64_t a = setting(125), b = setting(500);
  EXPECT_GT(b, 10000);  // it is counted
  EXPECT_LE(exponent(a, b), kMost) << a << " " << b;
}

// The blocks that a pass takes for a program of that size.
int64_t passing(const Pass& pass, Graph (*make)(int64_t), int64_t n) {
  Graph g = make(n);
  const int64_t before = blocks;
  run_pass(std::move(g), pass, {});
  return blocks - before;
}

void expect_in_proportion(const Pass& pass, Graph (*make)(int64_t)) {
  const int64_t a = passing(pass, make, 500), b = passing(pass, make, 2000);
  EXPECT_GT(a, 10000);
  EXPECT_LE(exponent(a, b), kMost) << pass.name << ": " << a << " " << b;
}

Graph joined_one_by_one(int64_t n) {
  Builder b("joined");
  const Value x = b.input("x", kVector);
  Value all = x;
  for (int64_t i = 0; i < n; ++i) all = b.emit(op::concat.def, AxisAttrs{0}, Values{all, x})[0];
  b.output(all);
  return b.finish();
}

Graph pieces_of_parts(int64_t n) {
  Builder b("pieces");
  Values parts;
  for (int64_t i = 0; i < n; ++i) parts.push_back(b.input(fmt::format("x{}", i), kVector));
  const Value all = b.emit(op::concat.def, AxisAttrs{0}, parts)[0];
  for (int64_t i = 0; i < n; ++i) b.output(op::slice(b, all, {{64 * i}, {64 * i + 32}, {1}}));
  return b.finish();
}

Graph divided_again(int64_t n) {
  Builder b("divided");
  Value v = b.input("x", kVector);
  for (int64_t i = 0; i < n; ++i) {
    const Value c = b.constant(DType::F32, 3 + static_cast<double>(i % 5));
    v = i % 2 ? op::div(b, v, c) : op::mul(b, c, v);
  }
  b.output(v);
  return b.finish();
}

Graph quantised_behind_views(int64_t n) {
  Builder b("views");
  Value v = b.input("x", {DType::F32, {6, 6}});
  for (int64_t i = 0; i < n; ++i) v = op::transpose(b, v, {{1, 0}});
  b.output(op::quantize(b, v, {.scales = {0.5}, .zero_points = {0}}));
  return b.finish();
}

// Parts that are joined one by one are copied once, a slice finds its part without a look at all of them, products are
// followed a little way, and nodes that move towards their operands take one step for each.
TEST(GrowthCounts, RulesTakeStepsInProportion) {
  expect_in_proportion(pass::simplify, joined_one_by_one);
  expect_in_proportion(pass::simplify, pieces_of_parts);
  expect_in_proportion(pass::recognise, divided_again);
  expect_in_proportion(pass::fuse_quantised, quantised_behind_views);
}

}  // namespace
}  // namespace rlx
