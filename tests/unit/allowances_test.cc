// How far each op may be off on the CPU, in the sample table: printed, and as tests/allowances.txt has it.
#include "../support/allowances.h"

#include "../support/cpu_checks.h"

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

TEST(Allowances, CeilingsHaveReasons) {
  for (const Ceiling& c : ceilings()) {
    EXPECT_FALSE(c.why.empty()) << c.text();
    EXPECT_GT(c.fraction, default_ceiling(c.dtype, c.measured)) << c.text();
    EXPECT_TRUE(op_table().find(c.op)) << c.text();
  }
}

}  // namespace
}  // namespace rlx::testing
