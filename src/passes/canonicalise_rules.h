// The rules of canonicalise that have a file of their own.
#pragma once

#include "rlx/rewrite/rewrite.h"

namespace rlx {

RuleSet split_rules();  // rows that are merged and split again

// Whether the permutation swaps the last two axes and leaves the others.
bool swaps_matrix(const Ints& perm);

}  // namespace rlx
