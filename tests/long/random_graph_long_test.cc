// 20,000 random programs through all checks, after those of the fast suite. RLX_RANDOM_STATE names
// a file that keeps the next program's number: a run that was stopped goes on from there.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>

#include "../support/random_checks.h"

namespace rlx::testing {
namespace {

constexpr uint64_t kFirst = 1000, kCount = 20000;

uint64_t next_program(const char* state) {
  uint64_t next = kFirst;
  if (state) std::ifstream(state) >> next;
  return std::clamp(next, kFirst, kFirst + kCount);
}

TEST(RandomGraphsLong, AgreeWithTheReference) {
  const char* state = std::getenv("RLX_RANDOM_STATE");
  const uint64_t first = next_program(state);
  std::cout << "programs " << first << " to " << kFirst + kCount - 1 << std::endl;
  RandomReport report;
  run_random_programs(first, kFirst + kCount, report, [&](uint64_t next) {
    if (next % 100 != 0) return;
    if (state) std::ofstream(state) << next << "\n";
    std::cout << next << " done, " << report.failures.size() << " failures" << std::endl;
  });
  std::cout << report.to_string();
  for (const std::string& f : report.failures) ADD_FAILURE() << f;
}

}  // namespace
}  // namespace rlx::testing
