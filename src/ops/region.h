// Region: several nodes that run as one kernel. The one fusion mechanism: a region is an op with a
// body, grown by passes/fuse_regions and lowered by codegen/region_kernel. Its meaning is that of
// its body.
#pragma once

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

namespace op {
extern const Op<RegionAttrs> region;
}

extern const Family kRegions;

}  // namespace rlx
