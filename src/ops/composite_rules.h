// For composites whose result types follow from their decomposition.
#pragma once

#include "rlx/ops/rules.h"

namespace rlx {

// The types that the decomposition gives for these operands. The rule must not look at the node's
// results. What its nodes raise is raised under this op's name; check before what they would not
// say in the words of this op.
Types infer_decomposed(const InferArgs& a);

}  // namespace rlx
