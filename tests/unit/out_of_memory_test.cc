// Memory that runs out while programs are parsed, compiled and run: a sample of the allocations fails;
// tests/long fails every one.
#include "../support/out_of_memory.h"

namespace rlx::testing {
namespace {

TEST(OutOfMemory, ASampleOfAllocationsFails) {
  for (const OutOfMemoryCase& c : out_of_memory_cases())
    EXPECT_GT(OutOfMemoryWalk(c).walk(/*first=*/1, /*stride=*/251), 30) << c.name;
}

// Strings, containers and tensors of the user's own numbers, beyond all memory.
TEST(OutOfMemory, IsAResourceErrorEverywhere) {
  auto kind_of = [](FunctionRef<void()> f) {
    try {
      f();
    } catch (const Error& e) {
      return e.code();
    }
    return std::string("none");
  };
  EXPECT_EQ(kind_of([] { Tensor(DType::F32, {int64_t{1} << 44}); }), "out-of-memory");
  EXPECT_EQ(kind_of([] { within_memory([] { std::vector<int>(size_t{1} << 62); }); }),
            "out-of-memory");
  EXPECT_EQ(kind_of([] { within_memory([]() -> int { throw std::bad_alloc(); }); }),
            "out-of-memory");
  // The error itself needs no memory.
  EXPECT_EQ(kind_of([] {
              const FailingAllocation failure(1);
              within_memory([]() -> int { throw std::bad_alloc(); });
            }),
            "out-of-memory");
}

}  // namespace
}  // namespace rlx::testing
