// 5,000 random programs under three transforms each, after those of the fast suite, in parts of 250: CTest runs each part as a
// test of its own.
#include <gtest/gtest.h>

#include <iostream>

#include "../support/nested_transforms.h"

namespace rlx::testing {
namespace {

constexpr uint64_t kFirst = 100, kCount = 5000, kPart = 250;

class NestedTransformsLong : public ::testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(From, NestedTransformsLong,
                         ::testing::Range(kFirst, kFirst + kCount, kPart),
                         ::testing::PrintToStringParamName());

TEST_P(NestedTransformsLong, AgreeWithWhatDoesNotUseThem) {
  NestedReport report;
  run_nested(GetParam(), GetParam() + kPart, report, [](uint64_t) {});
  std::cout << report.to_string();
  for (const std::string& f : report.failures) ADD_FAILURE() << f;
  EXPECT_LT(report.unstable, report.elements / 50);
  EXPECT_LT(report.singular, static_cast<int64_t>(kPart / 50));
  EXPECT_GT(report.depths[3], static_cast<int>(kPart / 2));
}

}  // namespace
}  // namespace rlx::testing
