// What the families of neural networks share.
#pragma once

#include "rlx/ops/nn.h"
#include "rlx/ops/rules.h"

namespace rlx {

// v for computing with: f16 and bf16 become f32.
Expr widen(Builder& b, Value v);

// Rotary positions. table_for makes of cos or sin [.., P, C] the rows and columns in use, with an
// axis for the heads: [.., positions, 1, half]; rotate turns x [.., S, heads * head_dim] by such
// tables.
Expr table_for(Builder& b, Value table, const Dim& positions, int64_t half, DType dtype);
Value rotate(Expr x, Expr cos, Expr sin, const RopeAttrs& r);
// Raises "rope-heads", "rope-shape" and "dtype-mixed" unless the operands x, cos, sin of a rotation
// fit; cos and sin have at least `rows` rows.
void check_rope(const InferArgs& a, const RopeAttrs& r, const Dim& rows);

}  // namespace rlx
