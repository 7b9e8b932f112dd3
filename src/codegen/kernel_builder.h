// Builds a Kernel instruction by instruction. Types follow from the operands; mistakes raise an
// internal Error at the call that makes them.
//
//   // Row softmax over [rows, n], one row per block, the exponentials staged in a scratch row.
//   KernelBuilder b("softmax");
//   BufferId in = b.input(DType::F32), out = b.output(DType::F32), row = b.scratch(DType::F32, n);
//   b.loop(LoopKind::Block, rows, [&](ValueId r) {
//     ValueId top = b.reduce(LoopKind::Vector, n, Combine::Max, b.constant(DType::F32, -INFINITY),
//                          [&](ValueId i) { return b.load(in, {{n, r}, {1, i}}); });
//     ValueId zero = b.constant(DType::F32, 0);
//     ValueId sum = b.reduce(LoopKind::Vector, n, Combine::Add, zero, [&](ValueId i) {
//       ValueId e = b.exp(b.sub(b.load(in, {{n, r}, {1, i}}), top));
//       b.store(row, {{1, i}}, e);
//       return e;
//     });
//     b.loop(LoopKind::Vector, n, [&](ValueId i) {
//       b.store(out, {{n, r}, {1, i}}, b.div(b.load(row, {{1, i}}), sum));
//     });
//   });
//   Kernel kernel = b.finish();
//
// Several accumulators in one loop:
//   ValueId i = b.begin_loop(LoopKind::Vector, n);
//   ValueId s = b.carry(Combine::Add, zero), q = b.carry(Combine::Add, zero);
//   ValueId x = b.load(in, {{1, i}});
//   b.update(s, x);
//   b.update(q, b.mul(x, x));
//   b.end_loop();
//   ValueId sum = b.result(s), squares = b.result(q);
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "rlx/codegen/kernel.h"

namespace rlx::codegen {

class KernelBuilder {
 public:
  explicit KernelBuilder(std::string name);

  // Parameters, in the order of the ABI's arrays; scratch arrays live on the stack for one call.
  BufferId input(DType dtype) { return parameter(dtype, Access::Read); }
  BufferId output(DType dtype) { return parameter(dtype, Access::Write); }
  BufferId parameter(DType dtype, Access access);
  BufferId scratch(DType dtype, int64_t length);
  void resize_scratch(BufferId scratch, int64_t length);
  void make_readable(BufferId output);  // from write-only to read-write
  Size size() { return Size::arg(kernel_.sizes++); }

  // Constants of a value type; a floating `value` must be representable for integer types.
  ValueId constant(DType dtype, double value);
  ValueId integer(DType dtype, int64_t value);
  ValueId boolean(bool value) { return integer(DType::Bool, value); }
  // Says of a constant that its value is not part of the kernel's form: finish() makes it an argument, so
  // that kernels that differ in it are one.
  ValueId free(ValueId constant);
  // The value of a size as an I64.
  ValueId size_value(Size size);

  // Loops.
  ValueId begin_loop(LoopKind kind, Extent extent);
  ValueId carry(Combine combine, ValueId init);
  void update(ValueId carry, ValueId value);
  void end_loop();
  ValueId result(ValueId carry);

  template <class Body>
  void loop(LoopKind kind, Extent extent, Body&& body) {
    body(begin_loop(kind, extent));
    end_loop();
  }
  // The combination of init and body(i) over all i.
  template <class Body>
  ValueId reduce(LoopKind kind, Extent extent, Combine combine, ValueId init, Body&& body) {
    ValueId i = begin_loop(kind, extent);
    ValueId acc = carry(combine, init);
    update(acc, body(i));
    end_loop();
    return result(acc);
  }
  // A Serial loop whose state body(i, state) maps to the next state; gives the last one.
  template <class Body>
  ValueId fold(Extent extent, ValueId init, Body&& body) {
    ValueId i = begin_loop(LoopKind::Serial, extent);
    ValueId state = carry(Combine::None, init);
    update(state, body(i, state));
    end_loop();
    return result(state);
  }

  // Memory. The value has value_dtype(buffer's dtype); Bool is one byte, stored as 0 or 1.
  ValueId load(BufferId buffer, Address address);
  void store(BufferId buffer, Address address, ValueId value);

  // Any arithmetic, comparison or Select by its code.
  ValueId apply(KernelOp op, std::span<const ValueId> args);
  ValueId apply(KernelOp op, std::initializer_list<ValueId> args) {
    return apply(op, std::span<const ValueId>(args.begin(), args.size()));
  }
  // To any real dtype. To a narrow float: the value stays F32, rounded to that precision.
  ValueId cast(ValueId x, DType to);
  ValueId round(ValueId x, DType precision);

  // clang-format off
  ValueId add(ValueId a, ValueId b) { return apply(KernelOp::Add, {a, b}); }
  ValueId sub(ValueId a, ValueId b) { return apply(KernelOp::Sub, {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return apply(KernelOp::Mul, {a, b}); }
  ValueId div(ValueId a, ValueId b) { return apply(KernelOp::Div, {a, b}); }
  ValueId rem(ValueId a, ValueId b) { return apply(KernelOp::Rem, {a, b}); }
  ValueId min(ValueId a, ValueId b) { return apply(KernelOp::Min, {a, b}); }
  ValueId max(ValueId a, ValueId b) { return apply(KernelOp::Max, {a, b}); }
  ValueId pow(ValueId a, ValueId b) { return apply(KernelOp::Pow, {a, b}); }
  ValueId copysign(ValueId a, ValueId b) { return apply(KernelOp::CopySign, {a, b}); }
  ValueId umulhi(ValueId a, ValueId b) { return apply(KernelOp::UMulHi, {a, b}); }
  ValueId fma(ValueId a, ValueId b, ValueId c) { return apply(KernelOp::Fma, {a, b, c}); }
  ValueId neg(ValueId a) { return apply(KernelOp::Neg, {a}); }
  ValueId abs(ValueId a) { return apply(KernelOp::Abs, {a}); }
  ValueId sqrt(ValueId a) { return apply(KernelOp::Sqrt, {a}); }
  ValueId exp(ValueId a) { return apply(KernelOp::Exp, {a}); }
  ValueId log(ValueId a) { return apply(KernelOp::Log, {a}); }
  ValueId tanh(ValueId a) { return apply(KernelOp::Tanh, {a}); }
  ValueId erf(ValueId a) { return apply(KernelOp::Erf, {a}); }
  ValueId sin(ValueId a) { return apply(KernelOp::Sin, {a}); }
  ValueId cos(ValueId a) { return apply(KernelOp::Cos, {a}); }
  ValueId floor(ValueId a) { return apply(KernelOp::Floor, {a}); }
  ValueId ceil(ValueId a) { return apply(KernelOp::Ceil, {a}); }
  ValueId trunc(ValueId a) { return apply(KernelOp::Trunc, {a}); }
  ValueId rint(ValueId a) { return apply(KernelOp::Rint, {a}); }
  ValueId bit_and(ValueId a, ValueId b) { return apply(KernelOp::And, {a, b}); }
  ValueId bit_or(ValueId a, ValueId b) { return apply(KernelOp::Or, {a, b}); }
  ValueId bit_xor(ValueId a, ValueId b) { return apply(KernelOp::Xor, {a, b}); }
  ValueId bit_not(ValueId a) { return apply(KernelOp::Not, {a}); }
  ValueId shl(ValueId a, ValueId b) { return apply(KernelOp::Shl, {a, b}); }
  ValueId shr(ValueId a, ValueId b) { return apply(KernelOp::Shr, {a, b}); }
  ValueId eq(ValueId a, ValueId b) { return apply(KernelOp::Eq, {a, b}); }
  ValueId ne(ValueId a, ValueId b) { return apply(KernelOp::Ne, {a, b}); }
  ValueId lt(ValueId a, ValueId b) { return apply(KernelOp::Lt, {a, b}); }
  ValueId le(ValueId a, ValueId b) { return apply(KernelOp::Le, {a, b}); }
  ValueId gt(ValueId a, ValueId b) { return apply(KernelOp::Gt, {a, b}); }
  ValueId ge(ValueId a, ValueId b) { return apply(KernelOp::Ge, {a, b}); }
  ValueId select(ValueId condition, ValueId a, ValueId b) { return apply(KernelOp::Select, {condition, a, b}); }
  // clang-format on

  // The row-major coordinates of a flat index: its quotients and remainders by `dims`, outermost
  // first. The first coordinate is not reduced, so dims[0] does not matter.
  std::vector<ValueId> unflatten(ValueId index, std::span<const Size> dims);

  DType dtype(ValueId v) const { return kernel_[v].dtype; }
  const Kernel& peek() const { return kernel_; }

  // Closes, hoists invariants out of loops, verifies. Free constants become arguments, whose words are
  // appended to `words` (those of size() come before them); without `words` they stay constants.
  Kernel finish(std::vector<int64_t>* words = nullptr);

 private:
  ValueId push(Instr instr);
  void make_arguments(std::vector<int64_t>& words);

  Kernel kernel_;
  std::vector<ValueId> open_loops_;
};

}  // namespace rlx::codegen
