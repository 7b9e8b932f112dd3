// A graph lowered for the CPU as compiling does it, with the program in the open.
//
//   const Lowered l = lower_for_cpu(graph);
//   for (const Step& s : l.program.steps) s.kernel->name();
#pragma once

#include "rlx/backend/cpu/target.h"
#include "rlx/lower/lower.h"
#include "rlx/ops/core.h"
#include "rlx/passes/fuse_regions.h"
#include "rlx/passes/passes.h"

namespace rlx::testing {

struct Lowered {
  std::shared_ptr<cpu::CpuTarget> target;  // owns the generated code
  Program program;
};

// Without code: kernels answer questions but cannot run until target->finish(). Graphs without
// control flow.
inline Lowered lower_for_cpu(const Graph& g) {
  auto target = std::make_shared<cpu::CpuTarget>(cpu::CpuJitOptions{});
  PassContext context;
  context.keeps = [&](const Node& n, const Graph& at) {
    return n.op != &op::region && target->accepts(n, at);
  };
  const Graph fused =
      fuse_regions(run_passes(g, default_pipeline(), context), nullptr, /*grow=*/true);
  Program program = lower(fused, *target);
  return {std::move(target), std::move(program)};
}

}  // namespace rlx::testing
