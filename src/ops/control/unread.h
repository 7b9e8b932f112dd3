// Loops and choices without what nobody reads of them.
//
//   Graph h = drop_unread(std::move(g));
//
// A scan loses stacked results that nobody reads, carries that nothing read depends on, and operands that its body does
// not read then; a while_loop and a cond likewise; and so on towards the first node. Steps and their order stay. Inputs and
// parameters stay in the signature, other dead nodes go.
#pragma once

#include "rlx/ir/graph.h"

namespace rlx {

// in_bodies: of the loops in bodies too; false for who has seen to these.
Graph drop_unread(Graph g, bool in_bodies = true);

}  // namespace rlx
