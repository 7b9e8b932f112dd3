// NaN, infinities, signed zeros, denormals and the largest numbers in every operand of every op; the other dtypes and more
// places are in tests/long.
#include "../support/special_values.h"

#include <gtest/gtest.h>

#include <iostream>

namespace rlx::testing {
namespace {

TEST(SpecialValues, EveryOperandOfEverySample) {
  const SpecialReport report =
      check_special_values({.dtypes = {DType::F32, DType::BF16, DType::C64, DType::I32}});
  std::cout << report.counts() << std::endl;
  EXPECT_TRUE(report.clean()) << report.text();
}

}  // namespace
}  // namespace rlx::testing
