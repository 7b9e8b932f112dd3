// Freed blocks of memory that are kept for the next of their size.
#include "rlx/base/large_blocks.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <new>
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

// The process's memory, mapped and in use.
std::pair<size_t, size_t> process_bytes() {
  size_t mapped = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> mapped >> resident;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return {mapped * page, resident * page};
}
size_t mapped_bytes() { return process_bytes().first; }
size_t resident_bytes() { return process_bytes().second; }

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

// Bytes behind the last whole huge page take pages of their own, not a huge one.
TEST_F(LargeBlocks, TakeLittleMoreThanWasAskedFor) {
  constexpr size_t kBytes = 2 * kMiB + 4096;
  std::vector<std::shared_ptr<std::byte[]>> many;
  const size_t before = resident_bytes();
  for (int i = 0; i < 100; ++i) {
    many.push_back(allocate_block(kBytes));
    std::memset(many.back().get(), 1, kBytes);
  }
  if (kKeeps) {
    EXPECT_LT(resident_bytes() - before, 100 * kBytes * 5 / 4);
  }
}

// Small ones too: what is kept is given back before memory is said to have ended.
TEST_F(LargeBlocks, AreGivenBackForSmallOnes) {
  if (!kKeeps) GTEST_SKIP() << "sanitizers map more than there is";
  const pid_t child = fork();
  if (child == 0) {
    {
      std::vector<std::shared_ptr<std::byte[]>> large;
      for (int i = 0; i < 16; ++i) large.push_back(allocate_block(4 * kMiB));
    }
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = mapped_bytes() + 8 * kMiB;
    setrlimit(RLIMIT_AS, &limit);
    int made = 0;
    try {
      std::vector<std::shared_ptr<std::byte[]>> small;
      for (; made < 40; ++made) small.push_back(allocate_block(kMiB));
    } catch (const Error&) {
    }
    _exit(made == 40 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(LargeBlocks, AreGivenBackWhereAnythingElseFails) {
  allocate_block(8 * kMiB);
  expect_error("out-of-memory", "", [] { within_memory([] { throw std::bad_alloc(); }); });
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
