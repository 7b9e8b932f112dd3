#include "rlx/backend/cpu/vector_math.h"

#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>

#include <bit>
#include <cmath>

namespace rlx::cpu {
namespace {

using llvm::Intrinsic::ID;
using Coefficients = std::span<const double>;

// Lowest power first. Each stands next to the error of the polynomial itself.
// e^r = 1 + r + r^2 P(r), |r| <= ln2/2: 2^-28.2 and 2^-57.9.
constexpr double kExp32[] = {0x1.fffffap-2, 0x1.555492p-3, 0x1.555a26p-5, 0x1.12397ep-7,
                             0x1.694c8ep-10};
constexpr double kExp64[] = {0x1.000000000000ap-1,  0x1.55555555554fep-3,  0x1.55555555506bcp-5,
                             0x1.1111111126b36p-7,  0x1.6c16c18477082p-10, 0x1.a01a012fee98bp-13,
                             0x1.a019995efb56cp-16, 0x1.71df18ef7a9d3p-19, 0x1.28adfccab85d4p-22,
                             0x1.ad92e88f87de4p-26};
// 2^f = 1 + f P(f), |f| <= 1/2: 2^-34.3.
constexpr double kExp2[] = {0x1.62e42ff0e191dp-1, 0x1.ebfbe0778724bp-3,  0x1.c6b08ac06c325p-5,
                            0x1.3b29f39d4d49cp-7, 0x1.5d8a85fe7833cp-10, 0x1.445c840469a21p-13,
                            0x1.fde5fe328a61ep-17};
// log(1+f) = f - f^2/2 + f^3 P(f), sqrt(1/2) <= 1+f < sqrt(2): 2^-27.9.
constexpr double kLog32[] = {0x1.555554p-2,  -0x1.ffffe6p-3, 0x1.999d2ap-3,
                             -0x1.556288p-3, 0x1.23de4p-3,   -0x1.fbbf2ep-4,
                             0x1.dc75e8p-4,  -0x1.ddb2cep-4, 0x1.2cb40ep-4};
// 2 atanh(s) = 2s + s^3 P(s^2), |s| <= 0.1716: 2^-66.6.
constexpr double kLog64[] = {0x1.5555555555555p-1, 0x1.9999999999d0dp-2, 0x1.2492492439e63p-2,
                             0x1.c71c724ae8c6cp-3, 0x1.745ce1ef71f1bp-3, 0x1.3b201e2f4829cp-3,
                             0x1.0f67cb02b1ca3p-3, 0x1.0f095098a4f7bp-3};
// 2 atanh(s) / ln 2 = s P(s^2): 2^-45.
constexpr double kLog2[] = {0x1.71547652b8251p1,  0x1.ec709dc53cbb8p-1, 0x1.2776c292c6717p-1,
                            0x1.a61a2f3565697p-2, 0x1.47954351a2819p-2, 0x1.21b20cb67474bp-2};
// 2 atanh(s) = 2s + (2/3) s^3 + s^5 P(s^2): 2^-73.5.
constexpr double kPow64[] = {0x1.9999999999996p-2, 0x1.2492492492f4cp-2, 0x1.c71c71c597639p-3,
                             0x1.745d1828e749ep-3, 0x1.3b1364e71b3e7p-3, 0x1.11206ad848242p-3,
                             0x1.de3e174738e5dp-4, 0x1.eac0abbd80e8p-4};
// sin r = r + r^3 P(r^2), cos r = 1 - r^2/2 + r^4 P(r^2), |r| <= pi/4: 2^-32, 2^-33; 2^-57.9,
// 2^-63.9.
constexpr double kSin32[] = {-0x1.555556p-3, 0x1.111164p-7, -0x1.a04866p-13, 0x1.77e1f8p-19};
constexpr double kCos32[] = {0x1.55554ap-5, -0x1.6c0c2ap-10, 0x1.99e91p-16};
constexpr double kSin64[] = {-0x1.5555555555548p-3, 0x1.111111110f75dp-7,   -0x1.a01a019bf222ep-13,
                             0x1.71de355f05599p-19, -0x1.ae5e5471f5501p-26, 0x1.5d8e3511cdb44p-33};
constexpr double kCos64[] = {0x1.555555555554bp-5,  -0x1.6c16c16c15016p-10,
                             0x1.a01a019c8f3eep-16, -0x1.27e4f7f19d4b2p-22,
                             0x1.1ee9dbd0d86a6p-29, -0x1.8fa681e385241p-37};
// tanh a = a + a^3 P(a^2), a <= 0.625: 2^-27.7, 2^-64.5.
constexpr double kTanh32[] = {-0x1.555532p-2, 0x1.110704p-3, -0x1.b838ap-5, 0x1.5211c4p-6,
                              -0x1.758facp-8};
constexpr double kTanh64[] = {
    -0x1.5555555555555p-2,  0x1.11111111110a4p-3,  -0x1.ba1ba1ba15076p-5,  0x1.664f4881123e3p-6,
    -0x1.226e351bdc9d9p-7,  0x1.d6d3c369027eep-9,  -0x1.7da2751bd4551p-10, 0x1.354c76129c666p-11,
    -0x1.f4ad533139258p-13, 0x1.91546e2093385p-14, -0x1.326ab0a95ade1p-15, 0x1.88f13f449675ap-17,
    -0x1.2c9d181eaa3bep-19};
// erf a = a + a P(a^2), a <= 1: 2^-29.3, 2^-56.3.
constexpr double kErf32[] = {0x1.06eba8p-3, -0x1.81273ep-2,  0x1.ce2cf2p-4, -0x1.b7f88cp-6,
                             0x1.540172p-8, -0x1.a3d812p-11, 0x1.4917a4p-14};
constexpr double kErf64[] = {0x1.06eba8214db69p-3,   -0x1.812746b037a01p-2,  0x1.ce2f21a043a4bp-4,
                             -0x1.b82ce312c3f19p-6,  0x1.565bcd1703c1bp-8,   -0x1.c02db58fba349p-11,
                             0x1.f9a35700e6658p-14,  -0x1.f4d650a9a51fbp-17, 0x1.ba20bf6ac4727p-20,
                             -0x1.61c1f963fcd86p-23, 0x1.0e569f6d48977p-26,  -0x1.e0f4558a5992cp-30,
                             0x1.21f7531873ff8p-32,  -0x1.0a0fda1429ae7p-35};
// erf a = 1 - exp(-P(a)), 1 <= a <= 4: 2^-28.7 of erf.
constexpr double kErfTail32[] = {-0x1.313174p-12, 0x1.214f8ap0,   0x1.439734p-1,
                                 0x1.c2314ap-4,   -0x1.af5b2ep-6, 0x1.35d7dcp-8,
                                 -0x1.357426p-11, 0x1.7c05a8p-15, -0x1.ad813p-20};
// exp(a^2) erfc(a) = P((a - 2.5) / (a + 2.5)), 1 <= a <= 6: 2^-55.
constexpr double kErfTail64[] = {
    0x1.afbb3f3b7343bp-3,  -0x1.7ca88dec217a7p-2,  0x1.01c11a735cd7ep-2,   -0x1.0011543716b92p-3,
    0x1.470ba1f6827b7p-5,  -0x1.05bb2fe64b57bp-8,  -0x1.5a5716d643bd1p-9,  0x1.cb3b624898152p-11,
    0x1.def2d2bf2e414p-13, -0x1.0e4690e46c672p-13, -0x1.1ebf80e168868p-15, 0x1.38599128092fp-16,
    0x1.fb296322a45c5p-18, -0x1.36d172d23ccb1p-19, -0x1.e7ae03905097cp-20, 0x1.1c22572d76e7bp-23,
    0x1.85f84ef2c0fc8p-22};

// What the formats differ in, beside polynomials.
struct Format {
  int mantissa_bits;
  int64_t half_root_bits;  // sqrt(1/2)
  double round_magic;      // 1.5 * 2^mantissa_bits: adding it rounds to an integer in the low bits
  double ln2[2], log2e, two_over_pi, half_pi[3];
  double exp_low, exp_high;  // beyond: 0 and infinity for sure
  double smallest_normal;
  double trig_limit;
};
constexpr Format kFormat32{23,
                           0x3f3504f3,
                           0x1.8p23,
                           {0x1.62e43p-1, -0x1.05c61p-29},
                           0x1.715476p0,
                           0x1.45f306p-1,
                           {0x1.921fb6p0, -0x1.777a5cp-25, -0x1.ee59dap-50},
                           -104.0,
                           89.0,
                           0x1p-126,
                           0x1p15};
constexpr Format kFormat64{52,
                           0x3fe6a09e667f3bcd,
                           0x1.8p52,
                           {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56},
                           0x1.71547652b82fep0,
                           0x1.45f306dc9c883p-1,
                           {0x1.921fb54442d18p0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110},
                           -746.0,
                           710.0,
                           0x1p-1022,
                           0x1p24};
constexpr double kLn2Short[2] = {0x1.62e42fefa4p-1,
                                 -0x1.8432a1b0e2634p-43};  // 40 bits and the rest
constexpr double kTwoThirds[2] = {0x1.5555555555555p-1, 0x1.5555555555555p-55};

bool is_double(llvm::Value* x) { return x->getType()->getScalarType()->isDoubleTy(); }
const Format& format(llvm::Value* x) { return is_double(x) ? kFormat64 : kFormat32; }

llvm::Type* with_scalar(llvm::Type* shape, llvm::Type* scalar) {
  auto* v = llvm::dyn_cast<llvm::FixedVectorType>(shape);
  return v ? llvm::FixedVectorType::get(scalar, v->getNumElements()) : scalar;
}
int lanes_of(llvm::Value* x) {
  auto* v = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  return v ? static_cast<int>(v->getNumElements()) : 1;
}

template <class T, bool cosine>
void trig_lanes(T* x, int64_t count) {
  double limit = std::is_same_v<T, double> ? kFormat64.trig_limit : kFormat32.trig_limit;
  for (int64_t i = 0; i < count; ++i) {
    double v = x[i];
    if (std::abs(v) > limit) x[i] = static_cast<T>(cosine ? std::cos(v) : std::sin(v));
  }
}
constexpr const char* kTrigNames[2][2] = {{"rlx_sin_f32", "rlx_cos_f32"},
                                          {"rlx_sin_f64", "rlx_cos_f64"}};

}  // namespace

std::span<const MathSymbol> math_symbols() {
  static const MathSymbol symbols[] = {
      {kTrigNames[0][0], reinterpret_cast<void*>(&trig_lanes<float, false>)},
      {kTrigNames[0][1], reinterpret_cast<void*>(&trig_lanes<float, true>)},
      {kTrigNames[1][0], reinterpret_cast<void*>(&trig_lanes<double, false>)},
      {kTrigNames[1][1], reinterpret_cast<void*>(&trig_lanes<double, true>)},
  };
  return symbols;
}

// ---- Building blocks

llvm::Value* VectorMath::real(llvm::Value* like, double value) {
  return llvm::ConstantFP::get(like->getType(), value);
}
llvm::Value* VectorMath::bits(llvm::Value* like, int64_t value) {
  llvm::Type* t = with_scalar(like->getType(), b_.getIntNTy(is_double(like) ? 64 : 32));
  return llvm::ConstantInt::get(t, static_cast<uint64_t>(value), true);
}
llvm::Value* VectorMath::to_bits(llvm::Value* x) {
  return b_.CreateBitCast(x, bits(x, 0)->getType());
}
llvm::Value* VectorMath::from_bits(llvm::Value* x, llvm::Value* like) {
  return b_.CreateBitCast(x, like->getType());
}
llvm::Value* VectorMath::fma(llvm::Value* a, llvm::Value* b, llvm::Value* c) {
  return b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
}
llvm::Value* VectorMath::copysign(llvm::Value* magnitude, llvm::Value* sign) {
  return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, magnitude, sign);
}
llvm::Value* VectorMath::abs(llvm::Value* x) {
  return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
}

llvm::Value* VectorMath::poly(llvm::Value* x, Coefficients c) {
  llvm::Value* p = real(x, c.back());
  for (size_t i = c.size() - 1; i-- > 0;) p = fma(p, x, real(x, c[i]));
  return p;
}

// NaN stays NaN.
llvm::Value* VectorMath::clamp(llvm::Value* x, double low, double high) {
  llvm::Value *l = real(x, low), *h = real(x, high);
  x = b_.CreateSelect(b_.CreateFCmpOLT(x, l), l, x);
  return b_.CreateSelect(b_.CreateFCmpOGT(x, h), h, x);
}

llvm::Value* VectorMath::power_of_two(llvm::Value* n_bits, llvm::Value* like) {
  const Format& f = format(like);
  int64_t bias = is_double(like) ? 1023 : 127;
  llvm::Value* e = b_.CreateAdd(n_bits, bits(like, bias));
  return from_bits(b_.CreateShl(e, bits(like, f.mantissa_bits)), like);
}

// p * 2^n rounded once; n may lie a little outside the exponent range.
llvm::Value* VectorMath::scale(llvm::Value* p, llvm::Value* n, llvm::Value* n_bits) {
  ID id = llvm::Intrinsic::not_intrinsic;
  int width = lanes_of(p) * (is_double(p) ? 64 : 32);
  if (avx512_ && width == 512)
    id = is_double(p) ? llvm::Intrinsic::x86_avx512_mask_scalef_pd_512
                      : llvm::Intrinsic::x86_avx512_mask_scalef_ps_512;
  if (id != llvm::Intrinsic::not_intrinsic) {
    auto* all = llvm::ConstantInt::getAllOnesValue(b_.getIntNTy(lanes_of(p)));
    return b_.CreateIntrinsic(id, {}, {p, n, p, all, b_.getInt32(4)});
  }
  // In two exact factors, so that a denormal result is rounded by the second product only.
  llvm::Value* half = b_.CreateLShr(b_.CreateAdd(n_bits, bits(p, 4096)), bits(p, 1));
  llvm::Value* n1 = b_.CreateSub(half, bits(p, 2048));
  llvm::Value* n2 = b_.CreateSub(n_bits, n1);
  return b_.CreateFMul(b_.CreateFMul(p, power_of_two(n1, p)), power_of_two(n2, p));
}

llvm::Value* VectorMath::exp_kernel(llvm::Value* r) {
  llvm::Value* p = poly(r, is_double(r) ? Coefficients(kExp64) : Coefficients(kExp32));
  return b_.CreateFAdd(fma(p, b_.CreateFMul(r, r), r), real(r, 1));
}

// exp(x + low) for a small correction `low` (or null). full_range: results may be denormal or
// infinite; x is already within [exp_low, exp_high].
llvm::Value* VectorMath::exp_of_sum(llvm::Value* x, llvm::Value* low, bool full_range) {
  const Format& f = format(x);
  llvm::Value* magic = real(x, f.round_magic);
  llvm::Value* t = fma(x, real(x, f.log2e), magic);
  llvm::Value* n = b_.CreateFSub(t, magic);
  llvm::Value* r = fma(n, real(x, -f.ln2[0]), x);
  r = fma(n, real(x, -f.ln2[1]), r);
  if (low) r = b_.CreateFAdd(r, low);
  llvm::Value* n_bits = b_.CreateSub(to_bits(t), to_bits(magic));
  llvm::Value* p = exp_kernel(r);
  if (full_range) return scale(p, n, n_bits);
  return b_.CreateFMul(p, power_of_two(n_bits, x));
}

// x = 2^exponent * mantissa for x > 0. denormals: x may be one.
VectorMath::Split VectorMath::split(llvm::Value* x, bool denormals) {
  const Format& f = format(x);
  llvm::Value* shift = real(x, 0);
  if (denormals) {
    llvm::Value* tiny = b_.CreateFCmpOLT(x, real(x, f.smallest_normal));
    llvm::Value* factor = real(x, std::ldexp(1.0, f.mantissa_bits + 1));
    shift = b_.CreateSelect(tiny, real(x, f.mantissa_bits + 1), shift);
    x = b_.CreateSelect(tiny, b_.CreateFMul(x, factor), x);
  }
  // The exponent with a bias that keeps it positive, moved into the low bits of 2^mantissa_bits.
  int64_t bias = is_double(x) ? 1100 : 200;
  llvm::Value *i = to_bits(x), *m = bits(x, f.mantissa_bits);
  llvm::Value* e =
      b_.CreateLShr(b_.CreateAdd(i, bits(x, (bias << f.mantissa_bits) - f.half_root_bits)), m);
  llvm::Value* mantissa = b_.CreateSub(i, b_.CreateShl(b_.CreateSub(e, bits(x, bias)), m));
  double base = std::ldexp(1.0, f.mantissa_bits);
  llvm::Value* biased = from_bits(b_.CreateOr(e, to_bits(real(x, base))), x);
  llvm::Value* exponent = b_.CreateFSub(biased, real(x, base + static_cast<double>(bias)));
  if (denormals) exponent = b_.CreateFSub(exponent, shift);
  return {exponent, from_bits(mantissa, x)};
}

// ---- exp, log, tanh, erf

llvm::Value* VectorMath::exp(llvm::Value* x) {
  const Format& f = format(x);
  return exp_of_sum(clamp(x, f.exp_low, f.exp_high), nullptr, true);
}

llvm::Value* VectorMath::log(llvm::Value* x) {
  const Format& fm = format(x);
  auto [e, m] = split(x, true);
  llvm::Value* f = b_.CreateFSub(m, real(x, 1));
  llvm::Value* half_square = b_.CreateFMul(b_.CreateFMul(f, f), real(x, 0.5));
  llvm::Value* t;
  if (is_double(x)) {
    llvm::Value* s = b_.CreateFDiv(f, b_.CreateFAdd(f, real(x, 2)));
    llvm::Value* z = b_.CreateFMul(s, s);
    llvm::Value* r = b_.CreateFMul(z, poly(z, kLog64));
    t = fma(e, real(x, fm.ln2[1]), b_.CreateFMul(s, b_.CreateFAdd(half_square, r)));
    t = b_.CreateFSub(t, half_square);
  } else {
    llvm::Value* cube = b_.CreateFMul(b_.CreateFMul(f, f), f);
    t = fma(cube, poly(f, kLog32), b_.CreateFNeg(half_square));
    t = fma(e, real(x, fm.ln2[1]), t);
  }
  llvm::Value* r = fma(e, real(x, fm.ln2[0]), b_.CreateFAdd(f, t));
  r = b_.CreateSelect(b_.CreateFCmpOLT(x, real(x, INFINITY)), r, x);
  r = b_.CreateSelect(b_.CreateFCmpOLT(x, real(x, 0)), real(x, NAN), r);
  return b_.CreateSelect(b_.CreateFCmpOEQ(x, real(x, 0)), real(x, -INFINITY), r);
}

llvm::Value* VectorMath::tanh(llvm::Value* x) {
  llvm::Value* a = abs(x);
  llvm::Value* z = b_.CreateFMul(a, a);
  llvm::Value* p = poly(z, is_double(x) ? Coefficients(kTanh64) : Coefficients(kTanh32));
  llvm::Value* small = fma(b_.CreateFMul(a, z), p, a);
  llvm::Value* top = real(x, is_double(x) ? 20 : 10);
  llvm::Value* c = b_.CreateSelect(b_.CreateFCmpOGT(a, top), top, a);
  llvm::Value* e = exp_of_sum(b_.CreateFAdd(c, c), nullptr, false);
  llvm::Value* q = b_.CreateFDiv(real(x, 2), b_.CreateFAdd(e, real(x, 1)));
  llvm::Value* large = b_.CreateFSub(real(x, 1), q);
  return copysign(b_.CreateSelect(b_.CreateFCmpOLT(a, real(x, 0.625)), small, large), x);
}

llvm::Value* VectorMath::erf(llvm::Value* x) {
  llvm::Value* a = abs(x);
  llvm::Value* z = b_.CreateFMul(a, a);
  llvm::Value* p = poly(z, is_double(x) ? Coefficients(kErf64) : Coefficients(kErf32));
  llvm::Value* small = fma(a, p, a);
  llvm::Value* top = real(x, is_double(x) ? 6 : 4);
  llvm::Value* c = b_.CreateSelect(b_.CreateFCmpOGT(a, top), top, a);
  llvm::Value* tail;
  if (is_double(x)) {
    llvm::Value* t = b_.CreateFDiv(b_.CreateFSub(c, real(x, 2.5)), b_.CreateFAdd(c, real(x, 2.5)));
    tail = b_.CreateFMul(exp_of_sum(b_.CreateFNeg(b_.CreateFMul(c, c)), nullptr, false),
                         poly(t, kErfTail64));
  } else {
    tail = exp_of_sum(b_.CreateFNeg(poly(c, kErfTail32)), nullptr, false);
  }
  llvm::Value* large = b_.CreateFSub(real(x, 1), tail);
  return copysign(b_.CreateSelect(b_.CreateFCmpOLT(a, real(x, 1)), small, large), x);
}

// ---- sin, cos

// Cody and Waite's reduction by multiples of pi/2 in three parts; with fma the first product is
// exact.
llvm::Value* VectorMath::trig(llvm::Value* x, llvm::Value* active, bool cosine) {
  const Format& f = format(x);
  llvm::Value* a = abs(x);
  llvm::Value* magic = real(x, f.round_magic);
  llvm::Value* t = fma(a, real(x, f.two_over_pi), magic);
  llvm::Value* n = b_.CreateFSub(t, magic);
  llvm::Value* r = a;
  for (double part : f.half_pi) r = fma(n, real(x, -part), r);
  llvm::Value* z = b_.CreateFMul(r, r);
  bool wide = is_double(x);
  llvm::Value* s =
      fma(b_.CreateFMul(r, z), poly(z, wide ? Coefficients(kSin64) : Coefficients(kSin32)), r);
  llvm::Value* c = fma(z, real(x, -0.5), real(x, 1));
  c = fma(b_.CreateFMul(z, z), poly(z, wide ? Coefficients(kCos64) : Coefficients(kCos32)), c);
  llvm::Value* quadrant = to_bits(t);
  if (cosine) quadrant = b_.CreateAdd(quadrant, bits(x, 1));
  llvm::Value* odd = b_.CreateICmpNE(b_.CreateAnd(quadrant, bits(x, 1)), bits(x, 0));
  llvm::Value* fast = b_.CreateSelect(odd, c, s);
  // Bit 1 of the quadrant flips the sign, and for sin so does the sign of x.
  llvm::Value* flip = b_.CreateShl(b_.CreateAnd(quadrant, bits(x, 2)), bits(x, wide ? 62 : 30));
  if (!cosine) {
    llvm::Value* sign = bits(x, wide ? INT64_MIN : int64_t{INT32_MIN});
    flip = b_.CreateXor(flip, b_.CreateAnd(to_bits(x), sign));
  }
  fast = from_bits(b_.CreateXor(to_bits(fast), flip), x);
  llvm::Value* slow = b_.CreateAnd(b_.CreateFCmpOGT(a, real(x, f.trig_limit)),
                                   b_.CreateFCmpOLT(a, real(x, INFINITY)));
  return trig_slow(x, fast, slow, active, cosine);
}

llvm::Value* VectorMath::trig_slow(llvm::Value* x, llvm::Value* fast, llvm::Value* slow,
                                   llvm::Value* active, bool cosine) {
  llvm::Value* any = active ? b_.CreateAnd(slow, active) : slow;
  if (any->getType()->isVectorTy()) any = b_.CreateOrReduce(any);
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::Function* function = before->getParent();
  llvm::LLVMContext& context = b_.getContext();
  auto* call = llvm::BasicBlock::Create(context, "huge", function);
  auto* after = llvm::BasicBlock::Create(context, "after", function);
  b_.CreateCondBr(any, call, after, llvm::MDBuilder(context).createBranchWeights(1, 1 << 20));

  b_.SetInsertPoint(call);
  llvm::BasicBlock& entry = function->getEntryBlock();
  llvm::IRBuilder<> at_entry(&entry, entry.begin());
  auto* memory = at_entry.CreateAlloca(x->getType());
  memory->setAlignment(llvm::Align(64));
  b_.CreateAlignedStore(x, memory, llvm::Align(64));
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy(), b_.getInt64Ty()}, false);
  auto callee = function->getParent()->getOrInsertFunction(kTrigNames[is_double(x)][cosine], type);
  b_.CreateCall(callee, {memory, b_.getInt64(lanes_of(x))});
  llvm::Value* exact =
      b_.CreateSelect(slow, b_.CreateAlignedLoad(x->getType(), memory, llvm::Align(64)), fast);
  b_.CreateBr(after);

  b_.SetInsertPoint(after);
  auto* result = b_.CreatePHI(x->getType(), 2);
  result->addIncoming(fast, before);
  result->addIncoming(exact, call);
  return result;
}

// ---- pow

llvm::Value* VectorMath::pow(llvm::Value* x, llvm::Value* y) {
  llvm::Value* ax = abs(x);
  return pow_special(x, ax, y, is_double(x) ? pow_f64(ax, y) : pow_f32(ax, y));
}

// 2^(y log2 ax) in double.
llvm::Value* VectorMath::pow_f32(llvm::Value* ax, llvm::Value* y) {
  llvm::Type* wide = with_scalar(ax->getType(), b_.getDoubleTy());
  llvm::Value *a = b_.CreateFPExt(ax, wide), *yd = b_.CreateFPExt(y, wide);
  auto [e, m] = split(a, false);
  llvm::Value* s = b_.CreateFDiv(b_.CreateFSub(m, real(m, 1)), b_.CreateFAdd(m, real(m, 1)));
  llvm::Value* log2 = fma(s, poly(b_.CreateFMul(s, s), kLog2), e);
  llvm::Value* w = clamp(b_.CreateFMul(yd, log2), -200, 200);
  llvm::Value* magic = real(w, kFormat64.round_magic);
  llvm::Value* t = b_.CreateFAdd(w, magic);
  llvm::Value* f = b_.CreateFSub(w, b_.CreateFSub(t, magic));
  llvm::Value* p = fma(f, poly(f, kExp2), real(f, 1));
  llvm::Value* n_bits = b_.CreateSub(to_bits(t), to_bits(magic));
  return b_.CreateFPTrunc(b_.CreateFMul(p, power_of_two(n_bits, p)), ax->getType());
}

// exp(y log ax) with the logarithm and the product as unevaluated sums of two doubles.
llvm::Value* VectorMath::pow_f64(llvm::Value* ax, llvm::Value* y) {
  auto mul = [&](llvm::Value* a, llvm::Value* b) { return b_.CreateFMul(a, b); };
  auto add = [&](llvm::Value* a, llvm::Value* b) { return b_.CreateFAdd(a, b); };
  auto sub = [&](llvm::Value* a, llvm::Value* b) { return b_.CreateFSub(a, b); };
  auto neg = [&](llvm::Value* a) { return b_.CreateFNeg(a); };
  auto c = [&](double v) { return real(ax, v); };
  auto [e, m] = split(ax, true);
  // s = (m - 1) / (m + 1)
  llvm::Value *f = sub(m, c(1)), *d = add(m, c(1)), *d_low = sub(m, sub(d, c(1)));
  llvm::Value* s = b_.CreateFDiv(f, d);
  llvm::Value* s_low = b_.CreateFDiv(fma(neg(s), d_low, fma(neg(s), d, f)), d);
  llvm::Value *z = mul(s, s), *z_low = fma(add(s, s), s_low, fma(s, s, neg(z)));
  llvm::Value* cube = mul(z, s);
  llvm::Value* cube_low = fma(z_low, s, fma(z, s_low, fma(z, s, neg(cube))));
  llvm::Value *k = c(kTwoThirds[0]), *k_low = c(kTwoThirds[1]);
  llvm::Value* u = mul(k, cube);
  llvm::Value* u_low = fma(k_low, cube, fma(k, cube_low, fma(k, cube, neg(u))));
  // log m = 2s + (2/3) s^3 + s^5 P(s^2)
  llvm::Value *s2 = add(s, s), *h = add(s2, u);
  llvm::Value* h_low = add(add(sub(s2, h), u), add(add(s_low, s_low), u_low));
  h_low = fma(mul(cube, z), poly(z, kPow64), h_low);
  // + e ln2; the first product is exact.
  llvm::Value *el = mul(e, c(kLn2Short[0])), *g = add(el, h);
  llvm::Value* g_low = add(add(sub(el, g), h), fma(e, c(kLn2Short[1]), h_low));
  llvm::Value *l = add(g, g_low), *l_low = sub(g_low, sub(l, g));
  llvm::Value* p = mul(y, l);
  llvm::Value* p_low = fma(y, l_low, fma(y, l, neg(p)));
  llvm::Value* inside = b_.CreateFCmpOLT(abs(p), c(800));
  p_low = b_.CreateSelect(inside, p_low, c(0));
  return exp_of_sum(clamp(p, -800, 800), p_low, true);
}

// From r = |x|^y for ordinary arguments to all arguments, in the order in which later rules win.
llvm::Value* VectorMath::pow_special(llvm::Value* x, llvm::Value* ax, llvm::Value* y,
                                     llvm::Value* r) {
  auto c = [&](double v) { return real(x, v); };
  auto select = [&](llvm::Value* when, llvm::Value* v) { r = b_.CreateSelect(when, v, r); };
  llvm::Value* positive = b_.CreateFCmpOGT(y, c(0));
  select(b_.CreateFCmpOEQ(ax, c(0)), b_.CreateSelect(positive, c(0), c(INFINITY)));
  select(b_.CreateFCmpOEQ(ax, c(INFINITY)), b_.CreateSelect(positive, c(INFINITY), c(0)));
  select(b_.CreateFCmpOEQ(ax, c(1)), c(1));
  select(b_.CreateFCmpUNO(x, y), c(NAN));
  auto whole = [&](llvm::Value* v) {
    return b_.CreateFCmpOEQ(b_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, v), v);
  };
  llvm::Value* integer = whole(y);
  llvm::Value* odd = b_.CreateAnd(integer, b_.CreateNot(whole(b_.CreateFMul(y, c(0.5)))));
  r = b_.CreateSelect(odd, copysign(r, x), r);
  llvm::Value* finite_negative =
      b_.CreateAnd(b_.CreateFCmpOLT(x, c(0)), b_.CreateFCmpOGT(x, c(-INFINITY)));
  select(b_.CreateAnd(finite_negative, b_.CreateNot(integer)), c(NAN));
  select(b_.CreateOr(b_.CreateFCmpOEQ(y, c(0)), b_.CreateFCmpOEQ(x, c(1))), c(1));
  return r;
}

}  // namespace rlx::cpu
