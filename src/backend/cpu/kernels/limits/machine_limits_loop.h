// The interface between machine_limits.cc and the loop compiled per instruction set.
#pragma once

#include <cstdint>

namespace rlx::cpu {

// Independent multiply-adds in flight: more than latency times units of any machine, fewer than its
// registers.
inline constexpr int kFmaChains = 12;

// Runs rounds * kFmaChains multiply-adds on vectors of W bytes. The result must be used and the
// seed unknown to the compiler, or it would leave work out.
template <int W>
float fma_loop(int64_t rounds, float seed);

}  // namespace rlx::cpu
