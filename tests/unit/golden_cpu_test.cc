// Golden values on the CPU backend with the widest vectors of this machine.
#include <gtest/gtest.h>

#include "../support/golden.h"

namespace rlx::testing {
namespace {

TEST(GoldenCpu, WidestVectors) {
  const GoldenReport report = golden_on_cpu(0);
  EXPECT_TRUE(is_filtered() || report.samples > 1000);
  EXPECT_TRUE(report.clean()) << report.text();
}

}  // namespace
}  // namespace rlx::testing
