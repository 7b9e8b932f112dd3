// Golden values on the CPU backend with 256-bit vectors, where golden_cpu_test has wider ones.
#include <gtest/gtest.h>

#include "../support/golden.h"
#include "rlx/backend/cpu/jit.h"

namespace rlx::testing {
namespace {

TEST(GoldenCpu, Avx2) {
  if (cpu::host_vector_bits() == 256) return;  // the other program has run them
  const GoldenReport report = golden_on_cpu(256);
  EXPECT_TRUE(report.clean()) << report.text();
}

}  // namespace
}  // namespace rlx::testing
