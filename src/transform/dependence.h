// Which results of a program depend on some of its leaves. Bodies of control flow are looked into: a scan that carries two
// values of which one moves does not make the other depend on what moves.
#pragma once

#include <vector>

#include "rlx/ir/graph.h"

namespace rlx {

using ResultFlags = std::vector<std::vector<bool>>;  // of each node, of each result

// `on` says of the leaves which are meant.
ResultFlags dependence(const Graph& g, FunctionRef<bool(const Node& leaf)> on);

}  // namespace rlx
