// Every sample on the CPU against the reference: at every dtype the op takes, and the gradients in
// f32 and f64.
#include <gtest/gtest.h>

#include "../support/cpu_checks.h"
#include "rlx/compile/compile.h"
#include "rlx/ops/support.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {
namespace {

TEST(OpsCpu, EverySampleAtEveryDType) {
  CpuChecks checks;
  for (const Sample& s : samples())
    for (const DTypeInfo& row : kDTypes)
      if (auto c = make_case(s, row.dtype)) {
        checks.add({c->graph, c->operands, s.op, fmt::format("{} at {}", s.text, row.name)});
        if (!s.swept()) break;
      }
  checks.finish();
  expect_ceilings_needed(Measured::values);
}

TEST(OpsCpu, Gradients) {
  CpuChecks checks;
  for (const Sample& s : samples())
    for (DType d : {DType::F32, DType::F64})
      if (auto c = make_case(s, d))
        if (auto g = gradient_of(*c)) checks.add(std::move(*g));
  checks.finish();
  expect_ceilings_needed(Measured::gradients);
}

TEST(OpsCpu, NoOpLacksACpuPath) {
  const std::vector<std::string> native = native_ops(*backend_for("cpu"));
  const std::set<std::string_view> kernels(native.begin(), native.end());
  for (const auto& entry : op_table().entries())
    for (const Support& s : support(*entry.op, kernels)) {
      EXPECT_NE(s.answer, Answer::missing) << entry.op->name << " " << s.column << ": " << s.how;
      // 'Not applicable' is an answer about derivatives only, and it has a reason.
      if (s.answer != Answer::not_applicable) continue;
      EXPECT_TRUE(s.column == "jvp" || s.column == "vjp") << entry.op->name << " " << s.column;
      EXPECT_FALSE(s.how.empty()) << entry.op->name << " " << s.column;
    }
}

}  // namespace
}  // namespace rlx::testing
