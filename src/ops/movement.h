// Data movement: elements are moved, never changed; every dtype.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

struct ShapeAttrs {  // broadcast, reshape
  Shape shape;
  static constexpr auto fields() { return std::tuple{field("shape", &ShapeAttrs::shape)}; }
};
struct TransposeAttrs {
  Ints perm;
  static constexpr auto fields() { return std::tuple{field("perm", &TransposeAttrs::perm)}; }
};
struct SliceAttrs {  // result[i] = x[start + i * stride], below limit; empty limit and stride mean "to the end" and 1
  Ints start;
  Shape limit;
  Ints stride;
  static constexpr auto fields() {
    return std::tuple{field("start", &SliceAttrs::start), field("limit", &SliceAttrs::limit),
                      field("stride", &SliceAttrs::stride)};
  }
};
struct AxisAttrs {  // concat, gather
  int64_t axis = 0;
  static constexpr auto fields() { return std::tuple{field("axis", &AxisAttrs::axis)}; }
};
struct PadAttrs {  // negative amounts crop
  Ints low, high;
  static constexpr auto fields() { return std::tuple{field("low", &PadAttrs::low), field("high", &PadAttrs::high)}; }
};
struct ScatterAttrs {
  int64_t axis = 0;
  Dim size = 0;
  static constexpr auto fields() {
    return std::tuple{field("axis", &ScatterAttrs::axis), field("size", &ScatterAttrs::size)};
  }
};
struct ReverseAttrs {
  Ints axes;
  static constexpr auto fields() { return std::tuple{field("axes", &ReverseAttrs::axes)}; }
};
struct IotaAttrs {
  DType dtype = DType::I64;
  Shape shape;
  int64_t axis = 0;
  static constexpr auto fields() {
    return std::tuple{field("dtype", &IotaAttrs::dtype), field("shape", &IotaAttrs::shape), field("axis", &IotaAttrs::axis)};
  }
};

namespace op {
extern const Op<ShapeAttrs> broadcast;      // NumPy: right-aligned, size-1 dims repeat
extern const Op<ShapeAttrs> reshape;        // one dim may be -1
extern const Op<TransposeAttrs> transpose;  // result dim d is x dim perm[d]
extern const Op<SliceAttrs> slice;
extern const Op<AxisAttrs> concat;
extern const Op<PadAttrs> pad;              // x, value (rank 0)
extern const Op<AxisAttrs> gather;          // x, indices: result[o.., i.., t..] = x[o.., indices[i..], t..]
extern const Op<ScatterAttrs> scatter_add;  // updates, indices: the transpose of gather; duplicates accumulate
extern const Op<ReverseAttrs> reverse;
extern const Op<IotaAttrs> iota;
}  // namespace op

extern const Family kMovement;

}  // namespace rlx
