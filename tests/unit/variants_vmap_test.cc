// vmap at the shapes made from the sample table, for every choice of batched operands.
#include "../support/op_checks.h"
#include "../support/shape_variants.h"

namespace rlx::testing {
namespace {

TEST(Variants, VmapAgainstALoop) {
  for_each_variant(combinations(kShapes), [](const Case& c) { check_vmap_choices(c); });
}

}  // namespace
}  // namespace rlx::testing
