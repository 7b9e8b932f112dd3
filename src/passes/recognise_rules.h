// What the rules of recognise look for by hand: values behind views, constants that were rounded, factors of a product.
#pragma once

#include "rlx/rewrite/rewrite.h"

namespace rlx {

RuleSet activation_recognisers();  // sigmoid, silu, gelu, swiglu
RuleSet norm_recognisers();        // softmax, layer_norm, rms_norm
RuleSet attention_recognisers();
RuleSet rope_recognisers();
RuleSet label_recognisers();  // cross-entropy, embedding

// A near miss: nothing, and the report says why.
inline std::nullopt_t missed(const Match& m, std::string why) {
  m.refuse(std::move(why));
  return std::nullopt;
}

// The node that makes v, when it is of that op.
const Node* made_by(const Graph& g, Value v, OpRef op);
// Whether a constant was meant to be `wanted`, as near as the dtype has it.
bool is_about(DType dtype, double have, double wanted);
// The number that all elements of a constant have.
std::optional<double> real_splat(const Graph& g, Value v);
// The other operand of a node of two, one of which is about `wanted`; kNone when none is.
Value beside(const Graph& g, const Node& n, double wanted);

// A product with its constants apart: scale * factors[0] * ..; what is divided by a constant, too.
struct Product {
  double scale = 1;
  Values factors;
};
Product product_of(const Graph& g, const Node& n);
Product product_of(const Graph& g, Value v);

// A fold of x along one axis that lies beside x: the axis has size 1, and perhaps is broadcast again.
struct Fold {
  Value x;
  int64_t axis;
};
std::optional<Fold> fold_beside(const Graph& g, Value v, OpRef reduction);

// What a mask lets through of scores [.., S_q, S_k], itself or as a bias of 0 and numbers that hide.
enum class Seen : uint8_t {
  other,
  some_key_by_row,  // each query sees one at least
  causal,           // query i sees the keys up to i + max(S_k - S_q, 0)
};
// By a constant, or by comparing counters.
Seen what_is_seen(const Graph& g, Value v, const Shape& scores);
// Whether a score of this, or with this added, leaves its key out.
inline bool hides(double v) { return v <= -1e9; }

}  // namespace rlx
