// All of the sample table and two thousand random programs on the device whose memory the host cannot touch.
#include <gtest/gtest.h>

#include "../support/hidden_checks.h"

namespace rlx::testing {
namespace {

TEST(HiddenLong, TheSampleTable) {
  register_sample_ops();
  EXPECT_GT(check_samples_on_hidden(1), 3000);
}

TEST(HiddenLong, RandomPrograms) { check_random_programs_on_hidden(1000, 2000); }

}  // namespace
}  // namespace rlx::testing
