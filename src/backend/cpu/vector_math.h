// exp, log, tanh, erf, sin, cos, pow as straight-line LLVM IR over scalars or vectors of float or
// double of any width. The same operations in the same order whatever the width, so a lane's result
// depends on its input alone.
//
// Bounds in ULP against the exact value, over all inputs (tests/unit/vector_math_test.cc measures
// them):
//          exp  log  tanh  erf  sin  cos  pow
//   f32     1    1    2     1    2    2    1
//   f64     1    1    2     2    2    2    2
// NaN, infinities, signed zeros, denormal inputs and results are C's (Annex F). sin and cos of
// arguments beyond kTrigLimit branch to a libm call for those lanes; all else is branch-free.
// Coefficients are minimax polynomials with coefficients rounded to the format (Brisebarre and
// Chevillard, "Efficient polynomial L-infinity approximations", 2007).
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <span>

namespace rlx::cpu {

class VectorMath {
 public:
  // avx512: may use vscalef. The builder's insertion point may move to a new block (sin, cos).
  VectorMath(llvm::IRBuilder<>& builder, bool avx512) : b_(builder), avx512_(avx512) {}

  llvm::Value* exp(llvm::Value* x);
  llvm::Value* log(llvm::Value* x);
  llvm::Value* tanh(llvm::Value* x);
  llvm::Value* erf(llvm::Value* x);
  // active: lanes that count when deciding about the slow path (null: all).
  llvm::Value* sin(llvm::Value* x, llvm::Value* active = nullptr) { return trig(x, active, false); }
  llvm::Value* cos(llvm::Value* x, llvm::Value* active = nullptr) { return trig(x, active, true); }
  llvm::Value* pow(llvm::Value* x, llvm::Value* y);

  // Building blocks shared with the scalar operations.
  llvm::Value* fma(llvm::Value* a, llvm::Value* b, llvm::Value* c);
  llvm::Value* copysign(llvm::Value* magnitude, llvm::Value* sign);
  llvm::Value* abs(llvm::Value* x);

 private:
  struct Split {
    llvm::Value* exponent;  // as a float of the same type
    llvm::Value* mantissa;  // in [sqrt(1/2), sqrt(2))
  };

  llvm::Value* real(llvm::Value* like, double value);
  llvm::Value* bits(llvm::Value* like, int64_t value);
  llvm::Value* to_bits(llvm::Value* x);
  llvm::Value* from_bits(llvm::Value* x, llvm::Value* like);
  llvm::Value* poly(llvm::Value* x, std::span<const double> coefficients);
  llvm::Value* clamp(llvm::Value* x, double low, double high);
  llvm::Value* power_of_two(llvm::Value* n_bits, llvm::Value* like);
  llvm::Value* scale(llvm::Value* p, llvm::Value* n, llvm::Value* n_bits);
  llvm::Value* exp_kernel(llvm::Value* r);
  llvm::Value* exp_of_sum(llvm::Value* x, llvm::Value* low, bool full_range);
  Split split(llvm::Value* x, bool denormals);
  llvm::Value* trig(llvm::Value* x, llvm::Value* active, bool cosine);
  llvm::Value* trig_slow(llvm::Value* x, llvm::Value* fast, llvm::Value* slow, llvm::Value* active,
                         bool cosine);
  llvm::Value* pow_f32(llvm::Value* ax, llvm::Value* y);
  llvm::Value* pow_f64(llvm::Value* ax, llvm::Value* y);
  llvm::Value* pow_special(llvm::Value* x, llvm::Value* ax, llvm::Value* y, llvm::Value* r);

  llvm::IRBuilder<>& b_;
  bool avx512_;
};

// The libm side of sin and cos: symbols that generated code calls, with their addresses. Each takes
// the lanes' address and their count, and replaces the lanes beyond the limit.
struct MathSymbol {
  const char* name;
  void* address;
};
std::span<const MathSymbol> math_symbols();

}  // namespace rlx::cpu
