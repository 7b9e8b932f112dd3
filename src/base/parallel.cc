#include "rlx/base/parallel.h"

#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

// Of OpenMP, whose header belongs to the compiler: other compilers that only read this file (clang-tidy) have none.
extern "C" int omp_get_max_threads();
extern "C" void omp_set_num_threads(int threads);

namespace rlx {

int hardware_threads() {
#if defined(__linux__)
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) return std::max(1, CPU_COUNT(&cpus));
#endif
  return std::max(1U, std::thread::hardware_concurrency());
}

namespace {

using WorkerBody = FunctionRef<void(int worker, int64_t begin, int64_t end)>;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

thread_local bool in_parallel = false;

// Threads that take part in a job when they are there in time. The caller works too and waits only
// for workers that have begun a chunk: one that the system has not scheduled holds nobody up,
// unlike at a barrier.
class Pool {
 public:
  static Pool& instance() {
    static Pool pool;
    return pool;
  }

  // False: the pool is busy with another caller's job. Raises the first exception of a body, when
  // nobody works on the job any more.
  bool run(int team, int64_t blocks, WorkerBody body) {
    if (busy_.exchange(true, std::memory_order_acquire)) return false;
    grow(team - 1);
    shared_.fetch_add(1, std::memory_order_relaxed);
    // About four chunks per worker, handed out as workers become free.
    body_ = &body;
    blocks_ = blocks;
    chunk_ = std::max<int64_t>(1, blocks / (4 * team));
    team_ = team;
    failed_.store(false, std::memory_order_relaxed);
    next_.store(0, std::memory_order_relaxed);
    state_.fetch_add(kGeneration | kOpen, std::memory_order_release);
    state_.notify_all();
    work(0);
    state_.fetch_and(~kOpen, std::memory_order_acq_rel);
    for (int spin = 0; state_.load(std::memory_order_acquire) & kActive; ++spin) {
      if (spin < kSpins)
        pause();
      else
        std::this_thread::yield();  // a worker was interrupted in the middle of its chunk
    }
    const std::exception_ptr error = std::exchange(error_, nullptr);
    busy_.store(false, std::memory_order_release);
    if (error) std::rethrow_exception(error);
    return true;
  }

  int64_t shared() const { return shared_.load(std::memory_order_relaxed); }

 private:
  // state_: jobs begun so far, whether the current one still takes workers, and how many work on
  // it.
  static constexpr uint64_t kActive = 0xffff, kOpen = 1 << 16, kGeneration = 1 << 17;
  static constexpr int kSpins =
      4000;  // some tens of microseconds: longer than the gap between two kernels

  Pool() = default;
  ~Pool() {
    stop_.store(true, std::memory_order_relaxed);
    state_.fetch_add(kGeneration, std::memory_order_release);
    state_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  // Where the system gives no more threads, those that there are do the work.
  // NOLINTBEGIN(bugprone-empty-catch)
  void grow(int workers) {
    try {
      while (static_cast<int>(threads_.size()) < workers) {
        const int id = static_cast<int>(threads_.size()) + 1;
        threads_.emplace_back([this, id] { serve(id); });
      }
    } catch (const std::system_error&) {
    } catch (const std::bad_alloc&) {
    }
  }
  // NOLINTEND(bugprone-empty-catch)

  void work(int worker) {
    in_parallel = true;
    try {
      for (int64_t begin; (begin = next_.fetch_add(chunk_, std::memory_order_relaxed)) < blocks_;)
        (*body_)(worker, begin, std::min(begin + chunk_, blocks_));
    } catch (...) {
      if (!failed_.exchange(true, std::memory_order_relaxed)) error_ = std::current_exception();
      next_.store(blocks_, std::memory_order_relaxed);  // no more chunks
    }
    in_parallel = false;
  }

  void serve(int worker) {
    uint64_t seen = 0;
    for (;;) {
      uint64_t now = state_.load(std::memory_order_acquire);
      for (int spin = 0; now / kGeneration == seen && spin < kSpins; ++spin) {
        pause();
        now = state_.load(std::memory_order_acquire);
      }
      if (now / kGeneration == seen) {
        state_.wait(now, std::memory_order_acquire);
        continue;
      }
      seen = now / kGeneration;
      if (stop_.load(std::memory_order_relaxed)) return;
      // Join while this job is open; its fields are stable as long as somebody is active or it is
      // open.
      bool joined = false;
      while (!joined && (now & kOpen) && now / kGeneration == seen)
        joined = state_.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel,
                                              std::memory_order_acquire);
      if (!joined) continue;
      if (worker < team_) work(worker);
      state_.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  std::vector<std::thread> threads_;
  std::atomic<bool> busy_{false}, stop_{false}, failed_{false};
  std::atomic<int64_t> shared_{0};
  std::exception_ptr error_;  // of the body that failed first; read when no worker is active
  std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) const WorkerBody* body_ = nullptr;
  int64_t blocks_ = 0, chunk_ = 1;
  int team_ = 1;
};

}  // namespace

void parallel_for_worker(int threads, int64_t blocks, WorkerBody body) {
  if (blocks <= 0) return;
  const int team = static_cast<int>(std::min<int64_t>(threads, blocks));
  if (team > 1 && !in_parallel && Pool::instance().run(team, blocks, body)) return;
  body(0, 0, blocks);
}

void parallel_for(int threads, int64_t blocks, FunctionRef<void(int64_t begin, int64_t end)> body) {
  parallel_for_worker(threads, blocks, [&](int, int64_t begin, int64_t end) { body(begin, end); });
}

int64_t shared_loops() { return Pool::instance().shared(); }

OneThreadScope::OneThreadScope() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
OneThreadScope::~OneThreadScope() { omp_set_num_threads(before_); }

}  // namespace rlx
