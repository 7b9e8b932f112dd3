// The words that the builders and stages take as arguments.
//
//   g.binary(BinaryOp::add, x, y, t);
//   g.attention_kind(q, k, v, 8, 64, AttentionMask::sliding_window(128), t);
//   g.add_node({op::concat, {.axis = 1}}, {x, y}, t);
#pragma once

#include "rlx/ir/builder.h"
#include "rlx/ops/activations.h"
#include "rlx/ops/attention.h"

namespace rlx {

using NodeId = Value;  // a builder that returns one id means result 0

enum class BinaryOp : uint8_t { add, sub, mul, div, max, min, pow };
enum class CmpOp : uint8_t { eq, ne, lt, le, gt, ge };
enum class ReduceOp : uint8_t { sum, mean, max, min, prod };
const OpDef& op_of(BinaryOp kind);
const OpDef& op_of(CmpOp kind);
const OpDef& op_of(ReduceOp kind);

// What hides keys from queries: positions (none, causal, sliding_window) or one more operand (custom:
// 1 keeps a key; bias: added to the scores).
struct AttentionMask {
  enum class Kind : uint8_t { none, causal, sliding_window, custom, bias };
  Kind kind = Kind::none;
  int64_t window = 0;

  static AttentionMask none() { return {}; }
  static AttentionMask causal() { return {Kind::causal, 0}; }
  // A query sees itself and the `window` keys before it.
  static AttentionMask sliding_window(int64_t window) { return {Kind::sliding_window, window}; }
  static AttentionMask custom() { return {Kind::custom, 0}; }
  static AttentionMask bias() { return {Kind::bias, 0}; }

  bool has_operand() const { return kind == Kind::custom || kind == Kind::bias; }
  std::string to_string() const;  // "none", "causal", "sw=128", "custom", "bias"
  static AttentionMask parse(std::string_view text);  // raises Error(data, "parse")
  bool operator==(const AttentionMask&) const = default;
};

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
