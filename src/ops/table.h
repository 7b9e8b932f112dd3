// The table of all ops, and what reads graphs with it.
#pragma once

#include "rlx/ir/graph_bytes.h"
#include "rlx/ir/text.h"

namespace rlx {

// Every op of the language, family by family.
const OpTable& op_table();

// parse() and from_bytes() with that table.
Graph parse(std::string_view text, const TextStore* store = nullptr);
Graph from_bytes(std::string_view bytes, const std::string& what = "graph");

}  // namespace rlx
