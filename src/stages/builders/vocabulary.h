// The words that the builders and stages take as arguments.
//
//   g.binary(BinaryOp::add, x, y, t);
//   g.attention_kind(q, k, v, 8, 64, AttentionMask::sliding_window(128), t);
//   g.add_node({op::concat, {.axis = 1}}, {x, y}, t);
#pragma once

#include "rlx/ir/builder.h"
#include "rlx/ops/attention/attention_mask.h"
#include "rlx/ops/elementwise/activations.h"

namespace rlx {

using NodeId = Value;  // a builder that returns one id means result 0

enum class BinaryOp : uint8_t { add, sub, mul, div, max, min, pow };
enum class CmpOp : uint8_t { eq, ne, lt, le, gt, ge };
enum class ReduceOp : uint8_t { sum, mean, max, min, prod };
inline std::span<const std::string_view> enum_names(BinaryOp) {
  static constexpr std::string_view names[] = {"add", "sub", "mul", "div", "max", "min", "pow"};
  return names;
}
inline std::span<const std::string_view> enum_names(CmpOp) {
  static constexpr std::string_view names[] = {"eq", "ne", "lt", "le", "gt", "ge"};
  return names;
}
inline std::span<const std::string_view> enum_names(ReduceOp) {
  static constexpr std::string_view names[] = {"sum", "mean", "max", "min", "prod"};
  return names;
}
const OpDef& op_of(BinaryOp kind);
const OpDef& op_of(CmpOp kind);
const OpDef& op_of(ReduceOp kind);

// An op with its attributes.
struct AnyOp {
  const OpDef* def;
  Attrs attrs;

  AnyOp(const OpDef& op, Attrs attributes) : def(&op), attrs(std::move(attributes)) {}
  template <class A>
  AnyOp(const Op<A>& op, std::type_identity_t<A> attributes = {})  // NOLINT: implicit by design
      : def(&op), attrs(std::move(attributes)) {}
  bool operator==(const AnyOp&) const = default;
};

// The attention op: heads, what masks, and optional scale and soft cap.
AnyOp attention_kind_op(int64_t num_heads, int64_t head_dim, const AttentionMask& mask,
                        std::optional<double> score_scale = std::nullopt,
                        std::optional<double> attn_logit_softcap = std::nullopt);

// The short form that dumps show: "matmul", "Gelu", "Add", "reduce_Sum([0, 1])"; other attributes
// are shown where they differ from their defaults, bodies never.
std::string op_text(const OpDef& op, const Attrs& attrs);
// The name that dumps count the op under, without attributes ("MatMul", "Binary").
std::string op_kind(const OpDef& op);

}  // namespace rlx
