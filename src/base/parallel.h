// The one parallel_for. Hands contiguous ranges of blocks to threads. What a block is never depends on the
// number of threads, so neither do results.
//
//   parallel_for(threads, blocks, [&](int64_t begin, int64_t end) { kernel(buffers, sizes, begin, end); });
//
// Exceptions must not leave the callable. Nested calls run serially. Built with RLX_SERIAL_PARALLEL it is a
// plain loop (for ThreadSanitizer, which does not understand OpenMP's barriers).
#pragma once

#include <cstdint>

#include "rlx/base/function_ref.h"

namespace rlx {

void parallel_for(int threads, int64_t blocks, FunctionRef<void(int64_t begin, int64_t end)> body);

// The same, with the index of the worker in [0, threads): for scratch memory per worker.
void parallel_for_worker(int threads, int64_t blocks,
                         FunctionRef<void(int worker, int64_t begin, int64_t end)> body);

int hardware_threads();

}  // namespace rlx
