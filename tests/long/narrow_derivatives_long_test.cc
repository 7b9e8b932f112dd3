// f32 derivatives on the CPU against f64's, all rows of the sample table.
#include "../support/narrow_derivatives.h"

namespace rlx::testing {
namespace {

TEST(NarrowDerivativesLong, F32OnTheCpu) {
  compare_narrow_derivatives(all_rows(), DType::F32, on_cpu).expect_good();
}

}  // namespace
}  // namespace rlx::testing
