#include "rlx/quant/minifloat.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rlx {
namespace {

struct MiniFloat {
  int exponent_bits, mantissa_bits, bias;
  uint8_t largest;  // the code of the largest finite number
  uint8_t nan;      // the code that stands for NaN
};
constexpr MiniFloat kE4M3{4, 3, 7, 0x7e, 0x7f}, kE5M2{5, 2, 15, 0x7b, 0x7e}, kE2M1{2, 1, 1, 7, 7};

constexpr uint8_t sign_bit(const MiniFloat& f) {
  return static_cast<uint8_t>(1 << (f.exponent_bits + f.mantissa_bits));
}

float decode(const MiniFloat& f, uint8_t bits) {
  const int code = bits & (sign_bit(f) - 1), exponent = code >> f.mantissa_bits,
            mantissa = code & ((1 << f.mantissa_bits) - 1), one = 1 << f.mantissa_bits;
  const float magnitude =
      exponent ? std::ldexp(static_cast<float>(one + mantissa), exponent - f.bias - f.mantissa_bits)
               : std::ldexp(static_cast<float>(mantissa), 1 - f.bias - f.mantissa_bits);
  return bits & sign_bit(f) ? -magnitude : magnitude;
}

uint8_t encode(const MiniFloat& f, float value) {
  const uint8_t sign = std::signbit(value) ? sign_bit(f) : 0;
  const float a = std::fabs(value);
  if (std::isnan(a)) return sign | f.nan;
  if (std::isinf(a)) return sign | f.largest;
  if (a == 0) return sign;
  // In steps of the binade; a mantissa that rounds up to a power of two carries into the exponent.
  const int exponent = std::max(std::ilogb(a), 1 - f.bias);
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(a, f.mantissa_bits - exponent)));
  const int code = steps + (exponent + f.bias - 1) * (1 << f.mantissa_bits);
  return sign | static_cast<uint8_t>(std::min<int>(code, f.largest));
}

}  // namespace

float e4m3_to_float(uint8_t bits) {
  return (bits & 0x7f) == 0x7f ? std::numeric_limits<float>::quiet_NaN() : decode(kE4M3, bits);
}
float e5m2_to_float(uint8_t bits) {
  if ((bits & 0x7c) != 0x7c) return decode(kE5M2, bits);
  const float special =
      bits & 3 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  return bits & 0x80 ? -special : special;
}
float e2m1_to_float(uint8_t bits) { return decode(kE2M1, bits & 15); }
float e8m0_to_float(uint8_t bits) {
  return bits == 0xff ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, bits - 127);
}

uint8_t float_to_e4m3(float value) { return encode(kE4M3, value); }
uint8_t float_to_e5m2(float value) { return encode(kE5M2, value); }
uint8_t float_to_e2m1(float value) { return encode(kE2M1, value); }
uint8_t float_to_e8m0(float value) {
  if (std::isnan(value) || value < 0) return 0xff;
  if (std::isinf(value)) return 254;
  if (value == 0) return 0;
  const int exponent = std::ilogb(value);
  const float fraction = std::ldexp(value, -exponent);  // [1, 2)
  const bool up = fraction > 1.5f || (fraction == 1.5f && (exponent + 127) % 2 != 0);
  return static_cast<uint8_t>(std::clamp(exponent + 127 + up, 0, 254));
}

}  // namespace rlx
