// Rematerialisation of a whole program within a budget: values that are read long after they were computed are computed
// again where they are read, so that the program's values never take more than so many bytes at once.
//
//   Rematerialised r = rematerialise(optimised, 64 << 20, {.schedule = target.schedule()});
//   r.graph, r.peak, r.recomputed;
//
// A program is cut in two where most is kept: what comes before is 'forward', what comes behind is 'backward', whatever it
// is that made it so. For each value of the first part that the second one needs there are three fates: it is kept; it is
// computed again, from what is kept or itself computed again; or nobody needs it. Keeping costs its bytes at some price,
// computing it again costs its operations, and a minimum cut over both parts together finds the cheapest fates of all at
// once. What is computed again lives from its first reader to its last, so the forward part is also cut into segments over
// whose borders nothing but kept values is read: then one segment's values are there at a time. Segments and price are
// searched for; of all that stays within the budget, what computes least wins.
//
// Whether a candidate stays within it is asked of the fused program (live_bytes.h). A pure program, so every node may be
// computed again, and gives the same bits: the nodes are copies, which begin at a `barrier` (ops/control/checkpoint.h).
//
// Raises Error(user, "memory-budget"): the budget is not positive, or sizes are not known. Where it cannot be met, the
// answer is the program that takes least; the pass of this name raises then, too, and says how much that is.
#pragma once

#include "rlx/passes/fuse_regions.h"

namespace rlx {

struct Rematerialised {
  Graph graph;
  bool fits = false;        // the budget is met
  int64_t peak = 0;         // of the fused program, by LiveBytes
  int64_t peak_before = 0;  // the same of the program as it was
  double recomputed = 0;    // scalar operations that are done twice, about
};

Rematerialised rematerialise(const Graph& g, int64_t budget, const FusionOptions& fusion);

}  // namespace rlx
