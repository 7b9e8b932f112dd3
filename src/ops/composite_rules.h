// For composites whose result types follow from their decomposition.
#pragma once

#include "rlx/ops/rules.h"

namespace rlx {

// The types that the decomposition gives for these operands. The rule must not look at the node's
// results, and whatever a user can get wrong must be checked before.
Types infer_decomposed(const InferArgs& a);

}  // namespace rlx
