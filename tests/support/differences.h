// Derivatives of functions of one number in f64, against differences of their values.
#pragma once

#include "rlx/base/function_ref.h"
#include "rlx/ir/op.h"

namespace rlx::testing {

struct DifferenceCounts {
  int64_t elements = 0, unstable = 0;
};

// Whether `stated` is d/dt of f's results (all of f64) at t = 0: within 1e-6 of the largest derivative, or of a
// thousandth of the largest value, whose roundings the differences hold. A kink or a jump may lie within reach of the first step,
// so that shorter ones are tried where they disagree: a wrong derivative is wrong at any step. Where differences do not
// agree with each other, or those of both sides are two, or f refuses, or what is stated is not finite, nothing is asked and
// the element counted as unstable.
std::string against_differences(FunctionRef<Tensors(double t)> f, const Tensors& stated,
                                DifferenceCounts& counts);

// Numbers that must be equal but for roundings: within 1e-8 of the largest of both, or of `scale`. Not finite in
// both is equal; of derivatives, which may multiply NaN by 0 in one order and not in another, also in one.
std::string nearly_equal(const Tensor& a, const Tensor& b, double scale = 1,
                         bool derivatives = false);

}  // namespace rlx::testing
