// Lowers a region (ops/region.h) on given views to the loop-level kernel form.
//
// elementwise: rows x columns, the columns vectorised; a domain that is one run of memory is cut
//              into tiles.
// row:         one block per row, or a few; one pass over the row for each level of reductions. Values that
//              a later pass needs again are recomputed when cheap, else staged in a scratch row.
// column:      one block per tile of kept columns, vectorised; the reduced axes are loops inside.
// split:       one block per part of the longest reduced axis. In the place of each result that is
//              a reduction the kernel leaves [parts, results] partial results in the
//              accumulator's dtype, of which `combine` makes it.
#pragma once

#include "rlx/codegen/kernel.h"
#include "rlx/lower/lir.h"
#include "rlx/ops/region_schedule.h"

namespace rlx::codegen {

struct RegionKernel {
  Kernel kernel;  // buffers: operands in order, then results
  Ints sizes;     // the ABI's words: sizes, then scalar arguments
  int64_t blocks = 0;
  int64_t elements = 0;  // of the domain
  double flops = 0;
  int64_t rows = 0, rows_per_block = 0;         // see StepKernel::rows
  std::vector<std::optional<BlockSpan>> spans;  // [operands, then results]
  std::vector<std::vector<bool>> may_share;     // [operand][result]
  // split: the results that are reductions, what is left in their places, and the kernel from
  // those to them.
  std::vector<size_t> reductions;
  Types partials;
  std::shared_ptr<RegionKernel> combine;
};

RegionKernel lower_region(const Node& region, std::span<const View> in, std::span<const View> out,
                          const RegionSchedule& schedule = {});

}  // namespace rlx::codegen
