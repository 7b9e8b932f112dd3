// Index operands of gather and scatter: any integer dtype, bool, or f32/f64 that hold whole
// numbers.
//
//   Index at(ptr, DType::I64, /*limit=*/vocabulary, flag);
//   int64_t row = at(i);      // in [0, limit), always
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

 private:
  const void* data_;
  DType dtype_;
  int64_t limit_;
  uint32_t* flag_;
};

}  // namespace rlx::cpu
