// Graphs as the explanation shows them, and what changed from one to the next. Parts of explain.cc.
#pragma once

#include <nlohmann/json.hpp>

#include "rlx/ir/graph.h"

namespace rlx::explaining {

using Json = nlohmann::ordered_json;

// Nodes by position; bodies inside. Constants beyond a few numbers are not written out.
Json graph_json(const Graph& g);
Json value_json(Value v);  // 3, or "3:1" for a second result
Json types_json(const Types& types);

// Which nodes of `after` are nodes of `before`: the same op with the same attributes and types, of corresponding operands
// (kept), or with something of that changed (rewritten). As counts of op and type, without bodies.
Json changes_json(const Graph& before, const Graph& after);

}  // namespace rlx::explaining
