// Every allocation of parse, compile and run fails once. What LLVM had made when memory ran out is lost, so the walk is
// dealt to several processes.
#include "../support/out_of_memory.h"

namespace rlx::testing {
namespace {

constexpr int kParts = 8;

// A case, and which of the parts.
class EveryAllocation : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(EveryAllocation, Fails) {
  const auto [number, part] = GetParam();
  const OutOfMemoryCase c = out_of_memory_cases()[static_cast<size_t>(number)];
  EXPECT_GT(walk_compiling(c, 1 + part, kParts), 5000 / kParts) << c.name;
}

INSTANTIATE_TEST_SUITE_P(OutOfMemory, EveryAllocation,
                         ::testing::Combine(::testing::Range(0, 3), ::testing::Range(0, kParts)));

TEST(OutOfMemory, EveryCaseIsWalked) { EXPECT_EQ(out_of_memory_cases().size(), 3u); }

}  // namespace
}  // namespace rlx::testing
