// Region: several nodes that run as one kernel. The one fusion mechanism: a region is an op with a
// body, grown by passes/fuse_regions and lowered by codegen/region_kernel. Its meaning is that of
// its body.
#pragma once

#include "rlx/base/decision.h"
#include "rlx/ir/op.h"

namespace rlx {

enum class RegionKind : uint8_t {
  elementwise,  // every value has the domain's shape
  row,          // reductions over the last axes, elementwise work before, between and after them
  column,       // elementwise work, then reductions over `axes` as results
  split,        // the same to few results, in parts; values per element may be results too
};
inline std::span<const std::string_view> enum_names(RegionKind) {
  static constexpr std::string_view names[] = {"elementwise", "row", "column", "split"};
  return names;
}

struct RegionAttrs {
  Body body;
  RegionKind kind = RegionKind::elementwise;
  Shape domain;  // what the kernel iterates over
  Ints axes;     // the reduced axes of the domain
  static constexpr auto fields() {
    return Fields<&RegionAttrs::body, &RegionAttrs::kind, &RegionAttrs::domain,
                  &RegionAttrs::axes>();
  }
};

// What a kernel of a region takes for granted. It walks over the domain once and has two sorts of values: per
// element, of the domain's shape, and per row, which lack the last `inner` axes or keep them with size 1. In
// parts (also: column regions) reductions are complete only when the walk is over.
struct RegionForm {
  Shape domain;
  size_t inner = 0;
  bool in_parts = false;

  Shape row_shape(bool keepdims) const;
  bool is_row_value(const Shape& shape) const;
};
bool is_region_reduction(const OpDef& op);
// Values that a kernel makes of nothing where it needs them: counting along an axis, and sizes.
bool is_generated_leaf(const Node& n);
inline bool is_region_reduction(const Node& n) { return is_region_reduction(*n.op); }
// Whether a member may read the value of another one. Elementwise operands align at the right, so a value per
// row must keep the reduced axes where a value per element reads it: [R] against [R, R] means a value per column.
Decision may_read(const RegionForm& form, const Node& reader, const Node& read);
// Whether the body is what the attributes say: all that those who make kernels of regions take for granted. Programs at
// the stages hir and mir are free to hold others: passes open them.
Decision region_fits(const RegionAttrs& region);
// Of a program that has been through those passes, with its bodies. Raises "region-form".
void require_regions(const Graph& g);

namespace op {
extern const Op<RegionAttrs> region;
}

extern const Family kRegions;

}  // namespace rlx
