// Data movement: elements are moved, never changed; every dtype (scatter_add, which sums: every
// number).
//
//   Value row = op::slice(b, x, {.start = {i, 0}, .limit = {i + 1, 64}});
//   Value y = op::gather(b, table, ids, {.axis = 0});                    // embedding lookup
//
// Indices are of any integer dtype, or f32/f64 that are truncated; one outside the axis raises
// Error(user, "index-range") when the program runs. Sizes that depend on symbols are checked when
// the symbols are bound.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

struct ShapeAttrs {  // broadcast, reshape
  Shape shape;
  static constexpr auto fields() { return Fields<&ShapeAttrs::shape>(); }
};
struct TransposeAttrs {
  Ints perm;
  static constexpr auto fields() { return Fields<&TransposeAttrs::perm>(); }
};
struct SliceAttrs {  // result[i] = x[start + i * stride], below limit; empty lists mean 0, "to the
                     // end" and 1
  Shape start, limit;
  Ints stride;
  static constexpr auto fields() {
    return Fields<&SliceAttrs::start, &SliceAttrs::limit, &SliceAttrs::stride>();
  }
};
struct AxisAttrs {  // concat, gather
  int64_t axis = 0;
  static constexpr auto fields() { return Fields<&AxisAttrs::axis>(); }
};
struct PadAttrs {  // result[i] = x[i - low] or the value; negative amounts crop; empty lists mean 0
  Shape low, high;
  static constexpr auto fields() { return Fields<&PadAttrs::low, &PadAttrs::high>(); }
};
struct ScatterAttrs {  // of the result: its axis and that axis' size
  int64_t axis = 0;
  Dim size = 0;
  static constexpr auto fields() { return Fields<&ScatterAttrs::axis, &ScatterAttrs::size>(); }
};
struct ReverseAttrs {
  Ints axes;
  static constexpr auto fields() { return Fields<&ReverseAttrs::axes>(); }
};
struct DimSizeAttrs {
  Dim size;
  DType dtype = DType::I64;
  static constexpr auto fields() { return Fields<&DimSizeAttrs::size, &DimSizeAttrs::dtype>(); }
};
struct IotaAttrs {
  DType dtype = DType::I64;
  Shape shape;
  int64_t axis = 0;
  static constexpr auto fields() {
    return Fields<&IotaAttrs::dtype, &IotaAttrs::shape, &IotaAttrs::axis>();
  }
};

namespace op {
extern const Op<ShapeAttrs> broadcast;      // NumPy: right-aligned, size-1 dims repeat
extern const Op<ShapeAttrs> reshape;        // one dim may be -1
extern const Op<TransposeAttrs> transpose;  // result dim d is x dim perm[d]
extern const Op<SliceAttrs> slice;
extern const Op<AxisAttrs> concat;
extern const Op<PadAttrs> pad;      // x, value (rank 0)
extern const Op<AxisAttrs> gather;  // x, indices: result[o.., i.., t..] = x[o.., indices[i..], t..]
extern const Op<ScatterAttrs>
    scatter_add;  // updates, indices: the transpose of gather; duplicates accumulate
extern const Op<ReverseAttrs> reverse;
extern const Op<IotaAttrs> iota;
extern const Op<DimSizeAttrs> dim_size;
}  // namespace op

extern const Family kMovement;

}  // namespace rlx
