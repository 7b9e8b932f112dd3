// The one parallel_for. Hands contiguous ranges of blocks to threads. What a block is never depends
// on the number of threads, so neither do results.
//
//   parallel_for(threads, blocks, [&](int64_t begin, int64_t end) {
//     kernel(buffers, sizes, begin, end);
//   });
//
// An exception that leaves the callable ends the job: ranges that are not begun are left out, and
// the caller raises the first one again when no thread works on the job any more. Nested calls run
// serially.
//
// The threads are our own: workers join a job when they are there in time, and the caller never
// waits for one that the system has not scheduled, so a busy machine costs its share and no more (a
// barrier would cost a time slice per kernel).
#pragma once

#include <cstdint>

#include "rlx/base/function_ref.h"

namespace rlx {

void parallel_for(int threads, int64_t blocks, FunctionRef<void(int64_t begin, int64_t end)> body);

// The same, with the index of the worker in [0, threads): for scratch memory per worker.
void parallel_for_worker(int threads, int64_t blocks,
                         FunctionRef<void(int worker, int64_t begin, int64_t end)> body);

// CPUs that the calling thread may run on.
int hardware_threads();

// How many loops were shared out so far, in all threads: what is run by its caller alone does not count.
int64_t shared_loops();

// While it lives, libraries that thread with OpenMP (oneDNN) stay on the calling thread.
class OneThreadScope {
 public:
  OneThreadScope();
  ~OneThreadScope();
  OneThreadScope(const OneThreadScope&) = delete;
  OneThreadScope& operator=(const OneThreadScope&) = delete;

 private:
  int before_ = 1;
};

}  // namespace rlx
