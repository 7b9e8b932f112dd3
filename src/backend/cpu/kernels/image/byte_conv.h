// Convolutions of bytes in i32, exact modulo 2^32, on dense memory:
//
//   y[n, o, p] = sum (x[n, c, p * stride + k * dilation - low] - zero of x) * (w[o, c, k] - zero of w), padding adds nothing
//
//   ByteConvProblem p{.conv = {...}, .x_dtype = DType::U8, .w_dtype = DType::I8, .x_zeros = 1};
//   const ByteConv plan(p, dot_isa(host_isa()));
//   plan.pack_w(w, packed);                                     // once
//   plan.run(block, {x, packed, x_zero, nullptr, y}, true, scratch);  // for every block
//
// A product of the weights with unfolded windows (byte_dots.h); a convolution with one channel in per group is summed
// directly. Results are equal for every DotIsa, number of threads and order of blocks. run allocates nothing.
#pragma once

#include <string>

#include "rlx/backend/cpu/kernels/image/conv_lines.h"
#include "rlx/backend/cpu/kernels/matmul/byte_dots.h"
#include "rlx/backend/cpu/kernels/matmul/byte_product.h"

namespace rlx::cpu {

struct ByteConvProblem {
  ConvProblem conv;  // its dtype is not read
  DType x_dtype = DType::U8, w_dtype = DType::I8;
  int64_t x_zeros = 0, w_zeros = 0;  // none, one, or one per output channel
};

class ByteConv {
 public:
  ByteConv(const ByteConvProblem& problem, DotIsa isa);

  int64_t blocks() const;
  size_t scratch_bytes() const { return static_cast<size_t>(area_.end); }
  // b of the operands is w, as it is or packed.
  void run(int64_t block, const ByteOperands& in, bool packed, std::byte* scratch) const;

  size_t packed_bytes() const;
  std::string packed_form() const;
  void pack_w(const void* w, void* packed) const;
  DotIsa isa() const { return isa_; }

 private:
  struct Areas {  // of scratch
    int64_t w = 0, windows = 0, sums = 0, ones = 0, zero = 0, column = 0, lines = 0, dense = 0,
            flat = 0, end = 0;
  };
  bool is_direct() const { return conv_.in == 1; }
  int64_t channel_groups() const { return ceil_div(conv_.in, fns_.group); }
  int64_t depth() const { return channel_groups() * conv_.taps(); }  // groups of a result
  Areas areas() const;
  void pack_channels(const uint8_t* w, int64_t count, uint32_t* out, uint32_t* sums) const;
  ByteRows rows_of(const uint8_t* x, int64_t c) const;
  void unfold(const uint8_t* x, int32_t zero, int64_t begin, int64_t end, std::byte* scratch) const;
  void unfold_taps(const uint8_t* x, int32_t zero, int64_t begin, int64_t end, uint32_t* out) const;
  void run_direct(int64_t block, const ByteOperands& in, std::byte* scratch) const;

  ByteConvProblem p_;
  ConvProblem conv_;  // with lines joined where they are read one after the other
  DotIsa isa_;
  ByteDotFns fns_;
  ByteShift shift_;
  Parts columns_, rows_;
  Areas area_;
};

}  // namespace rlx::cpu
