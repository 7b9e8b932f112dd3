// Convolution and its two transposes on dense memory, cut into blocks that threads share out.
//
//   y[n, o, p] += x[n, c, p * stride + k * dilation - low] * w[o, c, k]
//
//   std::shared_ptr<const ConvPlan> plan = make_conv(problem, ConvSum::y, host_isa());
//   plan->run(block, x, w, y, scratch);                  // for every block
//
// All three sums are matrix products over unfolded windows: a tile of positions (or of the kernel)
// is copied into scratch as a matrix and multiplied by MatmulPlan. A convolution with one channel
// per group is summed directly. The blocks and the order of every sum depend on the problem and the
// Isa only. f16 and bf16 are summed in f32 and rounded once, integers wrap. run allocates nothing of
// its own.
#pragma once

#include <array>
#include <memory>

#include "rlx/backend/cpu/kernels/isa.h"
#include "rlx/ir/dtype.h"

namespace rlx::cpu {

using Sizes3 = std::array<int64_t, 3>;  // the spatial axes; missing ones come first, with size 1

struct ConvProblem {
  DType dtype = DType::F32;
  int64_t images = 1, groups = 1, in = 1, out = 1;  // channels per group
  Sizes3 x{1, 1, 1}, y{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, low{0, 0, 0};

  int64_t pixels() const { return x[0] * x[1] * x[2]; }
  int64_t positions() const { return y[0] * y[1] * y[2]; }
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t depth() const { return in * taps(); }  // products per result of a convolution
};

enum class ConvSum : uint8_t { y, x, w };  // whose elements are summed

class ConvPlan {
 public:
  virtual ~ConvPlan() = default;
  virtual int64_t blocks() const = 0;
  virtual size_t scratch_bytes() const = 0;  // per thread, 64-byte aligned
  // Operands in the order of the ops: x, w -> y; dy, w -> dx; x, dy -> dw.
  virtual void run(int64_t block, const void* a, const void* b, void* out,
                   std::byte* scratch) const = 0;
};

std::unique_ptr<const ConvPlan> make_conv(const ConvProblem& p, ConvSum sum, Isa isa);

}  // namespace rlx::cpu
