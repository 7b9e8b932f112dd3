// What the families of neural networks share.
#pragma once

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/nn/nn.h"
#include "rlx/ops/rules.h"

namespace rlx {

// v for computing with: f16 and bf16 become f32.
Expr widen(Builder& b, Value v);
// The way back: one rounding at the end.
inline Value narrow(Expr wide, DType dtype) { return cast_to(wide.builder(), wide, dtype); }

// A decomposition by one formula over widened operands: F is a captureless lambda
// (const Node&, std::span<const Expr> x) -> Expr.
//
//   .decompose = by_formula<[](const Node&, Exprs x) { return x[0] * op::sigmoid(x[0]); }>
using Exprs = std::span<const Expr>;
template <auto F>
Values by_formula(Builder& b, const Node& n, Operands in) {
  std::vector<Expr> x;
  for (Value v : in) x.push_back(widen(b, v));
  return {narrow(F(n, Exprs(x)), n.type().dtype)};
}

// The gradient of z = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) over the axes by x for the
// cotangent s of z, and z itself; without the means for a norm that is not `centred`.
//
// Written so that what cancels does so exactly: the mean of s leaves first; x - mean(x) is freed of the
// mean that rounding left in it; and the part of s along x is divided by the mean square itself, so
// that the rounding of the root, a factor of the whole, is all that the root adds.
struct NormGradient {
  Expr z, dx;
};
NormGradient norm_gradient(Expr x, Expr s, const Ints& axes, double eps, bool centred);

// [D] -> [D, 1, ..], so that it lines up with an axis of a tensor of that rank.
Expr line_up(Expr v, int64_t rank, int64_t axis);

// a where the condition holds, else b. Plain numbers take the other's dtype.
inline Expr where(Expr condition, Expr a, Expr b) { return op::select(condition, a, b); }
inline Expr where(Expr condition, double a, Expr b) { return where(condition, b.like(a), b); }
inline Expr where(Expr condition, Expr a, double b) { return where(condition, a, a.like(b)); }

// Rotary positions. table_for makes of cos or sin [.., P, C] the rows and columns in use, with an
// axis for the heads: [.., positions, 1, half]; rotate turns x [.., S, heads * head_dim] by such
// tables.
Expr table_for(Builder& b, Value table, const Dim& positions, int64_t half, DType dtype);
Value rotate(Expr x, Expr cos, Expr sin, const RopeAttrs& r);
// Raises "rope-heads", "rope-shape" and "dtype-mixed" unless the operands x, cos, sin of a rotation
// fit; cos and sin have at least `rows` rows.
void check_rope(const InferArgs& a, const RopeAttrs& r, const Dim& rows);

}  // namespace rlx
