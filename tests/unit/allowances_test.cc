// How far each op may be off on the CPU, in the sample table: printed, and as tests/allowances.txt has it.
#include "../support/allowances.h"

#include "../support/cpu_checks.h"
#include "rlx/ir/text.h"

namespace rlx::testing {
namespace {

std::vector<CpuCase> cases_of(const Sample& s, DType d) {
  std::vector<CpuCase> out;
  if (auto c = make_case(s, d)) {
    out.push_back({c->graph, c->operands, s.op, fmt::format("{} at {}", s.text, d)});
    if (auto g = gradient_of(*c)) out.push_back(std::move(*g));
  }
  return out;
}

// A kernel that computes nothing, or something a little wrong, must not pass for any row.
void expect_worth(const CpuCase& c, size_t k, const Bounded& allowed, double ceiling) {
  const Tensor zeros(allowed.value.dtype(), allowed.value.sizes());
  if (largest_of(allowed.value) > 0) {
    EXPECT_NE(allowed.mismatch(zeros, {.ceiling = ceiling}), "")
        << c.what << ", result " << k << ": zeros pass, largest " << largest_of(allowed.value)
        << " draws " << allowed.draws.size();
  }
}

TEST(Allowances, AreAsCheckedIn) {
  AllowanceTable table;
  for (const Sample& s : samples())
    for (DType d : {DType::F32, DType::F64})
      for (const CpuCase& c : cases_of(s, d)) {
        if (!s.swept() && d == DType::F64) continue;
        const BoundedRun allowed = bounded(c);
        for (size_t k = 0; k < allowed.outputs.size(); ++k) {
          const Bounded& b = allowed.outputs[k];
          const bool wide = b.value.dtype() == DType::F64;
          const Column column = c.gradient ? (wide ? Column::f64_gradients : Column::f32_gradients)
                                           : (wide ? Column::f64 : Column::f32);
          const double ceiling = ceiling_of(c.op, b.value.dtype(), c.measured());
          expect_worth(c, k, b, ceiling);
          b.mismatch(b.value, {.stats = &table.cell(c.op, column), .ceiling = ceiling});
        }
      }
  static constexpr Column columns[] = {Column::f32, Column::f32_gradients, Column::f64,
                                       Column::f64_gradients};
  if (!is_filtered()) table.expect_as_checked_in(columns);
}

// ---- the comparison itself

Bounded ranged(const std::vector<double>& value, double range) {
  const Ints sizes{static_cast<int64_t>(value.size())};
  Tensor v(DType::F32, sizes), low(DType::F32, sizes), high(DType::F32, sizes);
  for (int64_t i = 0; i < v.elements(); ++i) {
    const double x = value[static_cast<size_t>(i)];
    const double part = std::isfinite(x) ? range * std::fabs(x) : 0;
    v.set_float(i, x), low.set_float(i, x - part), high.set_float(i, x + part);
  }
  return {v, {low, high}};
}

bool passes(const Bounded& b, const std::vector<double>& got, double ceiling = INFINITY) {
  Tensor t(b.value.dtype(), b.value.sizes());
  for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, got[static_cast<size_t>(i)]);
  return b.mismatch(t, {.ceiling = ceiling}).empty();
}

TEST(Comparison, InfinityIsNotNan) {
  const double inf = INFINITY, nan = NAN;
  for (const bool exact : {false, true}) {
    const auto with = [&](double v) {
      Bounded b = ranged({v, 1}, 0);
      if (exact) b.draws.clear();
      return b;
    };
    for (const double want : {inf, -inf, nan, 1.0})
      for (const double got : {inf, -inf, nan, 1.0}) {
        const bool same = want == got || (std::isnan(want) && std::isnan(got));
        EXPECT_EQ(passes(with(want), {got, 1}), same) << want << " and " << got;
      }
  }
}

// What rounding can do, and a fraction of the largest element: an element must pass both.
TEST(Comparison, TheNarrowerOfTwoBoundsHolds) {
  const Bounded wide = ranged({1, 1000}, 1e-3);
  EXPECT_TRUE(passes(wide, {1.001, 1000}));

  EXPECT_FALSE(passes(wide, {1.02, 1000})) << "beyond the range, far below the ceiling";
  EXPECT_FALSE(passes(wide, {1.02, 1000}, 2e-3));
  EXPECT_TRUE(passes(wide, {1, 1001}));
  EXPECT_FALSE(passes(wide, {1, 1001}, 2e-6)) << "within the range, above the ceiling";
  EXPECT_TRUE(passes(wide, {1, 1000.001}, 2e-6));
}

// The same numbers 1e-20 times as large are compared alike: nothing is absolute.
TEST(Comparison, NothingIsAbsolute) {
  for (const double scale : {1.0, 1e-20, 1e20}) {
    const Bounded b = ranged({scale, 3 * scale}, 1e-6);
    EXPECT_TRUE(passes(b, {scale * (1 + 2e-6), 3 * scale}, 1e-2)) << scale;
    EXPECT_FALSE(passes(b, {scale * (1 + 1e-3), 3 * scale}, 1e-2)) << scale;
    EXPECT_FALSE(passes(b, {0, 3 * scale}, 1e-2)) << scale;
  }
}

// Elements that are allowed more than a hundredth of themselves are counted, and those on which the noisy runs disagree.
TEST(Comparison, LooseAndUnstableElementsAreCounted) {
  Bounded b = ranged({1, 2, 3, 4}, 0);
  b.draws[0].set_float(1, 2.5), b.draws[1].set_float(2, NAN);
  CompareStats stats;
  EXPECT_EQ(b.mismatch(b.value, {.stats = &stats}), "");
  EXPECT_EQ(stats.elements, 4);
  EXPECT_EQ(stats.exact, 0);
  EXPECT_EQ(stats.loose, 1);
  EXPECT_EQ(stats.unstable, 1);
}

Tensor copy_of(const Tensor& t) {
  return Tensor::from_bytes(t.dtype(), t.sizes(), t.raw(), t.bytes());
}

BoundedRun bounded(const char* text, const Tensor& x) {
  return evaluate_bounded(parse(text), {{"x", x}}, 1);
}

// Vectors of equal eigenvalues may be any, also where the numbers are too large to have fractions.
TEST(Comparison, LargeWholeNumbersAreNumbers) {
  Tensor x(DType::F32, {3, 3});
  for (int64_t i = 0; i < 9; ++i) x.set_float(i, 4294967296.0);
  const BoundedRun run = bounded(R"(graph @g {
  %0 = input() {name="x", shape=[3, 3]} : [3, 3] f32
  %1 = eigh(%0) : [3] f32, [3, 3] f32
  return %1:1
})",
                                 x);
  Tensor turned = copy_of(run.outputs[0].value);
  for (int64_t i = 0; i < 3; ++i) turned.set_float(3 * i, -turned.get_float(3 * i));
  EXPECT_EQ(run.outputs[0].mismatch(turned), "");
}

// Where a solution overflows, another order may have met infinities of both signs.
TEST(Comparison, SolutionsThatOverflowMayBeNan) {
  Tensor x(DType::F32, {2, 2});
  for (int64_t i = 0; i < 4; ++i) x.set_float(i, i == 2 ? 1e30 : 1e-30);
  const BoundedRun run = bounded(R"(graph @g {
  %0 = input() {name="x", shape=[2, 2]} : [2, 2] f32
  %1 = triangular_solve(%0, %0) : [2, 2] f32
  return %1
})",
                                 x);
  Tensor got = copy_of(run.outputs[0].value);
  ASSERT_TRUE(std::isinf(got.get_float(3)));
  got.set_float(3, NAN);
  EXPECT_EQ(run.outputs[0].mismatch(got), "");
}

TEST(Allowances, CeilingsHaveReasons) {
  for (const Ceiling& c : ceilings()) {
    EXPECT_FALSE(c.why.empty()) << c.text();
    EXPECT_GT(c.fraction, default_ceiling(c.dtype, c.measured)) << c.text();
    EXPECT_TRUE(op_table().find(c.op)) << c.text();
  }
}

}  // namespace
}  // namespace rlx::testing
