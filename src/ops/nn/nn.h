// Neural-network composites: each is defined by its decomposition into primitives.
//
//   Value p = op::softmax(b, scores, {.axis = -1});
//   Value y = op::layer_norm(b, x, gamma, beta, {.axis = -1, .eps = 1e-5});
//
// f16 and bf16 are computed in f32 and rounded once. Wrong operands raise Error(user) with the
// codes "norm-shape", "norm-eps", "labels", "rope-shape", "rope-heads", "dtype-mixed",
// "axis-range"; a label outside [0, C) raises "index-range" when the program runs. Attention is in
// attention.h.
#pragma once

#include "rlx/ops/attention/attention.h"

namespace rlx {

struct SoftmaxAttrs {
  int64_t axis = -1;
  static constexpr auto fields() { return Fields<&SoftmaxAttrs::axis>(); }
};
struct NormAttrs {
  int64_t axis = -1;
  double eps = 1e-5;
  static constexpr auto fields() { return Fields<&NormAttrs::axis, &NormAttrs::eps>(); }
};
// n_rot 0 means head_dim (and becomes it when a node is built). Pair i of a head is (i, i + n_rot/2),
// interleaved (2 i, 2 i + 1).
struct RopeAttrs {
  int64_t head_dim = 0, n_rot = 0;
  bool interleaved = false;
  static constexpr auto fields() {
    return Fields<&RopeAttrs::head_dim, &RopeAttrs::n_rot, &RopeAttrs::interleaved>();
  }
};

namespace op {
extern const Op<> gelu, gelu_tanh, silu;
extern const Op<SoftmaxAttrs> softmax, log_softmax;
extern const Op<NormAttrs> layer_norm,
    rms_norm;  // x, gamma [D], beta [D]; D is the size of the axis
extern const Op<>
    softmax_cross_entropy;        // logits [.., C], labels [..] (integers, or ids in f32 or f64)
extern const Op<RopeAttrs> rope;  // x [.., S, heads * head_dim], cos [P, >= n_rot/2], sin; P >= S
}  // namespace op

extern const Family kNn;

}  // namespace rlx
