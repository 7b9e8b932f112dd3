// Freed blocks of memory that are kept for the next of their size.
#include "rlx/base/large_blocks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "../support/expect_error.h"
#include "rlx/ir/tensor.h"

namespace rlx {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kKeeps = false;
#else
constexpr bool kKeeps = true;
#endif

size_t kept() { return static_cast<size_t>(kept_block_bytes()); }

struct LargeBlocks : testing::Test {
  LargeBlocks() { drop_kept_blocks(); }
  ~LargeBlocks() override { keep_blocks(int64_t{256} << 20); }
};

TEST_F(LargeBlocks, AreAligned) {
  for (size_t bytes : {size_t{0}, size_t{1}, 2 * kMiB - 1, 2 * kMiB, 2 * kMiB + 1, 5 * kMiB}) {
    const auto block = allocate_block(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.get()) % 64, 0U) << bytes;
    std::memset(block.get(), 1, bytes);
  }
}

TEST_F(LargeBlocks, AreUsedAgainForTheirSize) {
  std::byte* first = allocate_block(3 * kMiB).get();  // freed at once
  EXPECT_EQ(kept(), kKeeps ? 4 * kMiB : 0U);
  const auto other = allocate_block(5 * kMiB), again = allocate_block(4 * kMiB - 1);
  EXPECT_EQ(again.get() == first, kKeeps);
  EXPECT_NE(other.get(), first);
  EXPECT_EQ(kept(), 0U);
  const auto third = allocate_block(4 * kMiB);
  EXPECT_NE(third.get(), again.get());
}

TEST_F(LargeBlocks, SmallOnesAreNotKept) {
  allocate_block(2 * kMiB - 1);
  EXPECT_EQ(kept(), 0U);
}

TEST_F(LargeBlocks, AreKeptUpToABound) {
  allocate_block(256 * kMiB);
  EXPECT_EQ(kept(), kKeeps ? 256 * kMiB : 0U);
  allocate_block(256 * kMiB + 1);  // more than may be kept at all: what is kept stays
  EXPECT_EQ(kept(), kKeeps ? 256 * kMiB : 0U);
  allocate_block(2 * kMiB);  // the oldest one goes
  EXPECT_EQ(kept(), kKeeps ? 2 * kMiB : 0U);
  {
    std::vector<std::shared_ptr<std::byte[]>> many;
    for (int i = 0; i < 40; ++i) many.push_back(allocate_block(10 * kMiB));
  }
  EXPECT_EQ(kept(), kKeeps ? 250 * kMiB : 0U);
  drop_kept_blocks();
  EXPECT_EQ(kept(), 0U);
  for (int i = 0; i < 5; ++i)
    allocate_block(10 * kMiB + static_cast<size_t>(i) * 2 * kMiB);  // 70 MiB
  EXPECT_EQ(kept(), kKeeps ? 70 * kMiB : 0U);
  keep_blocks(34 << 20);  // those of 18 and of 16 MiB
  EXPECT_EQ(kept(), kKeeps ? 34 * kMiB : 0U);
  keep_blocks(-1);
  EXPECT_EQ(kept(), 0U);
}

TEST_F(LargeBlocks, AreGivenBackWhereMemoryEnds) {
  allocate_block(8 * kMiB);
  expect_error("out-of-memory", "cannot allocate", [] { allocate_block(SIZE_MAX / 4); });
  EXPECT_EQ(kept(), 0U);
}

TEST_F(LargeBlocks, HaveOneOwnerAtATime) {
  std::vector<std::thread> threads;
  std::atomic<int> torn{0};
  for (int id = 1; id <= 4; ++id)
    threads.emplace_back([&torn, id] {
      for (int i = 0; i < 200; ++i) {
        const size_t bytes = static_cast<size_t>(2 + i % 3) * kMiB;
        const auto block = allocate_block(bytes);
        for (size_t at = 0; at < bytes; at += 65536) block[at] = static_cast<std::byte>(id);
        std::this_thread::yield();
        for (size_t at = 0; at < bytes; at += 65536)
          torn += block[at] != static_cast<std::byte>(id);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(torn, 0);
}

TEST_F(LargeBlocks, NewTensorsAreZeroThere) {
  const auto size = static_cast<int64_t>(kMiB);
  {
    Tensor t(DType::F32, {size});
    for (int64_t i = 0; i < size; ++i) t.set_float(i, 1);
  }
  const Tensor t(DType::F32, {size});
  for (int64_t i = 0; i < size; ++i) ASSERT_EQ(t.get_float(i), 0) << i;
}

}  // namespace
}  // namespace rlx
