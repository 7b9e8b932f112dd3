// Activation functions beyond the core ones (relu, sigmoid, tanh, gelu, silu ...), and the
// enumeration of those that other ops take as an attribute.
//
//   Value y = op::leaky_relu(b, x, {.alpha = 0.2});
//   Value z = op::swiglu(b, gate, up);
//
// All take floats; f16 and bf16 are computed in f32 and rounded once. NaN stays NaN. Errors: "alpha"
// (an attribute outside its range), "glu-shape" (an axis that has no two halves), "broadcast",
// "dtype-mixed", "axis-range".
#pragma once

#include "rlx/ir/op.h"
#include "rlx/ops/nn/nn.h"

namespace rlx {

// The functions that fused ops and activation_backward name in an attribute.
enum class Activation : uint8_t {
  gelu,
  gelu_tanh,
  silu,
  relu,
  sigmoid,
  tanh,
  exp,
  log,
  sqrt,
  rsqrt,
  neg,
  abs,
  sin,
  cos,
  tan,
  atan,
  round,  // round_straight_through
};
inline std::span<const std::string_view> enum_names(Activation) {
  static constexpr std::string_view names[] = {
      "gelu",  "gelu_tanh", "silu", "relu", "sigmoid", "tanh", "exp",  "log",  "sqrt",
      "rsqrt", "neg",       "abs",  "sin",  "cos",     "tan",  "atan", "round"};
  return names;
}
// The op that computes it.
const OpDef& op_of(Activation kind);

struct AlphaAttrs {  // elu, celu: the scale of the negative part
  double alpha = 1;
  static constexpr auto fields() { return Fields<&AlphaAttrs::alpha>(); }
};
struct LeakyReluAttrs {  // the slope for x < 0
  double alpha = 0.01;
  static constexpr auto fields() { return Fields<&LeakyReluAttrs::alpha>(); }
};
struct HardSigmoidAttrs {  // the line alpha * x + beta
  double alpha = 1.0 / 6, beta = 0.5;
  static constexpr auto fields() {
    return Fields<&HardSigmoidAttrs::alpha, &HardSigmoidAttrs::beta>();
  }
};
struct HardTanhAttrs {
  double low = -1, high = 1;
  static constexpr auto fields() { return Fields<&HardTanhAttrs::low, &HardTanhAttrs::high>(); }
};
struct
    ShrinkAttrs {  // half the width of the band that becomes 0 (PyTorch's name: lambda is a word of Python)
  double lambd = 0.5;
  static constexpr auto fields() { return Fields<&ShrinkAttrs::lambd>(); }
};
struct ThresholdAttrs {
  double threshold = 0, value = 0;
  static constexpr auto fields() {
    return Fields<&ThresholdAttrs::threshold, &ThresholdAttrs::value>();
  }
};

namespace op {
extern const Op<> relu6, selu, hard_swish, mish, tanhshrink, quick_gelu, log_sigmoid, logit;
extern const Op<AlphaAttrs> elu, celu, thresholded_relu;
extern const Op<LeakyReluAttrs> leaky_relu;
extern const Op<HardSigmoidAttrs> hard_sigmoid;
extern const Op<HardTanhAttrs> hard_tanh;
extern const Op<ShrinkAttrs> softshrink, hardshrink;
extern const Op<ThresholdAttrs> threshold;
extern const Op<> prelu;            // x, slope: broadcast
extern const Op<> swiglu;           // gate, up: silu(gate) * up
extern const Op<SoftmaxAttrs> glu;  // [.., 2n, ..] -> [.., n, ..]
}  // namespace op

extern const Family kActivations;

}  // namespace rlx
