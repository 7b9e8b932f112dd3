// What ops that go by index share (indexing.cc, scatter.cc, sorting.cc).
#pragma once

#include "rlx/ops/rules.h"

namespace rlx {

inline constexpr DTypeSet kIndexTypes = kInts | DTypeSet{DType::F32, DType::F64};

// Raises "index-dtype" unless operand i can be indices.
void require_indices(const InferArgs& a, size_t i = 1);

// All indices of operand i, truncated and checked against [0, size): "index-range".
Ints read_indices(const EvalArgs& e, size_t i, int64_t size);

// The shape with `width` axes from `axis` on replaced by others.
Shape replace_axes(const Shape& shape, int64_t axis, int64_t width, const Shape& by);

// Tensors around the indexed axis as [outer, axis, inner]; indices take the place of `width` axes.
struct Split {
  int64_t outer = 1, inner = 1;
  Split(const Ints& sizes, int64_t axis, int64_t width);
};

// One coordinate of a position: indices of any index dtype into `size` places.
struct Coordinate {
  Value index;
  Dim size;
  bool in_range = false;  // known to be so, as an iota is
};
// The row-major position (i64) of broadcast coordinates, the slowest first. It is -1 where one is
// out of its own range, so that whoever uses it raises "index-range".
Value position_of(Builder& b, std::span<const Coordinate> coordinates);
// 0, 1, .. along one axis of a tensor of `rank` axes that has size 1 along the others.
Coordinate counter(Builder& b, const Dim& size, int64_t axis, int64_t rank);

// Indices [B, *] into B tensors of `size` rows each, as indices into the B * size rows of all.
Value flat_indices(Builder& b, Value indices, const Dim& batch, const Dim& size);
// [a, c, *] -> [a * c, *]
Value merge_front(Builder& b, Value x);
// x as one row of all its elements.
Value flatten_all(Builder& b, Value x);

}  // namespace rlx
