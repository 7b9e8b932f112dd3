// f32, bf16 and f16 derivatives against f64's: all rows by the reference, one of each op on the CPU (all
// of them in tests/long).
#include "../support/narrow_derivatives.h"

namespace rlx::testing {
namespace {

TEST(NarrowDerivatives, F32) {
  compare_narrow_derivatives(all_rows(), DType::F32, on_reference).expect_good(Column::narrow_f32);
  expect_ceilings_needed(Measured::derivatives, DType::F32);
}

TEST(NarrowDerivatives, BF16) {
  compare_narrow_derivatives(all_rows(), DType::BF16, on_reference)
      .expect_good(Column::narrow_bf16);
}

TEST(NarrowDerivatives, F16) {
  compare_narrow_derivatives(all_rows(), DType::F16, on_reference).expect_good(Column::narrow_f16);
  expect_ceilings_needed(Measured::derivatives, DType::F16);
}

TEST(NarrowDerivatives, F32OnTheCpu) {
  compare_narrow_derivatives(row_of_each_op(), DType::F32, on_cpu).expect_good();
}

// The bound is worth something: derivatives that are off by some hundred roundings fall out of it.
Tensors slightly_wrong(const Derivatives& d) {
  Tensors out = on_reference(d);
  for (Tensor& t : out) t = combine(t, t, 1e-4);
  return out;
}

TEST(NarrowDerivatives, WrongOnesAreFound) {
  for (const char* text : {"mul T[2, 3] T[2, 3]", "layer_norm T[2, 4] T[4] T[4]",
                           "matmul T[2, 3] T[3, 4]", "eigh T[3, 3]:symmetric"}) {
    const Sample row = read_sample(text, "here:1");
    EXPECT_FALSE(compare_narrow_derivatives({&row}, DType::F32, slightly_wrong).wrong.empty())
        << text;
  }
}

}  // namespace
}  // namespace rlx::testing
