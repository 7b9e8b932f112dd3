// The first shape made of each op (an empty one where it takes any) on the CPU, in f32, its value and its
// gradient; tests/long has all shapes.
#include "../support/cpu_checks.h"
#include "../support/shape_variants.h"

namespace rlx::testing {
namespace {

TEST(Variants, FirstOfEachOpOnTheCpu) {
  std::set<std::string> seen;
  CpuChecks checks;
  for (const Combination& combination : combinations(2)) {
    if (combination.variants.empty() || !seen.insert(combination.op).second) continue;
    const Sample& s = combination.variants[0];
    const std::string what = fmt::format("{} {}", s.op, s.where);
    try {
      const auto c = make_case(s, DType::F32);
      if (!c) continue;
      checks.add({c->graph, c->operands, s.op, what});
      if (auto g = gradient_of(*c)) checks.add(std::move(*g));
    } catch (const std::exception& e) {
      ADD_FAILURE() << what << ": " << e.what();
    }
  }
  checks.finish();
}

}  // namespace
}  // namespace rlx::testing
