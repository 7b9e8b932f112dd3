// RegionSchedule: how a target wants regions to be grown and cut. Sizes and numbers only, so that results depend on it and on
// the program, never on who runs it or how many do. The defaults are those of a CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace rlx {

struct RegionSchedule {
  // Growing (passes/fuse_regions).
  size_t nodes = 96;     // of a region, at most: keeps compile time per kernel bounded
  size_t operands = 24;  // tensors that a region reads, at most
  // Reductions of fewer elements stay in one step. Of the others those run in parts, which a second step combines, that have
  // fewer than few_rows results over the last axes, or over others no more than few_columns, or at least many_rows elements
  // a result.
  int64_t split_elements = 1 << 15;
  int64_t few_rows = 8, few_columns = 32;
  int64_t many_rows = std::numeric_limits<int64_t>::max();
  // Products whose rows regions follow tile by tile have at most so many columns, and tiles of so many rows. Those of one
  // value with several weights are joined no wider (passes/join_products).
  int64_t product_columns = 1024, product_rows = 128;

  // Cutting (codegen/region_kernel).
  int64_t tile = 4096;               // elements of a block when the domain is one run
  int64_t rows_per_block = 1;        // of a row region
  int64_t columns = 128;             // of a block of a column region
  int64_t part = 1 << 14;            // elements of a block of a split region, about
  int64_t part_align = 64;           // elements: whole steps of a loop over vectors
  int stage_cost = 4;                // values cheaper than this are recomputed
  int64_t stage_bytes = 192 * 1024;  // of scratch rows in a block

  bool operator==(const RegionSchedule&) const = default;
};

}  // namespace rlx
