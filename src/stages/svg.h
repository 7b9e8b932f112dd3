// A drawing of a graph: its blocks are boxes, and what a block was lowered to stands in an outline with its label.
//
//   write_file("model.svg", to_svg(g));
//
// Programs run downwards. A parameter or constant that one node reads is a line of that node's box; others, inputs and
// outputs have boxes of their own. Elements carry classes (input, param, constant, block, op, group, output) and nodes
// their ids (n3 for %3), so that a page can style and find them.
#pragma once

#include "rlx/ir/graph.h"

namespace rlx {

std::string to_svg(const Graph& g);

}  // namespace rlx
