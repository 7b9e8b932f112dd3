// Composites that arrange elements: joining and splitting, adding and removing axes, repeating,
// rolling, diagonals and triangles, padding by reflection, blocks of space to channels; and tensors
// without operands.
//
//   Values parts = b.emit(op::split.def, SplitAttrs{.axis = 1, .sizes = {2, 3}}, Values{x});
//   Value mask = op::tril(b, ones);
//   Value t = op::arange(b, {}, {.stop = 10, .step = 2});
//
// Wrong attributes raise "axis-range", "axis-repeated", "split-sizes", "squeeze-size",
// "repeat-count", "shape-symbolic" (a size must be known), "pad-amount", "block-size",
// "meshgrid-rank", "fill-range", "broadcast", "dtype", "dtype-mixed".
#pragma once

#include "rlx/ops/movement/movement.h"

namespace rlx {

struct SplitAttrs {
  int64_t axis = 0;
  Shape sizes;  // of the parts; they add up to the axis
  static constexpr auto fields() { return Fields<&SplitAttrs::axis, &SplitAttrs::sizes>(); }
};
struct AxesAttrs {
  Ints axes;
  static constexpr auto fields() { return Fields<&AxesAttrs::axes>(); }
};
struct FlattenAttrs {  // axes [start, end] become one
  int64_t start = 0, end = -1;
  static constexpr auto fields() { return Fields<&FlattenAttrs::start, &FlattenAttrs::end>(); }
};
struct TileAttrs {
  Ints repeats;
  static constexpr auto fields() { return Fields<&TileAttrs::repeats>(); }
};
struct RepeatAttrs {
  int64_t repeats = 1, axis = 0;
  static constexpr auto fields() { return Fields<&RepeatAttrs::repeats, &RepeatAttrs::axis>(); }
};
struct RollAttrs {
  Ints shifts, axes;
  static constexpr auto fields() { return Fields<&RollAttrs::shifts, &RollAttrs::axes>(); }
};
struct SwapAttrs {
  int64_t axis1 = 0, axis2 = 1;
  static constexpr auto fields() { return Fields<&SwapAttrs::axis1, &SwapAttrs::axis2>(); }
};
struct MoveAttrs {
  Ints source, destination;
  static constexpr auto fields() { return Fields<&MoveAttrs::source, &MoveAttrs::destination>(); }
};
struct TriangleAttrs {
  int64_t k = 0;  // the diagonal up to (from) which elements stay; above the main one if positive
  static constexpr auto fields() { return Fields<&TriangleAttrs::k>(); }
};
struct DiagonalAttrs {
  int64_t offset = 0, axis1 = 0, axis2 = 1;
  static constexpr auto fields() {
    return Fields<&DiagonalAttrs::offset, &DiagonalAttrs::axis1, &DiagonalAttrs::axis2>();
  }
};
struct DiagAttrs {
  int64_t offset = 0;
  static constexpr auto fields() { return Fields<&DiagAttrs::offset>(); }
};
enum class PadMode : uint8_t { edge, reflect, symmetric, wrap };
inline std::span<const std::string_view> enum_names(PadMode) {
  static constexpr std::string_view names[] = {"edge", "reflect", "symmetric", "wrap"};
  return names;
}
struct PadModeAttrs {
  Ints low, high;
  PadMode mode = PadMode::edge;
  static constexpr auto fields() {
    return Fields<&PadModeAttrs::low, &PadModeAttrs::high, &PadModeAttrs::mode>();
  }
};
struct MeshgridAttrs {
  bool xy = true;  // NumPy's default: the first two axes swapped
  static constexpr auto fields() { return Fields<&MeshgridAttrs::xy>(); }
};
struct BlockAttrs {
  int64_t block = 1;
  bool crd = false;  // channels before the block's place (ONNX CRD) rather than behind it (DCR)
  static constexpr auto fields() { return Fields<&BlockAttrs::block, &BlockAttrs::crd>(); }
};
struct BroadcastInDimAttrs {
  Shape shape;
  Ints dims;  // where each axis of x lies in the result
  static constexpr auto fields() {
    return Fields<&BroadcastInDimAttrs::shape, &BroadcastInDimAttrs::dims>();
  }
};
struct FullAttrs {
  Shape shape;
  double value = 0;
  DType dtype = DType::F32;
  static constexpr auto fields() {
    return Fields<&FullAttrs::shape, &FullAttrs::value, &FullAttrs::dtype>();
  }
};
struct EyeAttrs {
  Dim rows = 0, columns = 0;
  int64_t k = 0;
  DType dtype = DType::F32;
  static constexpr auto fields() {
    return Fields<&EyeAttrs::rows, &EyeAttrs::columns, &EyeAttrs::k, &EyeAttrs::dtype>();
  }
};
struct ArangeAttrs {
  double start = 0, stop = 0, step = 1;
  DType dtype = DType::I64;
  static constexpr auto fields() {
    return Fields<&ArangeAttrs::start, &ArangeAttrs::stop, &ArangeAttrs::step,
                  &ArangeAttrs::dtype>();
  }
};
struct LinspaceAttrs {
  double start = 0, stop = 1;
  int64_t count = 50;
  bool endpoint = true;
  DType dtype = DType::F32;
  static constexpr auto fields() {
    return Fields<&LinspaceAttrs::start, &LinspaceAttrs::stop, &LinspaceAttrs::count,
                  &LinspaceAttrs::endpoint, &LinspaceAttrs::dtype>();
  }
};

namespace op {
extern const Op<AxisAttrs> stack, unstack;
extern const Op<SplitAttrs> split;
extern const Op<AxesAttrs> squeeze, expand_dims;
extern const Op<FlattenAttrs> flatten;
extern const Op<TileAttrs> tile;
extern const Op<RepeatAttrs> repeat;
extern const Op<RollAttrs> roll;
extern const Op<SwapAttrs> swap_axes;
extern const Op<MoveAttrs> move_axis;
extern const Op<BroadcastInDimAttrs> broadcast_in_dim;
extern const Op<MeshgridAttrs> meshgrid;
extern const Op<BlockAttrs> space_to_depth, depth_to_space;  // x [N, C, H, W]
extern const Op<PadModeAttrs> pad_mode;
extern const Op<TriangleAttrs> tril, triu;
extern const Op<DiagonalAttrs> diagonal;
extern const Op<DiagAttrs> diag_embed;
extern const Op<> masked_fill;  // x, mask, value (rank 0)
extern const Op<FullAttrs> full;
extern const Op<EyeAttrs> eye;
extern const Op<ArangeAttrs> arange;
extern const Op<LinspaceAttrs> linspace;
}  // namespace op

extern const Family kShaping;

}  // namespace rlx
