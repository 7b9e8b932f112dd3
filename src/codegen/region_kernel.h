// Lowers a region (ops/region.h) to the loop-level kernel form.
//
// elementwise: rows x columns, the columns vectorised; a domain that is one run of memory is cut
//              into tiles.
// row:         one block per row, or a few; one pass over the row for each level of reductions. Values that
//              a later pass needs again are recomputed when cheap, else staged in a scratch row.
// column:      one block per tile of kept columns, vectorised; the reduced axes are loops inside.
// split:       one block per part of the longest reduced axis. In the place of each result that is
//              a reduction the kernel leaves [parts, results] partial results in the
//              accumulator's dtype, of which `combine` makes it.
//
// Sizes that are symbols are arguments of the code, and so are the strides that follow from them; sizes that are
// constant stay constants. How the work is cut depends on the sizes alone, whether they were known before or not.
#pragma once

#include "rlx/codegen/amount.h"
#include "rlx/codegen/kernel.h"
#include "rlx/ir/size_questions.h"
#include "rlx/lower/layout.h"
#include "rlx/ops/region_schedule.h"

namespace rlx::codegen {

// A region's kernel for certain sizes.
struct RegionKernel {
  std::shared_ptr<const Kernel> kernel;  // buffers: operands in order, then results
  Ints sizes;                            // the ABI's words: sizes, then scalar arguments
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
  std::shared_ptr<const RegionKernel> combine;
};

// The same for all sizes for which the questions that were asked on the way have the same answers.
struct RegionCode {
  std::shared_ptr<const Kernel> kernel;
  std::vector<Amount> words;
  Amount blocks;
  Dim elements;
  int64_t operations = 0;  // of an element
  Dim row;                 // elements of the domain
  Amount block;            // elements of a block, where it is a run of them; 0: it is none
  std::vector<BufferId> buffers;
  std::vector<std::vector<bool>> alike;  // [operand][result]: dense and as large as it
  std::vector<size_t> reductions;
  std::vector<DType> partials;  // [blocks, results] each
  Dim results;
  std::shared_ptr<const RegionCode> combine;

  RegionKernel at(const DimBinding& sizes) const;
};

RegionCode lower_region(const Node& region, std::span<const Layout> in, std::span<const Layout> out,
                        const RegionSchedule& schedule, SizeQuestions& questions);
// For sizes that are known.
RegionKernel lower_region(const Node& region, std::span<const View> in, std::span<const View> out,
                          const RegionSchedule& schedule = {});

}  // namespace rlx::codegen
