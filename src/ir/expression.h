// When two nodes of a graph compute the same.
#pragma once

#include "rlx/ir/graph.h"

namespace rlx {

// Every op is pure: random numbers are functions of a key. Only leaves with a name are themselves.
bool is_expression(const Node& n);
// The same number for nodes that are the same expression; operands of commutative ops in any order.
uint64_t expression_key(const Node& n);
bool same_expression(const Node& a, const Node& b);

}  // namespace rlx
