// Builds a Kernel instruction by instruction. Types follow from the operands; mistakes raise an
// internal Error at the call that makes them.
//
//   // Row softmax over [rows, n], one row per block, the exponentials staged in a scratch row.
//   KernelBuilder b("softmax");
//   Buffer in = b.input(DType::F32), out = b.output(DType::F32), row = b.scratch(DType::F32, n);
//   b.loop(LoopKind::Block, rows, [&](Value r) {
//     Value top = b.reduce(LoopKind::Vector, n, Combine::Max, b.constant(DType::F32, -INFINITY),
//                          [&](Value i) { return b.load(in, {{n, r}, {1, i}}); });
//     Value zero = b.constant(DType::F32, 0);
//     Value sum = b.reduce(LoopKind::Vector, n, Combine::Add, zero, [&](Value i) {
//       Value e = b.exp(b.sub(b.load(in, {{n, r}, {1, i}}), top));
//       b.store(row, {{1, i}}, e);
//       return e;
//     });
//     b.loop(LoopKind::Vector, n, [&](Value i) {
//       b.store(out, {{n, r}, {1, i}}, b.div(b.load(row, {{1, i}}), sum));
//     });
//   });
//   Kernel kernel = b.finish();
//
// Several accumulators in one loop:
//   Value i = b.begin_loop(LoopKind::Vector, n);
//   Value s = b.carry(Combine::Add, zero), q = b.carry(Combine::Add, zero);
//   Value x = b.load(in, {{1, i}});
//   b.update(s, x);
//   b.update(q, b.mul(x, x));
//   b.end_loop();
//   Value sum = b.result(s), squares = b.result(q);
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
  Buffer input(DType dtype) { return parameter(dtype, Access::Read); }
  Buffer output(DType dtype) { return parameter(dtype, Access::Write); }
  Buffer parameter(DType dtype, Access access);
  Buffer scratch(DType dtype, int64_t length);
  void resize_scratch(Buffer scratch, int64_t length);
  void make_readable(Buffer output);  // from write-only to read-write
  Size size() { return Size::arg(kernel_.sizes++); }

  // Constants of a value type; a floating `value` must be representable for integer types.
  Value constant(DType dtype, double value);
  Value integer(DType dtype, int64_t value);
  Value boolean(bool value) { return integer(DType::Bool, value); }
  // Says of a constant that its value is not part of the kernel's form: finish() makes it an argument, so
  // that kernels that differ in it are one.
  Value free(Value constant);
  // The value of a size as an I64.
  Value size_value(Size size);

  // Loops.
  Value begin_loop(LoopKind kind, Extent extent);
  Value carry(Combine combine, Value init);
  void update(Value carry, Value value);
  void end_loop();
  Value result(Value carry);

  template <class Body>
  void loop(LoopKind kind, Extent extent, Body&& body) {
    body(begin_loop(kind, extent));
    end_loop();
  }
  // The combination of init and body(i) over all i.
  template <class Body>
  Value reduce(LoopKind kind, Extent extent, Combine combine, Value init, Body&& body) {
    Value i = begin_loop(kind, extent);
    Value acc = carry(combine, init);
    update(acc, body(i));
    end_loop();
    return result(acc);
  }
  // A Serial loop whose state body(i, state) maps to the next state; gives the last one.
  template <class Body>
  Value fold(Extent extent, Value init, Body&& body) {
    Value i = begin_loop(LoopKind::Serial, extent);
    Value state = carry(Combine::None, init);
    update(state, body(i, state));
    end_loop();
    return result(state);
  }

  // Memory. The value has value_dtype(buffer's dtype); Bool is one byte, stored as 0 or 1.
  Value load(Buffer buffer, Address address);
  void store(Buffer buffer, Address address, Value value);

  // Any arithmetic, comparison or Select by its code.
  Value apply(Op op, std::span<const Value> args);
  Value apply(Op op, std::initializer_list<Value> args) {
    return apply(op, std::span<const Value>(args.begin(), args.size()));
  }
  // To any real dtype. To a narrow float: the value stays F32, rounded to that precision.
  Value cast(Value x, DType to);
  Value round(Value x, DType precision);

  // clang-format off
  Value add(Value a, Value b) { return apply(Op::Add, {a, b}); }
  Value sub(Value a, Value b) { return apply(Op::Sub, {a, b}); }
  Value mul(Value a, Value b) { return apply(Op::Mul, {a, b}); }
  Value div(Value a, Value b) { return apply(Op::Div, {a, b}); }
  Value rem(Value a, Value b) { return apply(Op::Rem, {a, b}); }
  Value min(Value a, Value b) { return apply(Op::Min, {a, b}); }
  Value max(Value a, Value b) { return apply(Op::Max, {a, b}); }
  Value pow(Value a, Value b) { return apply(Op::Pow, {a, b}); }
  Value copysign(Value a, Value b) { return apply(Op::CopySign, {a, b}); }
  Value umulhi(Value a, Value b) { return apply(Op::UMulHi, {a, b}); }
  Value fma(Value a, Value b, Value c) { return apply(Op::Fma, {a, b, c}); }
  Value neg(Value a) { return apply(Op::Neg, {a}); }
  Value abs(Value a) { return apply(Op::Abs, {a}); }
  Value sqrt(Value a) { return apply(Op::Sqrt, {a}); }
  Value exp(Value a) { return apply(Op::Exp, {a}); }
  Value log(Value a) { return apply(Op::Log, {a}); }
  Value tanh(Value a) { return apply(Op::Tanh, {a}); }
  Value erf(Value a) { return apply(Op::Erf, {a}); }
  Value sin(Value a) { return apply(Op::Sin, {a}); }
  Value cos(Value a) { return apply(Op::Cos, {a}); }
  Value floor(Value a) { return apply(Op::Floor, {a}); }
  Value ceil(Value a) { return apply(Op::Ceil, {a}); }
  Value trunc(Value a) { return apply(Op::Trunc, {a}); }
  Value rint(Value a) { return apply(Op::Rint, {a}); }
  Value bit_and(Value a, Value b) { return apply(Op::And, {a, b}); }
  Value bit_or(Value a, Value b) { return apply(Op::Or, {a, b}); }
  Value bit_xor(Value a, Value b) { return apply(Op::Xor, {a, b}); }
  Value bit_not(Value a) { return apply(Op::Not, {a}); }
  Value shl(Value a, Value b) { return apply(Op::Shl, {a, b}); }
  Value shr(Value a, Value b) { return apply(Op::Shr, {a, b}); }
  Value eq(Value a, Value b) { return apply(Op::Eq, {a, b}); }
  Value ne(Value a, Value b) { return apply(Op::Ne, {a, b}); }
  Value lt(Value a, Value b) { return apply(Op::Lt, {a, b}); }
  Value le(Value a, Value b) { return apply(Op::Le, {a, b}); }
  Value gt(Value a, Value b) { return apply(Op::Gt, {a, b}); }
  Value ge(Value a, Value b) { return apply(Op::Ge, {a, b}); }
  Value select(Value condition, Value a, Value b) { return apply(Op::Select, {condition, a, b}); }
  // clang-format on

  // The row-major coordinates of a flat index: its quotients and remainders by `dims`, outermost
  // first. The first coordinate is not reduced, so dims[0] does not matter.
  std::vector<Value> unflatten(Value index, std::span<const Size> dims);

  DType dtype(Value v) const { return kernel_[v].dtype; }
  const Kernel& peek() const { return kernel_; }

  // Closes, hoists invariants out of loops, verifies. Free constants become arguments, whose words are
  // appended to `words` (those of size() come before them); without `words` they stay constants.
  Kernel finish(std::vector<int64_t>* words = nullptr);

 private:
  Value push(Instr instr);
  void make_arguments(std::vector<int64_t>& words);

  Kernel kernel_;
  std::vector<Value> open_loops_;
};

}  // namespace rlx::codegen
