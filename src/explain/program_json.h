// LIR as the explanation shows it: steps, launches, buffers. Part of explain.cc.
#pragma once

#include "rlx/explain/graph_json.h"
#include "rlx/lower/lir.h"

namespace rlx::explaining {

// What steps that are launched together cost: their operations, and the bytes that come from outside and that they write.
struct LaunchCost {
  double flops = 0, bytes = 0;
};
LaunchCost cost_of(const Program& p, const Chain& launch);

// Bytes of the arena that are in use while each launch runs, aligned as the plan has them.
std::vector<int64_t> live_bytes(const Program& p);

// `seconds`: of each launch; empty: not measured.
Json program_json(const Program& p, std::span<const double> seconds = {});

}  // namespace rlx::explaining
