// The optimizer's face: compiling as an object, and what it did.
//
//   opt::CompilePipeline pipeline(backend_for("cpu"));
//   opt::CompileResult r = pipeline.compile_graph(graph);        // LIR, with what fused and what each pass did
//   Explanation e = explain(graph, "cpu");                       // all of it: e.json(), e.html()
#pragma once

#include "rlx/compile/pipeline.h"
#include "rlx/explain/explain.h"
#include "rlx/explain/trace.h"
