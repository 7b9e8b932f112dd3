// From a program at any stage to what runs it, with every stage in the open.
//
//   const auto backend = backend_for("cpu");
//   GraphModule lir = lower_to(CompileStage::lir, graph, *backend);    // kernels over planned memory
//   std::string text = to_string(lir.as_lir()->plan());                // what it will do
//   CompiledGraph f = Session("cpu").compile(lir);               // with that plan
//
// A program with symbolic sizes is bound on the way (CompileOptions::dims), or earlier by specialize_lir.
#pragma once

#include "rlx/compile/compile.h"
#include "rlx/passes/auto_mixed_precision.h"
#include "rlx/stages/inspect.h"
#include "rlx/stages/json.h"
