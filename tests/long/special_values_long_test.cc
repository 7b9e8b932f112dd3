// The grid of special values at every dtype, with both vector widths and many places of each operand.
#include <gtest/gtest.h>

#include <iostream>

#include "../support/special_values.h"

namespace rlx::testing {
namespace {

TEST(SpecialValuesLong, EveryDTypeAndManyPlaces) {
  SpecialOptions options{.dtypes = {}, .vector_bits = {0, 256}, .places = 16};
  for (const DTypeInfo& d : kDTypes) options.dtypes.push_back(d.dtype);
  const SpecialReport report = check_special_values(options);
  std::cout << report.counts() << std::endl;
  EXPECT_TRUE(report.clean()) << report.text();
}

}  // namespace
}  // namespace rlx::testing
