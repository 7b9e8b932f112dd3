#include "rlx/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>

#ifndef RLX_SERIAL_PARALLEL
#include <omp.h>
#endif

namespace rlx {

int hardware_threads() { return std::max(1u, std::thread::hardware_concurrency()); }

void parallel_for_worker(int threads, int64_t blocks,
                         FunctionRef<void(int worker, int64_t begin, int64_t end)> body) {
  if (blocks <= 0) return;
#ifndef RLX_SERIAL_PARALLEL
  const int team = static_cast<int>(std::min<int64_t>(threads, blocks));
  if (team > 1 && !omp_in_parallel()) {
    // About four chunks per worker, handed out as workers become free.
    const int64_t chunk = std::max<int64_t>(1, blocks / (4 * team));
    std::atomic<int64_t> next{0};
#pragma omp parallel num_threads(team)
    {
      const int worker = omp_get_thread_num();
      for (int64_t begin; (begin = next.fetch_add(chunk, std::memory_order_relaxed)) < blocks;)
        body(worker, begin, std::min(begin + chunk, blocks));
    }
    return;
  }
#else
  (void)threads;
#endif
  body(0, 0, blocks);
}

void parallel_for(int threads, int64_t blocks, FunctionRef<void(int64_t begin, int64_t end)> body) {
  parallel_for_worker(threads, blocks, [&](int, int64_t begin, int64_t end) { body(begin, end); });
}

}  // namespace rlx
