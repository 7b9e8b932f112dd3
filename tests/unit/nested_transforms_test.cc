// 100 random programs under three transforms each (support/nested_transforms.h).
#include "../support/nested_transforms.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

namespace rlx::testing {
namespace {

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// RLX_NESTED_FIRST and RLX_NESTED_COUNT choose other cases; a case is its number. RLX_NESTED_CPU=10: one in ten runs on the
// CPU too.
TEST(NestedTransforms, AgreeWithWhatDoesNotUseThem) {
  const uint64_t first = from_environment("RLX_NESTED_FIRST", 0),
                 count = from_environment("RLX_NESTED_COUNT", 100);
  NestedReport report;
  report.cpu_every = from_environment("RLX_NESTED_CPU", 2);
  run_nested(first, first + count, report, [](uint64_t) {});
  std::cout << report.to_string();
  for (const std::string& f : report.failures) ADD_FAILURE() << f;
}

}  // namespace
}  // namespace rlx::testing
