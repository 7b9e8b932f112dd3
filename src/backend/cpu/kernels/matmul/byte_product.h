// C = (A - za)(B - zb) in i32, which wraps, for matrices of bytes: batched, with zero points for all, per row of A or per
// column of B.
//
//   ByteProblem p{.product = {.dtype = DType::U8, .m = 128, .n = 768, .k = 768}, .b_dtype = DType::I8};
//   p.product.set_dense();
//   const ByteProduct plain(p, dot_isa(host_isa()), false);
//   plain.run_tile(tile, {a, b, nullptr, nullptr, c}, scratch);
//
// A ByteProduct made for packed weights reads B as pack_b wrote it, and its tiles are others. Results are exact: equal for
// every DotIsa, number of threads and order of tiles. run_tile allocates nothing.
#pragma once

#include <string>

#include "rlx/backend/cpu/kernels/isa.h"
#include "rlx/backend/cpu/kernels/matmul/byte_dots.h"
#include "rlx/backend/cpu/kernels/matmul/matmul.h"

namespace rlx::cpu {

struct ByteProblem {
  MatmulProblem product;  // its dtype is A's, u8 or i8; strides as for MatmulPlan
  DType b_dtype = DType::I8;
  // How many zero points there are: none, one, or one per row of A (repeated, where m has several of that many) and
  // column of B.
  int64_t a_zeros = 0, b_zeros = 0;
};

struct ByteOperands {
  const void *a, *b, *a_zero, *b_zero;  // zero points of the dtype of their matrix; nullptr: none
  void* c;
};

class ByteProduct : public MatmulTiles {
 public:
  ByteProduct(const ByteProblem& problem, DotIsa isa, bool packed);

  size_t scratch_bytes() const { return scratch_bytes_; }
  void run_tile(int64_t tile, const ByteOperands& in, std::byte* scratch) const;

  size_t packed_bytes() const;
  std::string packed_form() const;
  void pack_b(const void* b, void* packed) const;
  DotIsa isa() const { return isa_; }

 private:
  struct Areas;  // of scratch
  int64_t panels(int64_t columns) const;
  int64_t matrix_bytes() const;  // of one packed B
  void pack_columns(const uint8_t* b, int64_t first, int64_t columns, uint32_t* out) const;
  void pack_lines(const uint8_t* b, int64_t columns, uint32_t* out) const;
  void column_sums(const uint32_t* b, int64_t columns, uint32_t* ones, uint32_t* sums) const;
  bool reads_a() const;  // where it lies
  Areas areas() const;

  ByteProblem bytes_;
  DotIsa isa_;
  bool packed_;
  ByteDotFns fns_;
  ByteShift shift_;
  int64_t groups_;
  size_t scratch_bytes_ = 0;
};

}  // namespace rlx::cpu
