// 20,000 random programs through all checks, after those of the fast suite, in parts of a thousand: CTest runs each part as a
// test of its own.
#include <gtest/gtest.h>

#include <iostream>

#include "../support/random_checks.h"

namespace rlx::testing {
namespace {

constexpr uint64_t kFirst = 1000, kCount = 20000, kPart = 1000;

class RandomGraphsLong : public ::testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(From, RandomGraphsLong, ::testing::Range(kFirst, kFirst + kCount, kPart),
                         ::testing::PrintToStringParamName());

TEST_P(RandomGraphsLong, AgreeWithTheReference) {
  RandomReport report;
  run_random_programs(GetParam(), GetParam() + kPart, report, [&](uint64_t next) {
    if (next % 100 == 0)
      std::cout << next << " done, " << report.failures.size() << " failures" << std::endl;
  });
  std::cout << report.to_string();
  for (const std::string& f : report.failures) ADD_FAILURE() << f;
}

}  // namespace
}  // namespace rlx::testing
