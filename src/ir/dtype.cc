#include "rlx/ir/dtype.h"

#include <bit>
#include <cmath>
#include <limits>
#include <string>

namespace rlx {

std::optional<DType> parse_dtype(std::string_view name) {
  for (const DTypeInfo& row : kDTypes)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

DType promote(DType a, DType b) {
  if (a == b || is_bool(b)) return a;
  if (is_bool(a)) return b;
  if (is_complex(a) || is_complex(b)) return DType::C64;
  if (is_float(a) && is_float(b)) {
    const DTypeInfo &x = info(a), &y = info(b);
    if (x.digits >= y.digits && x.exponent >= y.exponent) return a;
    return x.digits <= y.digits && x.exponent <= y.exponent ? b : DType::F32;
  }
  if (is_float(a) || is_float(b)) return is_float(a) ? a : b;
  // Two different integers: the wider; mixed signs of equal or larger unsigned width need one step
  // up.
  const bool same_sign = info(a).is_signed == info(b).is_signed;
  if (same_sign) return size_of(a) >= size_of(b) ? a : b;
  const DType u = info(a).is_signed ? b : a, s = info(a).is_signed ? a : b;
  if (size_of(s) > size_of(u)) return s;
  return u == DType::U8 ? DType::I16 : DType::I64;
}

std::string DTypeSet::to_string() const {
  std::string out;
  for (const DTypeInfo& row : kDTypes)
    if (has(row.dtype)) out += (out.empty() ? "" : " ") + std::string(row.name);
  return out;
}

float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

float f16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -magnitude : magnitude;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

namespace {

// Rounds |value| to the format, half to even, and packs it.
uint16_t pack(const NarrowFloat& f, int bytes, double value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 1 << (8 * bytes - 1) : 0);
  if (std::isnan(value)) return sign | f.nan;
  const double magnitude = std::fabs(value);
  const auto overflow = static_cast<uint16_t>(f.largest + 1);
  if (std::isinf(magnitude)) return sign | overflow;
  if (magnitude == 0) return sign;
  int exponent = std::ilogb(magnitude);
  if (exponent < 1 - f.bias) exponent = 1 - f.bias;
  // In units of the last place this is exact in double, so nearbyint rounds once, half to even.
  const double units = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent));
  const auto count = static_cast<uint32_t>(units);  // < 2^(mantissa_bits+2)
  const uint32_t packed =
      count < 1u << f.mantissa_bits
          ? count
          : count + (static_cast<uint32_t>(exponent + f.bias - 1) << f.mantissa_bits);
  return packed >= overflow ? sign | overflow : static_cast<uint16_t>(sign | packed);
}

float unpack_f8(const NarrowFloat& f, uint16_t bits) {
  const int code = bits & 0x7f, one = 1 << f.mantissa_bits, mantissa = code & (one - 1),
            exponent = code >> f.mantissa_bits, unit = 1 - f.bias - f.mantissa_bits;
  float magnitude = std::numeric_limits<float>::quiet_NaN();
  if (code <= f.largest)
    magnitude = exponent ? std::ldexp(static_cast<float>(one + mantissa), unit + exponent - 1)
                         : std::ldexp(static_cast<float>(mantissa), unit);
  else if (code == f.largest + 1 && code != f.nan)
    magnitude = std::numeric_limits<float>::infinity();
  return std::copysign(magnitude, bits & 0x80 ? -1.0f : 1.0f);
}

}  // namespace

constinit const NarrowFloat kF8E4M3FN{
    3, 7, 0x7e, 0x7f, f8e4m3fn_to_float, float_to_f8e4m3fn, double_to_f8e4m3fn};
constinit const NarrowFloat kF8E5M2{
    2, 15, 0x7b, 0x7e, f8e5m2_to_float, float_to_f8e5m2, double_to_f8e5m2};
constinit const NarrowFloat kF16{10, 15, 0x7bff, 0x7e00, f16_to_float, float_to_f16, double_to_f16};
constinit const NarrowFloat kBF16{
    7, 127, 0x7f7f, 0x7fc0, bf16_to_float, float_to_bf16, double_to_bf16};

float f8e4m3fn_to_float(uint16_t bits) { return unpack_f8(kF8E4M3FN, bits); }
uint16_t double_to_f8e4m3fn(double value) { return pack(kF8E4M3FN, 1, value); }
uint16_t float_to_f8e4m3fn(float value) { return pack(kF8E4M3FN, 1, value); }
float f8e5m2_to_float(uint16_t bits) { return unpack_f8(kF8E5M2, bits); }
uint16_t double_to_f8e5m2(double value) { return pack(kF8E5M2, 1, value); }
uint16_t float_to_f8e5m2(float value) { return pack(kF8E5M2, 1, value); }
uint16_t double_to_f16(double value) { return pack(kF16, 2, value); }
uint16_t double_to_bf16(double value) { return pack(kBF16, 2, value); }
uint16_t float_to_f16(float value) { return pack(kF16, 2, value); }

uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace rlx
