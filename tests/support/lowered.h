// A graph lowered for the CPU as compiling does it, with each stage in the open.
//
//   const Lowered l = lower_for_cpu(graph);
//   for (const Step& s : l.program.steps) s.kernel->name();
//   std::cout << stage_text(graph, Stage::plan);
#pragma once

#include "rlx/backend/cpu/target.h"
#include "rlx/lower/lower.h"

namespace rlx::testing {

struct Lowered {
  std::shared_ptr<cpu::CpuTarget> target;  // owns the generated code
  Graph fused;
  Program program;
};

// Without code: kernels answer questions but cannot run until target->finish().
Lowered lower_for_cpu(const Graph& g, int vector_bits = 0, const Donated& donated = {});

// What a stage of compiling makes of a graph, as text that is the same on every machine: for vectors
// of 256 bits.
//   fuse    the graph after all passes, with its regions
//   lower   the steps: kernels on views of buffers, which of them run tile by tile
//   plan    where each buffer lies in the arena, and from which step to which
//   kernel  the generated kernels, each distinct one once
enum class Stage : uint8_t { fuse, lower, plan, kernel };
inline constexpr std::array<std::string_view, 4> kStages{"fuse", "lower", "plan", "kernel"};
std::string stage_text(const Lowered& l, Stage stage);
std::string stage_text(const Graph& g, Stage stage);

// What is wrong with a memory plan, judged without the planner's and the verifier's help: no two buffers that are
// alive at once may have a byte in common, unless one of them is made in the memory of the other where
// that one is read for the last time. An output that lies in a donated input is begun when that one is no longer read, and
// is the only one there. Empty when all is well.
std::string plan_faults(const Program& p);

}  // namespace rlx::testing
