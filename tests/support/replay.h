// Programs of the kinds that people run, whose kernels and memory plans are kept as text
// (tests/replay): what a change of the compiler changes shows as a diff.
//
//   for (const ReplayProgram& p : replay_programs()) stage_text(p.graph, Stage::plan);
#pragma once

#include "rlx/ir/graph.h"

namespace rlx::testing {

struct ReplayProgram {
  std::string name, about;
  Graph graph;
};

std::vector<ReplayProgram> replay_programs();

}  // namespace rlx::testing
