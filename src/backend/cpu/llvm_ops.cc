#include "rlx/backend/cpu/llvm_ops.h"

#include <bit>
#include <cmath>

#include "rlx/base/error.h"

namespace rlx::cpu {
namespace {

using codegen::Combine;
using codegen::KernelOp;

llvm::Type* shaped(llvm::Type* scalar, int lanes) {
  return lanes == 1 ? scalar : llvm::FixedVectorType::get(scalar, static_cast<unsigned>(lanes));
}
// The same shape with another element type.
llvm::Type* reshaped(llvm::Value* like, llvm::Type* scalar) {
  auto* v = llvm::dyn_cast<llvm::FixedVectorType>(like->getType());
  return v ? llvm::FixedVectorType::get(scalar, v->getNumElements()) : scalar;
}
llvm::Value* integer(llvm::Value* like, int64_t v) {
  return llvm::ConstantInt::get(like->getType(), static_cast<uint64_t>(v), true);
}

}  // namespace

llvm::Type* LlvmOps::value_type(DType dtype, int lanes) {
  if (dtype == DType::Bool) return shaped(b_.getInt1Ty(), lanes);
  if (dtype == DType::F32) return shaped(b_.getFloatTy(), lanes);
  if (dtype == DType::F64) return shaped(b_.getDoubleTy(), lanes);
  return shaped(b_.getIntNTy(8 * static_cast<unsigned>(size_of(dtype))), lanes);
}

llvm::Type* LlvmOps::memory_type(DType dtype, int lanes) {
  if (dtype == DType::C64) return value_type(DType::F32, lanes);
  if (dtype == DType::Bool) return shaped(b_.getInt8Ty(), lanes);
  if (is_narrow(dtype))
    return shaped(b_.getIntNTy(8 * static_cast<unsigned>(size_of(dtype))), lanes);
  return value_type(dtype, lanes);
}

llvm::Value* LlvmOps::constant(DType dtype, uint64_t bits) {
  if (dtype == DType::F32)
    return llvm::ConstantFP::get(b_.getContext(),
                                 llvm::APFloat(std::bit_cast<float>(static_cast<uint32_t>(bits))));
  if (dtype == DType::F64)
    return llvm::ConstantFP::get(b_.getContext(), llvm::APFloat(std::bit_cast<double>(bits)));
  return llvm::ConstantInt::get(value_type(dtype, 1), bits);
}

llvm::Value* LlvmOps::apply(KernelOp op, DType dtype, std::array<llvm::Value*, 3> x,
                            llvm::Value* active) {
  switch (op) {
    case KernelOp::Select:
      return b_.CreateSelect(x[0], x[1], x[2]);
    case KernelOp::Max:
      return extremum(true, dtype, x[0], x[1]);
    case KernelOp::Min:
      return extremum(false, dtype, x[0], x[1]);
    case KernelOp::Eq:
    case KernelOp::Ne:
    case KernelOp::Lt:
    case KernelOp::Le:
    case KernelOp::Gt:
    case KernelOp::Ge:
      return compare(op, dtype, x[0], x[1]);
    default:
      return is_float(dtype) ? float_op(op, x, active) : int_op(op, dtype, x[0], x[1]);
  }
}

llvm::Value* LlvmOps::float_op(KernelOp op, std::array<llvm::Value*, 3> x, llvm::Value* active) {
  llvm::Value *a = x[0], *b = x[1];
  auto intrinsic = [&](llvm::Intrinsic::ID id) { return b_.CreateUnaryIntrinsic(id, a); };
  switch (op) {
    case KernelOp::Add:
      return b_.CreateFAdd(a, b);
    case KernelOp::Sub:
      return b_.CreateFSub(a, b);
    case KernelOp::Mul:
      return b_.CreateFMul(a, b);
    case KernelOp::Div:
      return b_.CreateFDiv(a, b);
    case KernelOp::Rem:
      return b_.CreateFRem(a, b);
    case KernelOp::Pow:
      return math_.pow(a, b);
    case KernelOp::CopySign:
      return math_.copysign(a, b);
    case KernelOp::Fma:
      return math_.fma(a, b, x[2]);
    case KernelOp::Neg:
      return b_.CreateFNeg(a);
    case KernelOp::Abs:
      return math_.abs(a);
    case KernelOp::Sqrt:
      return intrinsic(llvm::Intrinsic::sqrt);
    case KernelOp::Exp:
      return math_.exp(a);
    case KernelOp::Log:
      return math_.log(a);
    case KernelOp::Tanh:
      return math_.tanh(a);
    case KernelOp::Erf:
      return math_.erf(a);
    case KernelOp::Sin:
      return math_.sin(a, active);
    case KernelOp::Cos:
      return math_.cos(a, active);
    case KernelOp::Floor:
      return intrinsic(llvm::Intrinsic::floor);
    case KernelOp::Ceil:
      return intrinsic(llvm::Intrinsic::ceil);
    case KernelOp::Trunc:
      return intrinsic(llvm::Intrinsic::trunc);
    case KernelOp::Rint:
      return intrinsic(llvm::Intrinsic::roundeven);
    default:
      fail(ErrorKind::internal, "internal", "emitter: {} of floats", info(op).name);
  }
}

llvm::Value* LlvmOps::int_op(KernelOp op, DType dtype, llvm::Value* a, llvm::Value* b) {
  switch (op) {
    case KernelOp::Add:
      return b_.CreateAdd(a, b);
    case KernelOp::Sub:
      return b_.CreateSub(a, b);
    case KernelOp::Mul:
      return b_.CreateMul(a, b);
    case KernelOp::Div:
    case KernelOp::Rem:
      return divide(op, dtype, a, b);
    case KernelOp::Shl:
    case KernelOp::Shr:
      return shift(op, dtype, a, b);
    case KernelOp::UMulHi: {
      llvm::Type* wide = reshaped(a, b_.getInt64Ty());
      llvm::Value* p = b_.CreateMul(b_.CreateZExt(a, wide), b_.CreateZExt(b, wide));
      return b_.CreateTrunc(b_.CreateLShr(p, integer(p, 32)), a->getType());
    }
    case KernelOp::Neg:
      return b_.CreateNeg(a);
    case KernelOp::Abs:
      return info(dtype).is_signed
                 ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, a, b_.getFalse())
                 : a;
    case KernelOp::And:
      return b_.CreateAnd(a, b);
    case KernelOp::Or:
      return b_.CreateOr(a, b);
    case KernelOp::Xor:
      return b_.CreateXor(a, b);
    case KernelOp::Not:
      return b_.CreateNot(a);
    default:
      fail(ErrorKind::internal, "internal", "emitter: {} of {}", info(op).name, dtype);
  }
}

// The divisors 0 and (signed) -1 are replaced by 1, and their quotients put in afterwards.
llvm::Value* LlvmOps::divide(KernelOp op, DType dtype, llvm::Value* a, llvm::Value* b) {
  bool is_signed = info(dtype).is_signed;
  llvm::Value* zero = b_.CreateICmpEQ(b, integer(b, 0));
  llvm::Value* minus = is_signed ? b_.CreateICmpEQ(b, integer(b, -1)) : nullptr;
  llvm::Value* odd = minus ? b_.CreateOr(zero, minus) : zero;
  llvm::Value* d = b_.CreateSelect(odd, integer(b, 1), b);
  if (op == KernelOp::Rem) return is_signed ? b_.CreateSRem(a, d) : b_.CreateURem(a, d);
  llvm::Value* q = is_signed ? b_.CreateSDiv(a, d) : b_.CreateUDiv(a, d);
  if (minus) q = b_.CreateSelect(minus, b_.CreateNeg(a), q);
  return b_.CreateSelect(zero, integer(b, 0), q);
}

llvm::Value* LlvmOps::shift(KernelOp op, DType dtype, llvm::Value* a, llvm::Value* b) {
  int64_t width = 8 * size_of(dtype);
  llvm::Value* inside = b_.CreateICmpULT(b, integer(b, width));
  if (op == KernelOp::Shr && info(dtype).is_signed)
    return b_.CreateAShr(a, b_.CreateSelect(inside, b, integer(b, width - 1)));
  llvm::Value* by = b_.CreateSelect(inside, b, integer(b, 0));
  llvm::Value* moved = op == KernelOp::Shl ? b_.CreateShl(a, by) : b_.CreateLShr(a, by);
  return b_.CreateSelect(inside, moved, integer(a, 0));
}

llvm::Value* LlvmOps::compare(KernelOp op, DType dtype, llvm::Value* a, llvm::Value* b) {
  using P = llvm::CmpInst::Predicate;
  // Rows: Eq Ne Lt Le Gt Ge; columns: float, signed, unsigned.
  static constexpr P kPredicates[6][3] = {
      {P::FCMP_OEQ, P::ICMP_EQ, P::ICMP_EQ},   {P::FCMP_UNE, P::ICMP_NE, P::ICMP_NE},
      {P::FCMP_OLT, P::ICMP_SLT, P::ICMP_ULT}, {P::FCMP_OLE, P::ICMP_SLE, P::ICMP_ULE},
      {P::FCMP_OGT, P::ICMP_SGT, P::ICMP_UGT}, {P::FCMP_OGE, P::ICMP_SGE, P::ICMP_UGE},
  };
  int column = is_float(dtype) ? 0 : info(dtype).is_signed ? 1 : 2;
  return b_.CreateCmp(kPredicates[static_cast<int>(op) - static_cast<int>(KernelOp::Eq)][column], a,
                      b);
}

llvm::Value* LlvmOps::extremum(bool max, DType dtype, llvm::Value* a, llvm::Value* b) {
  if (is_bool(dtype)) return max ? b_.CreateOr(a, b) : b_.CreateAnd(a, b);
  if (!is_float(dtype)) {
    bool s = info(dtype).is_signed;
    auto id = max ? (s ? llvm::Intrinsic::smax : llvm::Intrinsic::umax)
                  : (s ? llvm::Intrinsic::smin : llvm::Intrinsic::umin);
    return b_.CreateBinaryIntrinsic(id, a, b);
  }
  // The inner select is one vmaxps; it gives b on NaN, so only a NaN in a needs the outer one.
  llvm::Value* first = b_.CreateSelect(max ? b_.CreateFCmpOGT(a, b) : b_.CreateFCmpOLT(a, b), a, b);
  return b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, first);
}

llvm::Value* LlvmOps::cast(llvm::Value* x, DType from, DType to) {
  if (from == to) return x;
  llvm::Type* type = reshaped(x, value_type(to, 1));
  bool is_signed = info(from).is_signed;
  if (to == DType::Bool) {
    llvm::Value* zero = llvm::Constant::getNullValue(x->getType());
    return is_float(from) ? b_.CreateFCmpUNE(x, zero) : b_.CreateICmpNE(x, zero);
  }
  if (is_float(from)) {
    if (is_float(to)) return b_.CreateFPCast(x, type);
    auto id = info(to).is_signed ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
    return b_.CreateIntrinsic(id, {type, x->getType()}, {x});
  }
  if (is_float(to)) return is_signed ? b_.CreateSIToFP(x, type) : b_.CreateUIToFP(x, type);
  return is_signed ? b_.CreateSExtOrTrunc(x, type) : b_.CreateZExtOrTrunc(x, type);
}

// F64 to F32 such that a second rounding to fewer bits rounds as if only once: truncate, and set
// the last bit if anything was lost.
llvm::Value* LlvmOps::round_to_odd(llvm::Value* x) {
  llvm::Type* narrow = reshaped(x, b_.getFloatTy());
  llvm::Value* near = b_.CreateFPTrunc(x, narrow);
  llvm::Value* back = b_.CreateFPExt(near, x->getType());
  llvm::Value* bits = b_.CreateBitCast(near, reshaped(x, b_.getInt32Ty()));
  llvm::Value* away = b_.CreateFCmpOGT(math_.abs(back), math_.abs(x));
  llvm::Value* odd =
      b_.CreateOr(b_.CreateSub(bits, b_.CreateZExt(away, bits->getType())), integer(bits, 1));
  return b_.CreateBitCast(b_.CreateSelect(b_.CreateFCmpONE(back, x), odd, bits), narrow);
}

// The upper half of the F32 bits, rounded to nearest even; NaN stays a quiet NaN.
llvm::Value* LlvmOps::bf16_bits(llvm::Value* x) {
  llvm::Value* u = b_.CreateBitCast(x, reshaped(x, b_.getInt32Ty()));
  llvm::Value* last = b_.CreateAnd(b_.CreateLShr(u, integer(u, 16)), integer(u, 1));
  llvm::Value* rounded = b_.CreateAdd(b_.CreateAdd(u, integer(u, 0x7fff)), last);
  llvm::Value* quiet = b_.CreateOr(u, integer(u, 0x400000));
  return b_.CreateLShr(b_.CreateSelect(b_.CreateFCmpUNO(x, x), quiet, rounded), integer(u, 16));
}

// The code of an F32 value in a format of one byte, as I32.
llvm::Value* LlvmOps::f8_bits(llvm::Value* x, const NarrowFloat& f) {
  llvm::Value* u = b_.CreateBitCast(x, reshaped(x, b_.getInt32Ty()));
  llvm::Value* magnitude = b_.CreateAnd(u, integer(u, 0x7fffffff));
  // Normal numbers: the mantissa is cut, half to even, and the exponent gets the bias of the format.
  const int cut = 23 - f.mantissa_bits, first = 127 + 1 - f.bias;
  llvm::Value* last = b_.CreateAnd(b_.CreateLShr(magnitude, integer(u, cut)), integer(u, 1));
  llvm::Value* rounded =
      b_.CreateAdd(b_.CreateAdd(magnitude, integer(u, (1 << (cut - 1)) - 1)), last);
  llvm::Value* normal = b_.CreateSub(b_.CreateLShr(rounded, integer(u, cut)),
                                     integer(u, (first - 1) << f.mantissa_bits));
  // Subnormal ones: beside a number whose last place is theirs, the sum rounds.
  const auto anchor = static_cast<int64_t>(first + cut) << 23;
  llvm::Value* base = b_.CreateBitCast(integer(u, anchor), x->getType());
  llvm::Value* sum = b_.CreateFAdd(b_.CreateBitCast(magnitude, x->getType()), base);
  llvm::Value* small = b_.CreateSub(b_.CreateBitCast(sum, u->getType()), integer(u, anchor));
  llvm::Value* code = b_.CreateSelect(
      b_.CreateICmpULT(magnitude, integer(u, static_cast<int64_t>(first) << 23)), small, normal);
  code = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, code, integer(u, f.largest + 1));
  code = b_.CreateSelect(b_.CreateFCmpUNO(x, x), integer(u, f.nan), code);
  return b_.CreateOr(code, b_.CreateAnd(b_.CreateLShr(u, integer(u, 24)), integer(u, 0x80)));
}

// The F32 value of such a code, as I32.
llvm::Value* LlvmOps::f8_value(llvm::Value* u, const NarrowFloat& f) {
  llvm::Type* f32 = reshaped(u, b_.getFloatTy());
  llvm::Value* code = b_.CreateAnd(u, integer(u, 0x7f));
  llvm::Value* normal = b_.CreateAdd(b_.CreateShl(code, integer(u, 23 - f.mantissa_bits)),
                                     integer(u, static_cast<int64_t>(127 - f.bias) << 23));
  const double unit = std::ldexp(1.0, 1 - f.bias - f.mantissa_bits);
  llvm::Value* small = b_.CreateBitCast(
      b_.CreateFMul(b_.CreateSIToFP(code, f32), llvm::ConstantFP::get(f32, unit)), u->getType());
  llvm::Value* bits =
      b_.CreateSelect(b_.CreateICmpULT(code, integer(u, 1 << f.mantissa_bits)), small, normal);
  const int64_t beyond = f.largest + 1;
  bits = b_.CreateSelect(b_.CreateICmpUGE(code, integer(u, beyond)), integer(u, 0x7fc00000), bits);
  if (beyond != f.nan)
    bits = b_.CreateSelect(b_.CreateICmpEQ(code, integer(u, beyond)), integer(u, 0x7f800000), bits);
  llvm::Value* sign = b_.CreateShl(b_.CreateAnd(u, integer(u, 0x80)), integer(u, 24));
  return b_.CreateBitCast(b_.CreateOr(bits, sign), f32);
}

llvm::Value* LlvmOps::round(llvm::Value* x, DType from, DType memory) {
  if (from == DType::F64) x = round_to_odd(x);
  if (size_of(memory) == 1) return f8_value(f8_bits(x, *info(memory).narrow), *info(memory).narrow);
  if (memory == DType::F16)
    return b_.CreateFPExt(b_.CreateFPTrunc(x, reshaped(x, b_.getHalfTy())), x->getType());
  llvm::Value* h = bf16_bits(x);
  return b_.CreateBitCast(b_.CreateShl(h, integer(h, 16)), x->getType());
}

llvm::Value* LlvmOps::from_memory(llvm::Value* x, DType memory) {
  if (memory == DType::Bool) return b_.CreateICmpNE(x, integer(x, 0));
  llvm::Type* f32 = reshaped(x, b_.getFloatTy());
  if (memory == DType::F16)
    return b_.CreateFPExt(b_.CreateBitCast(x, reshaped(x, b_.getHalfTy())), f32);
  if (memory == DType::BF16) {
    llvm::Value* wide = b_.CreateZExt(x, reshaped(x, b_.getInt32Ty()));
    return b_.CreateBitCast(b_.CreateShl(wide, integer(wide, 16)), f32);
  }
  if (const NarrowFloat* f = info(memory).narrow)
    return f8_value(b_.CreateZExt(x, reshaped(x, b_.getInt32Ty())), *f);
  return x;
}

llvm::Value* LlvmOps::to_memory(llvm::Value* x, DType memory) {
  llvm::Type* type = reshaped(x, memory_type(memory, 1));
  if (memory == DType::Bool) return b_.CreateZExt(x, type);
  if (memory == DType::F16)
    return b_.CreateBitCast(b_.CreateFPTrunc(x, reshaped(x, b_.getHalfTy())), type);
  if (memory == DType::BF16) return b_.CreateTrunc(bf16_bits(x), type);
  if (const NarrowFloat* f = info(memory).narrow) return b_.CreateTrunc(f8_bits(x, *f), type);
  return x;
}

llvm::Value* LlvmOps::combine(Combine how, DType dtype, llvm::Value* a, llvm::Value* b) {
  static constexpr KernelOp kOps[] = {KernelOp::Const, KernelOp::Add, KernelOp::Mul, KernelOp::Max,
                                      KernelOp::Min,   KernelOp::And, KernelOp::Or};
  return apply(kOps[static_cast<int>(how)], dtype, {a, b, nullptr}, nullptr);
}

llvm::Value* LlvmOps::identity(Combine how, DType dtype, int lanes) {
  llvm::Type* type = value_type(dtype, lanes);
  bool max = how == Combine::Max;
  switch (how) {
    case Combine::Add:
      return is_float(dtype) ? llvm::ConstantFP::get(type, -0.0)
                             : llvm::Constant::getNullValue(type);
    case Combine::Mul:
      return is_float(dtype) ? llvm::ConstantFP::get(type, 1) : llvm::ConstantInt::get(type, 1);
    case Combine::And:
      return llvm::Constant::getAllOnesValue(type);
    case Combine::Max:
    case Combine::Min: {
      if (is_float(dtype)) return llvm::ConstantFP::get(type, max ? -INFINITY : INFINITY);
      unsigned bits = type->getScalarSizeInBits();
      bool s = info(dtype).is_signed;
      auto value =
          max ? (s ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt::getMinValue(bits))
              : (s ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getMaxValue(bits));
      return llvm::ConstantInt::get(type, value);
    }
    default:
      return llvm::Constant::getNullValue(type);
  }
}

llvm::Value* LlvmOps::reduce(Combine how, DType dtype, llvm::Value* x) {
  auto* type = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  if (!type) return x;
  int lanes = static_cast<int>(type->getNumElements());
  for (; lanes > 2; lanes /= 2) {
    std::vector<int> low(lanes / 2), high(lanes / 2);
    for (int i = 0; i < lanes / 2; ++i) low[i] = i, high[i] = i + lanes / 2;
    x = combine(how, dtype, b_.CreateShuffleVector(x, low), b_.CreateShuffleVector(x, high));
  }
  return combine(how, dtype, b_.CreateExtractElement(x, uint64_t{0}),
                 b_.CreateExtractElement(x, uint64_t{1}));
}

}  // namespace rlx::cpu
