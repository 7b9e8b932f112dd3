// The pool of threads: every block once, and exceptions that reach the caller and nobody else.
#include "rlx/base/parallel.h"

#include <gtest/gtest.h>

#if defined(__linux__)
#include <sched.h>
#endif

#include <atomic>
#include <chrono>
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

// `taskset -c 1 rlx ..` is a wish for one thread.
TEST(Parallel, CpusThatMayNotBeUsedDoNotCount) {
#if defined(__linux__)
  std::thread([] {
    cpu_set_t before, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    EXPECT_EQ(hardware_threads(), CPU_COUNT(&before));
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(hardware_threads(), 1);
  }).join();
#endif
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

// Plain memory on purpose: what blocks write the caller reads afterwards, and what the caller wrote
// before blocks read, ordered by the pool alone. ThreadSanitizer watches.
TEST(Parallel, JobsSeeWhatCameBeforeThem) {
  for (int threads : {2, 4, 7})
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<int> in(257, repeat), out(257);
      parallel_for(threads, 257, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          out[static_cast<size_t>(i)] = in[static_cast<size_t>(i)] + static_cast<int>(i);
      });
      for (int i = 0; i < 257; ++i) ASSERT_EQ(out[static_cast<size_t>(i)], repeat + i);
    }
}

// Each worker has scratch memory of its own.
TEST(Parallel, WorkersHaveTheirOwnNumbers) {
  std::vector<int64_t> sums(4);
  for (int repeat = 0; repeat < 50; ++repeat)
    parallel_for_worker(4, 100, [&](int worker, int64_t begin, int64_t end) {
      ASSERT_LT(worker, 4);
      for (int64_t i = begin; i < end; ++i) sums[static_cast<size_t>(worker)] += i;
    });
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), int64_t{0}), 50 * 4950);
}

// Threads that an earlier, larger team needed are there still and have time to come; their numbers are not of this team.
TEST(Parallel, SmallerTeamsHaveSmallerNumbers) {
  expect_every_block_once(5, 100);
  std::atomic<int> beyond{0};
  for (int team : {2, 3})
    for (int repeat = 0; repeat < 3; ++repeat)
      parallel_for_worker(team, 64, [&](int worker, int64_t, int64_t) {
        beyond += worker >= team;
        std::this_thread::sleep_for(std::chrono::milliseconds(4));
      });
  EXPECT_EQ(beyond, 0);
}

// Several callers at once: one has the pool, the others work alone; nested jobs run on the spot; some
// raise. All get their own blocks, and nobody those of another.
TEST(Parallel, CallersAtTheSameTime) {
  std::atomic<int> wrong{0};
  auto call = [&](int who) {
    for (int repeat = 0; repeat < 40; ++repeat) {
      std::vector<int> seen(64);
      const bool raises = repeat % 8 == 7;
      try {
        parallel_for(3, 64, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            int inner = 0;
            parallel_for(3, 5, [&](int64_t b, int64_t e) { inner += static_cast<int>(e - b); });
            seen[static_cast<size_t>(i)] = inner + who;
            if (raises && i == 40) throw std::runtime_error(std::to_string(who));
          }
        });
        wrong += raises;
        for (int s : seen) wrong += s != 5 + who;
      } catch (const std::runtime_error& e) {
        wrong += !raises || e.what() != std::to_string(who);
      }
    }
  };
  std::vector<std::thread> callers;
  for (int who = 0; who < 4; ++who) callers.emplace_back(call, 100 * who);
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(wrong, 0);
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

// The caller's thread waits in its block until the second one has thrown.
TEST(Parallel, AnExceptionOfASecondThreadReachesTheCaller) {
  if (hardware_threads() < 2) GTEST_SKIP() << "one thread";
  std::atomic<bool> thrown = false;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  EXPECT_THROW(parallel_for_worker(2, 64,
                                   [&](int worker, int64_t, int64_t) {
                                     if (worker > 0) {
                                       thrown = true;
                                       throw std::runtime_error("the second thread");
                                     }
                                     while (!thrown && std::chrono::steady_clock::now() < end)
                                       std::this_thread::yield();
                                   }),
               std::runtime_error);
  EXPECT_TRUE(thrown);
}

// Nested calls know that they are nested until the job ends, and not after it.
TEST(Parallel, AfterAnExceptionJobsAreParallelAgain) {
  if (hardware_threads() < 2) GTEST_SKIP() << "one thread";
  EXPECT_THROW(parallel_for(2, 8, [](int64_t, int64_t) { throw std::runtime_error("no"); }),
               std::runtime_error);
  // A parallel job hands out several ranges; a serial one a single range.
  std::atomic<int> ranges = 0;
  parallel_for(2, 64, [&](int64_t, int64_t) { ++ranges; });
  EXPECT_GT(ranges, 1);
}

}  // namespace
}  // namespace rlx
