// The kinds of entries that the elementwise families share, and the words their rules are written in.
#pragma once

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/rules.h"

namespace rlx {

using Args = const JvpArgs&;
using In = std::span<const Scalar>;

// The operands and the result as expressions inside a derivative rule.
inline Expr X(Builder& b, Args a) { return {b, a.in[0]}; }
inline Expr Y(Builder& b, Args a) { return {b, a.out[0]}; }
inline Expr B(Builder& b, Args a) { return {b, a.in[1]}; }

// exp(-x^2) with x = h + l and h^2 exact: an error of the exponent is one of the result. Derivatives do not pass through h,
// and those of (x - h) (x + h) are those of x^2. Beyond the limit the exponential is 0.
inline Expr exp_of_minus_square(Expr x) {
  const bool wide = x.dtype() == DType::F64;
  const double steps = wide ? 0x1p20 : 0x1p8, limit = wide ? 30 : 16;
  Expr near = op::minimum(op::maximum(x, x.like(-limit)), x.like(limit));
  Expr h = op::round(near * steps) / steps;
  return op::exp(-(h * h)) * op::exp(-((x - h) * (x + h)));
}

// An entry of the kind y = f(x), same dtype.
constexpr OpDef unary(std::string_view name, std::string_view doc, DTypeSet dtypes, EvalRule eval,
                      ScalarRule scalar, DerivativeRule derivative,
                      std::string_view reference = {}) {
  OpDef d{.name = name,
          .doc = doc,
          .reference = reference,
          .kind = Kind::elementwise,
          .arity = 1,
          .dtypes = dtypes};
  d.infer = infer_same;
  d.eval = eval;
  d.scalar = scalar;
  d.derivative = derivative;
  return d;
}

constexpr OpDef step(std::string_view name, std::string_view doc, DTypeSet dtypes, EvalRule eval,
                     ScalarRule scalar) {
  OpDef d = unary(name, doc, dtypes, eval, scalar, nullptr);
  d.not_differentiable = "piecewise constant: its derivative is zero almost everywhere";
  return d;
}

inline Types infer_predicate(const InferArgs& a) { return {{DType::Bool, a.in[0].shape}}; }

constexpr OpDef predicate(std::string_view name, std::string_view doc, DTypeSet dtypes,
                          EvalRule eval, ScalarRule scalar) {
  OpDef d = unary(name, doc, dtypes, eval, scalar, nullptr);
  d.infer = infer_predicate;
  d.not_differentiable = "the result is bool";
  return d;
}

// An entry of the kind y = f(a, b), operands broadcast, same dtype.
constexpr OpDef binary(std::string_view name, std::string_view doc, DTypeSet dtypes, EvalRule eval,
                       ScalarRule scalar, DerivativeRule derivative,
                       std::string_view reference = {}, bool commutative = false) {
  OpDef d{.name = name,
          .doc = doc,
          .reference = reference,
          .kind = Kind::elementwise,
          .arity = 2,
          .operands = "a, b",
          .dtypes = dtypes};
  d.commutative = commutative;
  d.infer = infer_broadcast;
  d.eval = eval;
  d.scalar = scalar;
  d.derivative = derivative;
  return d;
}

}  // namespace rlx
