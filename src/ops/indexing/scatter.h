// Indexing by tensors: windows that begin where an operand says, gather and scatter along axes and
// in n dimensions, one-hot vectors.
//
//   Value y = op::take_along_axis(b, x, op::argsort(b, x), {.axis = -1});     // sorted x
//   Value z = op::scatter(b, x, rows, updates, {.axis = 0, .mode = ScatterMode::add});
//   Value w = op::dynamic_update_slice(b, cache, row, starts);                // in place where it can
//
// Indices are of any integer dtype, or f32/f64 that are truncated; one outside its axis raises
// Error(user, "index-range") when the program runs, except in dynamic slices (clamped, like JAX's)
// and one_hot (a row of zeros). Wrong operands raise "index-dtype", "scatter-shape",
// "scatter-dtype", "gather-shape", "slice-range", "dtype-mixed", "axis-range", "negative-dim".
//
// A scatter with several updates for one place is deterministic: `set` keeps the last of them, the
// other modes combine all in order. f16 and bf16 are combined in f32 or wider and rounded once;
// min and max propagate NaN and share the gradient evenly between equals.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

enum class ScatterMode : uint8_t { set, add, mul, min, max };
inline std::span<const std::string_view> enum_names(ScatterMode) {
  static constexpr std::string_view names[] = {"set", "add", "mul", "min", "max"};
  return names;
}

struct ScatterIntoAttrs {  // scatter, scatter_elements
  int64_t axis = 0;
  ScatterMode mode = ScatterMode::set;
  static constexpr auto fields() {
    return Fields<&ScatterIntoAttrs::axis, &ScatterIntoAttrs::mode>();
  }
};
struct ScatterNdAttrs {
  ScatterMode mode = ScatterMode::set;
  static constexpr auto fields() { return Fields<&ScatterNdAttrs::mode>(); }
};
struct GatherNdAttrs {
  int64_t batch_dims = 0;
  static constexpr auto fields() { return Fields<&GatherNdAttrs::batch_dims>(); }
};
struct TakeAttrs {
  int64_t axis = -1;
  static constexpr auto fields() { return Fields<&TakeAttrs::axis>(); }
};
struct WindowAttrs {
  Shape sizes;
  static constexpr auto fields() { return Fields<&WindowAttrs::sizes>(); }
};
struct OneHotAttrs {
  Dim depth = 0;
  int64_t axis = -1;  // of the result
  DType dtype = DType::F32;
  static constexpr auto fields() {
    return Fields<&OneHotAttrs::depth, &OneHotAttrs::axis, &OneHotAttrs::dtype>();
  }
};

namespace op {
// x, indices [i..], updates [o.., i.., t..]: at [o.., indices[i..], t..] of x [o.., axis, t..]
extern const Op<ScatterIntoAttrs> scatter;
// x, indices, updates of one rank, the last two of one shape (ONNX ScatterElements)
extern const Op<ScatterIntoAttrs> scatter_elements;
// x [s.., t..], indices [i.., r], updates [i.., t..]; r axes s (ONNX ScatterND)
extern const Op<ScatterNdAttrs> scatter_nd;
extern const Op<GatherNdAttrs> gather_nd;    // x [B.., s.., t..], indices [B.., i.., r]
extern const Op<TakeAttrs> take_along_axis;  // x, indices of one rank (ONNX GatherElements)
extern const Op<WindowAttrs> dynamic_slice;  // x, starts [rank]
extern const Op<> dynamic_update_slice;      // x, update, starts [rank]
extern const Op<OneHotAttrs> one_hot;        // indices
}  // namespace op

extern const Family kScatter;

}  // namespace rlx
