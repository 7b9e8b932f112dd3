// The pool of threads: every block once, and exceptions that reach the caller and nobody else.
#include "rlx/base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <thread>

namespace rlx {
namespace {

void expect_every_block_once(int threads, int64_t blocks) {
  std::vector<std::atomic<int>> runs(static_cast<size_t>(blocks));
  parallel_for(threads, blocks, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++runs[static_cast<size_t>(i)];
  });
  for (const auto& n : runs) ASSERT_EQ(n, 1);
}

TEST(Parallel, EveryBlockOnce) {
  for (int threads : {1, 2, 4})
    for (int64_t blocks : {0, 1, 3, 1000}) expect_every_block_once(threads, blocks);
}

TEST(Parallel, AnExceptionReachesTheCaller) {
  for (int repeat = 0; repeat < 50; ++repeat)
    for (int threads : {1, 2, 4}) {
      try {
        parallel_for(threads, 64, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            if (i == 13) throw std::runtime_error("block 13");
        });
        ADD_FAILURE() << "no exception";
      } catch (const std::runtime_error& e) {
        EXPECT_STREQ(e.what(), "block 13");
      }
    }
  expect_every_block_once(4, 100);
}

// On the calling thread and on a worker alike.
TEST(Parallel, EveryThreadMayThrow) {
  std::atomic<int> workers = 0;
  for (int repeat = 0; repeat < 50; ++repeat)
    EXPECT_THROW(parallel_for_worker(2, 64,
                                     [&](int worker, int64_t, int64_t) {
                                       workers |= 1 << worker;
                                       throw std::runtime_error("every block");
                                     }),
                 std::runtime_error);
  EXPECT_NE(workers, 0);
  expect_every_block_once(2, 100);
}

// Nested calls know that they are nested until the job ends, and not after it.
TEST(Parallel, AfterAnExceptionJobsAreParallelAgain) {
  if (hardware_threads() < 2) GTEST_SKIP() << "one thread";
#ifdef RLX_SERIAL_PARALLEL
  GTEST_SKIP() << "built without threads";
#endif
  EXPECT_THROW(parallel_for(2, 8, [](int64_t, int64_t) { throw std::runtime_error("no"); }),
               std::runtime_error);
  // A parallel job hands out several ranges; a serial one a single range.
  std::atomic<int> ranges = 0;
  parallel_for(2, 64, [&](int64_t, int64_t) { ++ranges; });
  EXPECT_GT(ranges, 1);
}

}  // namespace
}  // namespace rlx
