// What a compilation is asked for.
#pragma once

#include <string>

#include "rlx/ir/graph.h"
#include "rlx/ops/region_schedule.h"
#include "rlx/transform/precision.h"

namespace rlx {

struct CompileOptions {
  int threads = 0;         // 0: all of the machine
  DimBinding dims;         // sizes of symbolic dims; those that are not said arrive with the inputs
  SizeHints hints;         // what is known of those; never needed (ir/size_hint.h)
  bool fast_math = false;  // allow algebra that changes values (x + 0, x * 0, reassociation)
  // What is computed in 16 bits (transform/precision.h): applied to programs of the stages hir and mir, after recognition
  // where there are passes. Inputs, parameters, outputs and updates keep their dtypes.
  PrecisionPolicy precision;
  bool fuse = true;
  // Bytes that the values of a run may take at once, parameters, inputs and outputs apart: what does not fit is
  // computed again where it is read (passes/rematerialise.h). 0: as many as there are.
  int64_t memory_budget = 0;
  // Inputs, by their index, that are given away: a run may write over them, and outputs of as many bytes lie in their memory
  // where the plan allows it (CompiledGraph::donors). For steps whose state comes in and goes out.
  std::vector<size_t> donate;
  bool verify = verify_by_default();       // between passes
  bool cache = true;                       // keep generated code on disk (docs/runtime.md)
  int vector_bits = 0;                     // 0: the widest this CPU has
  bool poison = false;                     // fill fresh and freed memory with NaN patterns (tests)
  std::optional<RegionSchedule> schedule;  // instead of the target's own: for tests, and for tuning
  std::string dump_dir;  // not empty: IR after each pass, kernels as IR and assembly

  // In builds with assertions, and where RLX_VERIFY=1 is set.
  static bool verify_by_default();
};

}  // namespace rlx
