// Every allocation of parse, compile and run fails once.
#include "../support/out_of_memory.h"

namespace rlx::testing {
namespace {

TEST(OutOfMemory, EveryAllocationFails) {
  for (const OutOfMemoryCase& c : out_of_memory_cases())
    EXPECT_GT(OutOfMemoryWalk(c).walk(1, 1), 5000) << c.name;
}

}  // namespace
}  // namespace rlx::testing
