// 1,000 random programs through all checks of support/random_checks.h.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "../support/random_checks.h"
#include "../support/samples.h"

namespace rlx::testing {
namespace {

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// RLX_RANDOM_FIRST and RLX_RANDOM_COUNT choose other programs; a program is its number.
TEST(RandomGraphs, AgreeWithTheReference) {
  const uint64_t first = from_environment("RLX_RANDOM_FIRST", 0),
                 count = from_environment("RLX_RANDOM_COUNT", 1000);
  std::cout << "programs " << first << " to " << first + count - 1 << "\n";
  RandomReport report;
  run_random_programs(first, first + count, report, [](uint64_t) {});
  std::cout << report.to_string();
  for (const std::string& f : report.failures) ADD_FAILURE() << f;
  if (count < 1000) return;
  EXPECT_LT(report.stats.unstable, report.stats.elements / 5000);
  EXPECT_LT(report.stats.loose, report.stats.elements / 100);
  for (const Sample& s : samples())
    EXPECT_EQ(report.ops[s.op] > 0, !op_table().find(s.op)->block) << s.op;
}

}  // namespace
}  // namespace rlx::testing
