// HIR and LIR modules as JSON.
//
//   {"format": "rlx.hir", "version": 2, "name": "ffn", "fusion_policy": "Direct", "outputs": [4],
//    "nodes": [{"id": 0, "op": {"Input": {"name": "x"}}, "inputs": [], "shape": "[4, 8] f32", "name": ""},
//              {"id": 4, "op": "SwiGLU", "inputs": [0, 1, 2, 3], ...}],
//    "constants": {}}
//
// Blocks are tagged by their kind, with their fields; single ops (`Mir`) and graphs are in their text form, which
// reads back exactly. A second result is "3:1"; "updates" ({"w": 7}) stands where there are some. Floats keep every bit. Constants above 1 KiB stand once under their hash, in base64.
//
// What is read is built anew through the builders, so it is checked like any module: raises Error(data,
// "json") for text that is no JSON or lacks fields, "json-format" for another format or a later version of the language (ir/text.h), and what
// the builders raise.
#pragma once

#include "rlx/stages/module.h"

namespace rlx {

// Whichever of the two the text says it is.
GraphModule module_from_json(std::string_view text);

std::string hir_to_json(const HirModule& hir);
HirModule hir_from_json(std::string_view text);

// The graph, and the plan as a record for readers: kernels are not stored, so a module that is read has
// a plan only when a target is given, which makes it again.
std::string lir_to_json(const LirModule& lir);
LirModule lir_from_json(std::string_view text, Target* target = nullptr);

}  // namespace rlx
