// Symbols that a program takes for one size.
//
//   x [?n] + y [?m]        equal_symbols: {"n": "m"}
//
// A program has no meaning for sizes at which they differ, but for those where one is 1 and broadcasts. With one name for
// them more is seen to be alike: what may be fused, and which results are the same.
#pragma once

#include "rlx/ir/graph.h"

namespace rlx {

// Found by asking the ops' inference for sizes: symbols are one where a node takes no sizes that tell them apart. Each symbol
// that goes, and the one that stays, the first of them by name.
SymbolNames equal_symbols(const Graph& g);

// The program with other names for its symbols, in bodies too; everything is inferred anew.
Graph rename_symbols(const Graph& g, const SymbolNames& names);

}  // namespace rlx
