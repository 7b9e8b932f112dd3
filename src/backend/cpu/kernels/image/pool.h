// Pooling of dense planes, cut into blocks that threads share out.
//
//   PoolProblem p{.dtype = DType::F32, .fold = PoolFold::Max, .planes = n * c, ...};
//   pool(p, host_isa(), x, y, begin, end, scratch);            // blocks [begin, end) of pool_blocks(p)
//
// A block is some lines of results of one plane (of pool_backward: one plane); nothing depends on
// how blocks are shared out. f16 and bf16 are folded in f32, integers in i64.
#pragma once

#include <cstddef>

#include "rlx/backend/cpu/kernels/image/conv.h"
#include "rlx/backend/cpu/kernels/image/pool_lines.h"

namespace rlx::cpu {

struct PoolProblem {
  DType dtype = DType::F32;
  PoolFold fold = PoolFold::Max;
  int64_t planes = 1;
  Sizes3 x{1, 1, 1}, y{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, low{0, 0, 0},
      high{0, 0, 0};
  bool count_padding = true;  // in the divisor of the mean

  int64_t pixels() const { return x[0] * x[1] * x[2]; }
  int64_t windows() const { return y[0] * y[1] * y[2]; }
  int64_t work() const { return planes * windows() * kernel[0] * kernel[1] * kernel[2]; }
};

int64_t pool_blocks(const PoolProblem& p);
size_t pool_scratch_bytes(const PoolProblem& p);
void pool(const PoolProblem& p, Isa isa, const void* x, void* y, int64_t begin, int64_t end,
          std::byte* scratch);

// Max and Min with the place of the first extremum in its plane, -1 for padding alone.
void pool_with_positions(const PoolProblem& p, const void* x, void* y, int64_t* positions,
                         int64_t begin, int64_t end, std::byte* scratch);

// Adds dy to the place of the first extremum of each window; planes [begin, end).
size_t pool_backward_scratch_bytes(const PoolProblem& p);
void pool_backward(const PoolProblem& p, const void* x, const void* dy, void* dx, int64_t begin,
                   int64_t end, std::byte* scratch);

}  // namespace rlx::cpu
