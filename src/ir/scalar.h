// Scalar: the language in which an elementwise op states what it does to one element.
//
//   .scalar = [](const Node&, std::span<const Scalar> x) { return x[0] / (1 + abs(x[0])); }
//
// A Scalar is a handle into a ScalarEmitter, which each code generator implements over its own
// instructions. The set of operations is small on purpose: a new backend spells these and nothing
// else. Values are real: f16 and bf16 compute in f32 and are rounded where a node ends; c64 is
// expanded by the generators' callers.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "rlx/ir/dtype.h"

namespace rlx {

// The one list of scalar operations: ScalarOp here, instructions of a kernel in codegen/kernel.h.
// clang-format off
#define RLX_SCALAR_OPS                                                                           \
  Add, Sub, Mul, Div, Rem, Min, Max, Pow, CopySign, UMulHi, Fma,                                 \
  Neg, Abs, Sqrt, Exp, Log, Tanh, Erf, Sin, Cos, Floor, Ceil, Trunc, Rint,                       \
  And, Or, Xor, Shl, Shr, Not, /* bit by bit, or of bools */                                     \
  Eq, Ne, Lt, Le, Gt, Ge, Select, Cast
// clang-format on
enum class ScalarOp : uint8_t { RLX_SCALAR_OPS };

class ScalarEmitter;

struct Scalar {
  ScalarEmitter* emitter = nullptr;
  int id = -1;
  DType dtype = DType::F32;
};

class ScalarEmitter {
 public:
  virtual ~ScalarEmitter() = default;
  virtual int constant(DType dtype, double value) = 0;
  virtual int constant_int(DType dtype, int64_t value) = 0;
  virtual int apply(ScalarOp op, DType result, std::span<const Scalar> operands) = 0;
};

inline Scalar scalar_apply(ScalarOp op, DType result, std::initializer_list<Scalar> x) {
  ScalarEmitter* e = x.begin()->emitter;
  return {e, e->apply(op, result, {x.begin(), x.size()}), result};
}
// A constant of the same dtype as x.
inline Scalar scalar_like(Scalar x, double v) {
  return {x.emitter, x.emitter->constant(x.dtype, v), x.dtype};
}
// The same for integers of more than 53 bits.
inline Scalar scalar_int_like(Scalar x, int64_t v) {
  return {x.emitter, x.emitter->constant_int(x.dtype, v), x.dtype};
}

#define RLX_SCALAR_UNARY(fn, op) \
  inline Scalar fn(Scalar x) { return scalar_apply(ScalarOp::op, x.dtype, {x}); }
RLX_SCALAR_UNARY(abs, Abs)
RLX_SCALAR_UNARY(sqrt, Sqrt)
RLX_SCALAR_UNARY(exp, Exp)
RLX_SCALAR_UNARY(log, Log)
RLX_SCALAR_UNARY(tanh, Tanh)
RLX_SCALAR_UNARY(erf, Erf)
RLX_SCALAR_UNARY(sin, Sin)
RLX_SCALAR_UNARY(cos, Cos)
RLX_SCALAR_UNARY(floor, Floor)
RLX_SCALAR_UNARY(ceil, Ceil)
RLX_SCALAR_UNARY(trunc, Trunc)
RLX_SCALAR_UNARY(rint, Rint)
#undef RLX_SCALAR_UNARY

#define RLX_SCALAR_BINARY(fn, op, result)                                                     \
  inline Scalar fn(Scalar a, Scalar b) { return scalar_apply(ScalarOp::op, result, {a, b}); } \
  inline Scalar fn(Scalar a, double b) { return fn(a, scalar_like(a, b)); }                   \
  inline Scalar fn(double a, Scalar b) { return fn(scalar_like(b, a), b); }
RLX_SCALAR_BINARY(operator+, Add, a.dtype)
RLX_SCALAR_BINARY(operator-, Sub, a.dtype)
RLX_SCALAR_BINARY(operator*, Mul, a.dtype)
RLX_SCALAR_BINARY(operator/, Div, a.dtype)
RLX_SCALAR_BINARY(rem, Rem, a.dtype)
RLX_SCALAR_BINARY(pow, Pow, a.dtype)
RLX_SCALAR_BINARY(copysign, CopySign, a.dtype)
RLX_SCALAR_BINARY(minimum, Min, a.dtype)
RLX_SCALAR_BINARY(maximum, Max, a.dtype)
RLX_SCALAR_BINARY(operator&, And, a.dtype)
RLX_SCALAR_BINARY(operator|, Or, a.dtype)
RLX_SCALAR_BINARY(operator^, Xor, a.dtype)
RLX_SCALAR_BINARY(operator<<, Shl, a.dtype)
RLX_SCALAR_BINARY(operator>>, Shr, a.dtype)
RLX_SCALAR_BINARY(operator==, Eq, DType::Bool)
RLX_SCALAR_BINARY(operator!=, Ne, DType::Bool)
RLX_SCALAR_BINARY(operator<, Lt, DType::Bool)
RLX_SCALAR_BINARY(operator<=, Le, DType::Bool)
RLX_SCALAR_BINARY(operator>, Gt, DType::Bool)
RLX_SCALAR_BINARY(operator>=, Ge, DType::Bool)
#undef RLX_SCALAR_BINARY

inline Scalar operator-(Scalar x) { return scalar_apply(ScalarOp::Neg, x.dtype, {x}); }
inline Scalar operator&&(Scalar a, Scalar b) {
  return scalar_apply(ScalarOp::And, DType::Bool, {a, b});
}
inline Scalar operator||(Scalar a, Scalar b) {
  return scalar_apply(ScalarOp::Or, DType::Bool, {a, b});
}
inline Scalar operator~(Scalar x) { return scalar_apply(ScalarOp::Not, x.dtype, {x}); }
inline Scalar operator!(Scalar a) { return scalar_apply(ScalarOp::Not, DType::Bool, {a}); }
inline Scalar logical_xor(Scalar a, Scalar b) {
  return scalar_apply(ScalarOp::Xor, DType::Bool, {a, b});
}
inline Scalar select(Scalar c, Scalar a, Scalar b) {
  return scalar_apply(ScalarOp::Select, a.dtype, {c, a, b});
}
inline Scalar select(Scalar c, Scalar a, double b) { return select(c, a, scalar_like(a, b)); }
inline Scalar select(Scalar c, double a, Scalar b) { return select(c, scalar_like(b, a), b); }
inline Scalar cast(Scalar x, DType to) { return scalar_apply(ScalarOp::Cast, to, {x}); }

}  // namespace rlx
