#include "rlx/quant/minifloat.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "rlx/ir/dtype.h"

namespace rlx {
namespace {

struct MiniFloat {
  int exponent_bits, mantissa_bits, bias;
  uint8_t largest;  // the code of the largest finite number
  uint8_t nan;      // the code that stands for NaN
};
constexpr MiniFloat kE2M1{2, 1, 1, 7, 7};

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

// As the dtype of the same form, but what lies beyond its largest number becomes that.
uint8_t saturated(DType f8, float value) {
  const auto most = static_cast<float>(info(f8).largest);
  return static_cast<uint8_t>(info(f8).narrow->from_float(std::clamp(value, -most, most)));
}

}  // namespace

float e4m3_to_float(uint8_t bits) { return f8e4m3fn_to_float(bits); }
float e5m2_to_float(uint8_t bits) { return f8e5m2_to_float(bits); }
float e2m1_to_float(uint8_t bits) { return decode(kE2M1, bits & 15); }
float e8m0_to_float(uint8_t bits) {
  return bits == 0xff ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, bits - 127);
}

uint8_t float_to_e4m3(float value) { return saturated(DType::F8E4M3FN, value); }
uint8_t float_to_e5m2(float value) { return saturated(DType::F8E5M2, value); }
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
