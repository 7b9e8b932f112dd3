// A memory plan as a drawing: a bar for each slot, along the arena.
#pragma once

#include "rlx/lower/graph_plan.h"

namespace rlx::opt::svg {

// Text of an SVG file, about 800 pixels wide: a row for each slot, by offset, size and node.
std::string render(const MemoryPlan& plan);

}  // namespace rlx::opt::svg
