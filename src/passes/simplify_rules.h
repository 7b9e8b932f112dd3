// The rule sets of simplify, one file per kind of op.
#pragma once

#include "rlx/rewrite/rewrite.h"

namespace rlx {

RuleSet algebra_rules();    // elementwise identities
RuleSet movement_rules();   // transpose, reshape, broadcast, slice, pad, concat, reverse
RuleSet reduction_rules();  // reductions of nothing and of reductions

}  // namespace rlx
