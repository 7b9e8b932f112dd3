// Copies a strided tensor view into another: transposes, broadcasts, slices, and making dense.
//
//   CopyPlan plan = CopyPlan::make(4, {128, 512}, /*source strides*/ {1, 128},
//                                  /*target strides*/ {512, 1});
//   parallel_for(threads, plan.blocks(), [&](int64_t b, int64_t e) {
//     plan.run(source, target, b, e);
//   });
//
// Elements are moved as bits, so every dtype is served by its size: 1, 2, 4 or 8 bytes. Source
// strides may be 0 (broadcast) or negative; target strides must address each element once. The
// views must not overlap.
//
// Raises (make): internal error when the element size is another one or the ranks differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rlx/backend/cpu/kernels/movement/transpose.h"

namespace rlx::cpu {

class CopyPlan {
 public:
  static CopyPlan make(size_t element_bytes, std::span<const int64_t> dims,
                       std::span<const int64_t> source_strides,
                       std::span<const int64_t> target_strides);

  int64_t blocks() const { return blocks_; }
  // Runs blocks [begin, end); no allocation, thread-safe.
  void run(const void* source, void* target, int64_t begin, int64_t end) const;

 private:
  struct Dim {
    int64_t size, source, target;
  };
  template <typename T>
  void run_blocks(const T* source, T* target, int64_t begin, int64_t end) const;

  size_t element_bytes_ = 0;
  TransposeFn transpose_ = nullptr;
  // The work of a block is a rows x cols rectangle: cols is the dim along which the target is
  // dense, rows the one along which the source is (or the next one out). outer_ are the remaining
  // dims, outermost first.
  std::vector<Dim> outer_;
  Dim rows_{1, 0, 0}, cols_{1, 0, 0};
  int64_t block_rows_ = 1, block_cols_ = 1, blocks_ = 0;
};

}  // namespace rlx::cpu
