// Annotated dumps of programs at every stage, for people.
//
//   graph @mlp (4 nodes, 1 outputs, 3.1 KB arena)
//     op kinds: Param=1, Input=1, MatMul=1, Activation=1
//
//     %0 [input "x"] = input("x") : [2, 8] f32
//     ...
//     %3 ["act"]     = Gelu(%2) : [2, 8] f32  // hir=h2, "act"  ← output
//     return %3
//
// Ops are shown in their short form (vocabulary.h, op_text). The arena of a graph's header is
// the sum of all values of known size. text.h has the form that can be read back.
#pragma once

#include "rlx/stages/module.h"

namespace rlx {

std::string inspect_hir(const HirModule& hir);
std::string inspect_hir_stats(const HirModule& hir);  // header and counts
std::string inspect_graph(const Graph& g);
std::string inspect_graph_stats(const Graph& g);
std::string inspect_mir(const MirModule& mir);
std::string inspect_mir_stats(const MirModule& mir);
// "  diff: 6 → 4 nodes (1 → 1 outputs)" and, when counts changed, "  op delta: Kind+1, Kind-2".
std::string inspect_graph_diff(const Graph& before, const Graph& after);
std::string inspect_mir_with_diff(const MirModule& mir, const MirModule* before);
std::string inspect_buffer_plan(const LirModule& lir);
std::string inspect_lir(const LirModule& lir);

}  // namespace rlx
