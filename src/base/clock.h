// Measuring time:  const auto start = Clock::now(); ... seconds_since(start).
#pragma once

#include <chrono>

namespace rlx {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace rlx
