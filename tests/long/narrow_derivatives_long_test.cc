// f32 derivatives on the CPU against f64's, all rows of the sample table; and those of f32, bf16 and f16 by
// the reference at all shapes made from the rows.
#include "../support/narrow_derivatives.h"
#include "../support/shape_variants.h"

namespace rlx::testing {
namespace {

TEST(NarrowDerivativesLong, F32OnTheCpu) {
  compare_narrow_derivatives(all_rows(), DType::F32, on_cpu).expect_good();
}

TEST(NarrowDerivativesLong, AtAllShapes) {
  const std::vector<Combination> made = combinations(kShapes);
  std::vector<const Sample*> all;
  for (const Combination& c : made)
    for (const Sample& s : c.variants) all.push_back(&s);
  for (DType d : {DType::F32, DType::BF16, DType::F16})
    compare_narrow_derivatives(all, d, on_reference).expect_good();
}

}  // namespace
}  // namespace rlx::testing
