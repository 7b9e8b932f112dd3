// Grouped products, mixtures of experts and low-rank adapters.
//
//   Value y = op::grouped_matmul(b, x, weights, experts);            // y[i] = x[i] @ weights[experts[i]]
//   Values g = b.emit(*&op::moe_gate, MoeGateAttrs{.k = 2}, Values{logits});   // weights, experts
//
// Expert ids are of any integer dtype, or f32/f64 that are truncated; one outside [0, E) raises "index-range"
// when the program runs. Raises Error(user): "experts-shape", "experts-k", "lora-shape", "index-dtype",
// "dtype-mixed", "quant-scheme", "quant-block", "quant-bytes".
#pragma once

#include "rlx/ir/op.h"
#include "rlx/quant/format.h"

namespace rlx {

struct GroupedMatmulAttrs {
  bool transpose_weight = false;  // the weights are [E, N, K]
  static constexpr auto fields() { return Fields<&GroupedMatmulAttrs::transpose_weight>(); }
};
struct GroupedOuterAttrs {
  Dim experts = 1;
  static constexpr auto fields() { return Fields<&GroupedOuterAttrs::experts>(); }
};
struct DequantGroupedAttrs {
  QuantScheme scheme;
  int64_t columns = 0;  // N; how many experts there are follows from the bytes
  static constexpr auto fields() {
    return Fields<&DequantGroupedAttrs::scheme, &DequantGroupedAttrs::columns>();
  }
};
struct MoeWeightsAttrs {
  QuantScheme scheme;
  Shape shape;  // [E, K, N]
  static constexpr auto fields() {
    return Fields<&MoeWeightsAttrs::scheme, &MoeWeightsAttrs::shape>();
  }
};
struct LoraAttrs {
  double scale = 1;
  static constexpr auto fields() { return Fields<&LoraAttrs::scale>(); }
};
enum class GateKind : uint8_t {
  softmax,       // the k largest of softmax(logits)
  softmax_topk,  // softmax over the k largest logits: the same, made to sum to 1
  sigmoid,       // the k largest of sigmoid(logits), made to sum to 1
};
inline std::span<const std::string_view> enum_names(GateKind) {
  static constexpr std::string_view names[] = {"softmax", "softmax_topk", "sigmoid"};
  return names;
}
struct MoeGateAttrs {
  int64_t k = 1;
  GateKind kind = GateKind::softmax_topk;
  static constexpr auto fields() { return Fields<&MoeGateAttrs::k, &MoeGateAttrs::kind>(); }
};

namespace op {
extern const Op<GroupedMatmulAttrs> grouped_matmul;  // x [M, K], w [E, K, N], experts [M] -> [M, N]
// x [M, K], y [M, N], experts [M] -> [E, K, N]: the gradient of grouped_matmul by its weights
extern const Op<GroupedOuterAttrs> grouped_outer;
extern const Op<DequantGroupedAttrs>
    dequant_grouped_matmul;                            // x [M, K], u8 bytes, experts [M] -> [M, N]
extern const Op<MoeWeightsAttrs> dequant_moe_weights;  // u8 bytes -> f32 [E, K, N]
extern const Op<LoraAttrs> lora_matmul;                // x [.., K], w [K, N], a [K, r], b [r, N]
extern const Op<MoeGateAttrs> moe_gate;  // logits [T, E] -> weights [T, k], experts [T, k]
// x [T, D], router [D, E], gate [E, D, F], up [E, D, F], down [E, F, D] -> [T, D]
extern const Op<MoeGateAttrs> moe;
}  // namespace op

extern const Family kExperts;

}  // namespace rlx
