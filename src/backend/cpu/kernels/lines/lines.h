// Loops over contiguous lines of f32, compiled once per instruction set.
//
//   const LineFns fns = line_fns(isa);
//   fns.add_scaled(sums, x, 0.5f, n);          // sums[i] += 0.5f * x[i]
#pragma once

#include <cstdint>

namespace rlx::cpu {

// From isa.h, which must not be included where code is compiled for a wider instruction set (simd.h).
enum class Isa : uint8_t;

struct LineFns {
  void (*add_scaled)(float* sums, const float* x, float scale, int64_t n);
  void (*max)(float* best, const float* x, int64_t n);  // NaN wins
  void (*min)(float* best, const float* x, int64_t n);
  // whole + lost += run (compensated.h)
  void (*add_run)(float* whole, float* lost, const float* run, int64_t n);
  // run += x; y = whole + lost + run
  void (*add_running)(const float* whole, const float* lost, float* run, const float* x, float* y,
                      int64_t n);
};

LineFns line_fns(Isa isa);

// Defined in the file compiled for vectors of W bytes.
template <int W>
LineFns line_fns_of();

}  // namespace rlx::cpu
