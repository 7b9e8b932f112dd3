// Discrete Fourier transforms of any length along one axis.
//
//   FftPlan plan({DType::C64, outer, n, inner, /*inverse=*/false, /*scale=*/1.0}, host_isa());
//   plan.run(x, y, scratch, 0, plan.blocks());          // or blocks shared out over threads
//
// Many lines are transformed side by side, one per vector lane, by mixed-radix stages (8, 4, 2, 3,
// 5, 7 and other primes up to 127) or Bluestein's convolution; few long lines one after the other as
// matrices whose columns and rows are such lines. n log n for every length. Twiddles are computed
// in double; f32 and c64 are transformed in f32, f64 in f64.
#pragma once

#include <cstddef>
#include <memory>

#include "rlx/backend/cpu/kernels/isa.h"
#include "rlx/ir/dtype.h"

namespace rlx::cpu {

// Tensors [outer, n, inner] of c64, or [outer, 2 n, inner] of f32 or f64 with the n real parts
// before the n imaginary ones. Dense.
struct FftProblem {
  DType dtype = DType::C64;
  int64_t outer = 1, n = 1, inner = 1;
  bool inverse = false;
  double scale = 1;
};

class FftPlan {
 public:
  FftPlan(const FftProblem& p, Isa isa);
  ~FftPlan();
  FftPlan(const FftPlan&) = delete;

  int64_t blocks() const;
  size_t scratch_bytes() const;  // per worker
  double flops() const;          // the usual count, 5 n log2 n per line
  void run(const void* x, void* y, std::byte* scratch, int64_t begin, int64_t end) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace rlx::cpu
