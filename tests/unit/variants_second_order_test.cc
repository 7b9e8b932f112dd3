// Second derivatives at the shapes made from the sample table, forward over reverse and reverse over
// reverse.
#include "../support/op_checks.h"
#include "../support/shape_variants.h"

namespace rlx::testing {
namespace {

TEST(Variants, SecondOrderAgainstDifferencesOfGradients) {
  for_each_variant(combinations(kShapes), [](const Case& c) {
    if (c.dtype == DType::F64 && c.sample->differences && c.sample->second) check_second_order(c);
  });
}

}  // namespace
}  // namespace rlx::testing
