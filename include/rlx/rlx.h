// RLX: a compiler and runtime for tensor programs.
//
//   #include <rlx/rlx.h>
//   using namespace rlx;
//
//   Graph g = trace("mlp", [](Tracer& t) {                       // write a program ...
//     auto x = t.input("x", {8, 4}), w = t.param("w", {4, 2});
//     return x.matmul(w).tanh();
//   });
//   CompiledGraph f = Session("cpu").compile(g);          // ... compile it ...
//   f.set_param("w", Init(42).xavier_uniform("w", {4, 2}));
//   Tensor y = f.run({{"x", x}})[0];                            // ... and run it
//
// The pages, in the order a program passes through them:
//   graph.h      tensors, shapes and programs as values; their text
//   ops.h        the ops, and how to add one
//   trace.h      writing programs with operators and methods
//   build.h      building programs node by node under established names, and from blocks
//   transform.h  derivatives and batching: programs from programs
//   train.h      losses, optimisers, training steps
//   runtime.h    devices, compiling, running
//   compile.h    the stages of compiling in the open
//   quantise.h   programs in fewer bits
//   opt.h        the optimizer under the names of its documents; what was made of a program
//
// Every call that cannot do what it was asked raises rlx::Error: a kind (whose fault), a stable
// code and a sentence.
#pragma once

#include "rlx/build.h"
#include "rlx/compile.h"
#include "rlx/graph.h"
#include "rlx/ops.h"
#include "rlx/opt.h"
#include "rlx/quantise.h"
#include "rlx/runtime.h"
#include "rlx/trace.h"
#include "rlx/train.h"
#include "rlx/transform.h"
#include "rlx/version.h"
