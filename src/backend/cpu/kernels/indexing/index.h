// Index operands of gather and scatter: any integer dtype, bool, or f32/f64 that hold whole
// numbers.
//
//   Index at(ptr, DType::I64, /*limit=*/vocabulary, flag);
//   int64_t row = at(i);      // in [0, limit), always
//   at.read(0, n, rows);      // n of them, several times as fast
//
// An index outside [0, limit), and a float that is NaN or out of range, is clamped so that nothing
// outside the tensor is touched, and *flag is set to 1; whoever runs the kernel checks the flag.
// Floats truncate towards 0. With limit 0 every index is out of range and the callers skip the
// work.
#pragma once

#include <cstdint>

#include "rlx/ir/dtype.h"

namespace rlx::cpu {

class Index {
 public:
  // flag may be nullptr.
  Index(const void* data, DType dtype, int64_t limit, uint32_t* flag)
      : data_(data), dtype_(dtype), limit_(limit), flag_(flag) {}
  int64_t operator()(int64_t i) const;
  // Those of [first, first + n).
  void read(int64_t first, int64_t n, int64_t* rows) const;

 private:
  const void* data_;
  DType dtype_;
  int64_t limit_;
  uint32_t* flag_;
};

// Calls f(first, n, rows) for runs of the indices of [begin, end), in order.
template <class F>
void for_each_run(const Index& index, int64_t begin, int64_t end, F f) {
  constexpr int64_t kRunOfIndices = 512;
  int64_t rows[kRunOfIndices];
  for (int64_t first = begin; first < end; first += kRunOfIndices) {
    const int64_t n = end - first < kRunOfIndices ? end - first : kRunOfIndices;
    index.read(first, n, rows);
    f(first, n, rows);
  }
}

}  // namespace rlx::cpu
