// Expr: a value together with its builder, so that rules and composites read like formulas.
//
//   Expr x(b, in[0]);
//   return (x * op::sigmoid(x)).value();
//
// Plain scalars take the tensor's dtype. Operators broadcast like NumPy.
#pragma once

#include "rlx/ir/builder.h"

namespace rlx {

class Expr {
 public:
  Expr(Builder& b, Value v) : builder_(&b), value_(v) {}
  Builder& builder() const { return *builder_; }
  Value value() const { return value_; }
  operator Value() const { return value_; }  // NOLINT: implicit by design
  Value value_in(Builder& b) const {
    check(&b == builder_, "a value of another graph than \"{}\"", b.graph().name);
    return value_;
  }
  Expr make(Value v) const { return {*builder_, v}; }
  const Type& type() const { return builder_->type(value_); }
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  int64_t rank() const { return type().rank(); }
  Expr like(Complex v) const { return {*builder_, builder_->constant_like(value_, v)}; }

 private:
  Builder* builder_;
  Value value_;
};

Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator*(Expr a, Expr b);
Expr operator/(Expr a, Expr b);
Expr operator-(Expr a);
inline Expr operator+(Expr a, double b) { return a + a.like(b); }
inline Expr operator-(Expr a, double b) { return a - a.like(b); }
inline Expr operator*(Expr a, double b) { return a * a.like(b); }
inline Expr operator/(Expr a, double b) { return a / a.like(b); }
inline Expr operator+(double a, Expr b) { return b.like(a) + b; }
inline Expr operator-(double a, Expr b) { return b.like(a) - b; }
inline Expr operator*(double a, Expr b) { return b.like(a) * b; }
inline Expr operator/(double a, Expr b) { return b.like(a) / b; }

}  // namespace rlx
