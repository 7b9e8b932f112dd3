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

enum class ScalarOp : uint8_t {
  constant,
  add,
  sub,
  mul,
  div,
  rem,
  neg,
  abs,
  min,
  max,
  sqrt,
  exp,
  log,
  tanh,
  erf,
  sin,
  cos,
  pow,
  copysign,
  floor,
  ceil,
  trunc,
  rint,
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  select,
  logical_and,
  logical_or,
  logical_xor,
  logical_not,
  cast,
  shl,
  shr,
  umulhi,
  bit_and,
  bit_or,
  bit_xor,
  bit_not,
};

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

#define RLX_SCALAR_UNARY(name) \
  inline Scalar name(Scalar x) { return scalar_apply(ScalarOp::name, x.dtype, {x}); }
RLX_SCALAR_UNARY(abs)
RLX_SCALAR_UNARY(sqrt)
RLX_SCALAR_UNARY(exp)
RLX_SCALAR_UNARY(log)
RLX_SCALAR_UNARY(tanh)
RLX_SCALAR_UNARY(erf)
RLX_SCALAR_UNARY(sin)
RLX_SCALAR_UNARY(cos)
RLX_SCALAR_UNARY(floor)
RLX_SCALAR_UNARY(ceil)
RLX_SCALAR_UNARY(trunc)
RLX_SCALAR_UNARY(rint)
#undef RLX_SCALAR_UNARY

#define RLX_SCALAR_BINARY(fn, op, result)                                                     \
  inline Scalar fn(Scalar a, Scalar b) { return scalar_apply(ScalarOp::op, result, {a, b}); } \
  inline Scalar fn(Scalar a, double b) { return fn(a, scalar_like(a, b)); }                   \
  inline Scalar fn(double a, Scalar b) { return fn(scalar_like(b, a), b); }
RLX_SCALAR_BINARY(operator+, add, a.dtype)
RLX_SCALAR_BINARY(operator-, sub, a.dtype)
RLX_SCALAR_BINARY(operator*, mul, a.dtype)
RLX_SCALAR_BINARY(operator/, div, a.dtype)
RLX_SCALAR_BINARY(rem, rem, a.dtype)
RLX_SCALAR_BINARY(pow, pow, a.dtype)
RLX_SCALAR_BINARY(copysign, copysign, a.dtype)
RLX_SCALAR_BINARY(minimum, min, a.dtype)
RLX_SCALAR_BINARY(maximum, max, a.dtype)
RLX_SCALAR_BINARY(operator&, bit_and, a.dtype)
RLX_SCALAR_BINARY(operator|, bit_or, a.dtype)
RLX_SCALAR_BINARY(operator^, bit_xor, a.dtype)
RLX_SCALAR_BINARY(operator<<, shl, a.dtype)
RLX_SCALAR_BINARY(operator>>, shr, a.dtype)
RLX_SCALAR_BINARY(operator==, eq, DType::Bool)
RLX_SCALAR_BINARY(operator!=, ne, DType::Bool)
RLX_SCALAR_BINARY(operator<, lt, DType::Bool)
RLX_SCALAR_BINARY(operator<=, le, DType::Bool)
RLX_SCALAR_BINARY(operator>, gt, DType::Bool)
RLX_SCALAR_BINARY(operator>=, ge, DType::Bool)
#undef RLX_SCALAR_BINARY

inline Scalar operator-(Scalar x) { return scalar_apply(ScalarOp::neg, x.dtype, {x}); }
inline Scalar operator&&(Scalar a, Scalar b) {
  return scalar_apply(ScalarOp::logical_and, DType::Bool, {a, b});
}
inline Scalar operator||(Scalar a, Scalar b) {
  return scalar_apply(ScalarOp::logical_or, DType::Bool, {a, b});
}
inline Scalar operator~(Scalar x) { return scalar_apply(ScalarOp::bit_not, x.dtype, {x}); }
inline Scalar operator!(Scalar a) { return scalar_apply(ScalarOp::logical_not, DType::Bool, {a}); }
inline Scalar logical_xor(Scalar a, Scalar b) {
  return scalar_apply(ScalarOp::logical_xor, DType::Bool, {a, b});
}
inline Scalar select(Scalar c, Scalar a, Scalar b) {
  return scalar_apply(ScalarOp::select, a.dtype, {c, a, b});
}
inline Scalar select(Scalar c, Scalar a, double b) { return select(c, a, scalar_like(a, b)); }
inline Scalar select(Scalar c, double a, Scalar b) { return select(c, scalar_like(b, a), b); }
inline Scalar cast(Scalar x, DType to) { return scalar_apply(ScalarOp::cast, to, {x}); }

}  // namespace rlx
