// f32 derivatives on the CPU against f64's, all rows of the sample table; and those of f32, bf16 and f16 by
// the reference at all shapes made from the rows.
#include "../support/narrow_derivatives.h"
#include "../support/shape_variants.h"

namespace rlx::testing {
namespace {

TEST(NarrowDerivativesLong, F32OnTheCpu) {
  compare_narrow_derivatives(all_rows(), DType::F32, on_cpu).expect_good();
}

// Where an axis has one element, the gradients of norms and losses cancel to nothing: what rounding may
// do is measured by the derivatives of the op's rows.
TEST(NarrowDerivativesLong, AtAllShapes) {
  std::map<DType, NarrowReport> reports;
  for (const Combination& c : combinations(kShapes)) {
    std::vector<const Sample*> variants;
    for (const Sample& s : c.variants) variants.push_back(&s);
    for (DType d : {DType::F32, DType::BF16, DType::F16})
      reports[d].add(compare_narrow_derivatives(variants, d, on_reference, derivative_scale(c.op)));
  }
  for (const auto& [d, report] : reports) report.expect_good();
}

}  // namespace
}  // namespace rlx::testing
