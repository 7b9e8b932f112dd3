// Matrix products by oneDNN, where it beats our own tiles: bf16 on machines that multiply bf16
// directly. Measured on a Zen 4 core: 202-233 GF/s against 100-107 of ours, which go through f32;
// for f32 the two are within 5 % of each other (104-110 GF/s of a peak of 117), and ours cost no
// time to make and allocate nothing.
//
//   if (onednn_accepts(problem, isa)) plan = make_onednn_plan(problem);
//   if (!plan) ...                                       // our own tiles
//
// The plan keeps the promises of MatmulPlan: fixed tiles, each run by one thread. oneDNN itself
// makes a few small allocations per tile; when one fails, the tile raises Error(device), code
// `onednn`, which parallel_for carries to the caller.
#pragma once

#include <memory>

#include "rlx/backend/cpu/kernels/matmul/matmul.h"
#include "rlx/base/decision.h"

namespace rlx::cpu {

Decision onednn_accepts(const MatmulProblem& problem, Isa isa);
// Null when oneDNN refuses the problem after all.
std::unique_ptr<const MatmulPlan> make_onednn_plan(const MatmulProblem& problem);

}  // namespace rlx::cpu
