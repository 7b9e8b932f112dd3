// Devices, compiling, running.
//
//   Session session("cpu");
//   CompiledGraph f = session.compile(graph);
//   f.set_param("w", w);
//   std::vector<Tensor> y = f.run({{"x", x}});   // by name
//
//   f.set_input("x", x);                         // or once, and then
//   f.run();                                     // allocates nothing, looks up nothing, takes no lock
//   f.output_tensor(0);
//
// Results do not depend on the number of threads, bit for bit. A CompiledGraph belongs to one
// thread at a time (a second call meanwhile is Error(user, "running")); clone() makes one for another
// thread that shares code and constant parameters.
// f.info() tells what fused, what was planned and how long it took. ProgramPool hands clones to threads, ProgramCache keeps
// programs by graph and device.
#pragma once

#include "rlx/runtime/extend.h"
#include "rlx/runtime/program_cache.h"
#include "rlx/runtime/program_pool.h"
#include "rlx/runtime/runtime.h"
