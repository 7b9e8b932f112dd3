// Discrete Fourier transforms of any length along one axis.
//
//   FftPlan plan({.outer = 8, .n = 1 << 16}, host_isa());
//   plan.run(0, x, y, scratch, 0, plan.blocks(0));      // or blocks shared out over threads
//
// Short lines lie side by side, one per vector lane, and go through mixed-radix stages (16, 8, 4, 2, 9,
// 3, 5, 7 and other primes up to 127); the first reads memory and the last writes it where lines are
// columns. Longer ones are cut up themselves: n = L m with L lanes, or a matrix whose columns and rows
// are such lines, for few long ones in two phases so that all threads have work. Other lengths
// are convolutions: Rader's for primes p where p - 1 has small factors, else Bluestein's. n log n for every
// length. Real lines cost half of complex ones. Twiddles are computed in double; f32 and c64 are
// transformed in f32, f64 in f64.
#pragma once

#include <cstddef>
#include <memory>

#include "rlx/backend/cpu/kernels/isa.h"
#include "rlx/backend/cpu/kernels/signal/fft_tables.h"
#include "rlx/ir/dtype.h"

namespace rlx::cpu {

// Tensors [outer, n, inner] of c64, or [outer, 2 n, inner] of f32 or f64 with the n real parts
// before the n imaginary ones. Dense. Or with `real`, of C64: to_bins from [outer, n, inner] of f32, n even,
// to [outer, n / 2 + 1, inner] of c64, or from_bins back.
struct FftProblem {
  DType dtype = DType::C64;
  int64_t outer = 1, n = 1, inner = 1;
  bool inverse = false;  // from_bins: true
  double scale = 1;
  FftReal real = FftReal::none;
};

class FftPlan {
 public:
  FftPlan(const FftProblem& p, Isa isa);
  ~FftPlan();
  FftPlan(const FftPlan&) = delete;

  // Phase 0 reads x, the last one writes y, each other one writes what the next one reads: between_bytes(phase),
  // aligned to 64. All blocks of a phase are over before the next begins.
  int phases() const;
  int64_t blocks(int phase) const;
  size_t between_bytes(int phase) const;
  size_t scratch_bytes() const;  // per worker, aligned to 64
  double flops() const;          // the usual count, 5 n log2 n per line, half for real ones
  void run(int phase, const void* x, void* y, std::byte* scratch, int64_t begin, int64_t end) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace rlx::cpu
