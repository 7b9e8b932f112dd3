#include "../support/symbolic.h"

namespace rlx::testing {
namespace {

TEST(SymbolicOps, Survey) {
  SymbolicSurvey survey;
  for (const Sample& s : samples()) {
    try {
      survey.add(s);
    } catch (const std::exception& e) {
      ADD_FAILURE() << s.where << " " << s.op << ": " << e.what();
    }
  }
  for (const auto& [key, message] : survey.refusals())
    fmt::print("REFUSED {} {} | {}\n", key.first, key.second, message);
  for (const auto& [op, c] : survey.counts())
    fmt::print("COUNT {} works {} refused {} guarded {}\n", op, c.works, c.refused, c.guarded);
}

}  // namespace
}  // namespace rlx::testing
