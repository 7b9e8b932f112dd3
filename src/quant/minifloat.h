// Small floating-point numbers: FP8, FP4 and power-of-two scales, as the OCP formats define them.
//
//   e4m3_to_float(0x7e) == 448;  float_to_e4m3(1000) == 0x7e;  float_to_e2m1(2.5f) == 4
//
// To nearest, ties to even; what is too large (infinities too) becomes the largest finite number. E4M3
// and E5M2 keep NaN; E2M1 has none, so NaN raises nothing and becomes the largest number.
#pragma once

#include <cstdint>

namespace rlx {

float e4m3_to_float(uint8_t bits);  // 1-4-3, bias 7, to 448; 0x7f and 0xff are NaN, no infinities
float e5m2_to_float(uint8_t bits);  // 1-5-2, bias 15, to 57344; infinities and NaNs as in f16
float e2m1_to_float(uint8_t bits);  // 1-2-1, bias 1, in the low four bits: 0 .5 1 1.5 2 3 4 6
float e8m0_to_float(uint8_t bits);  // 2^(bits - 127); 0xff is NaN
uint8_t float_to_e4m3(float value);
uint8_t float_to_e5m2(float value);
uint8_t float_to_e2m1(float value);
uint8_t float_to_e8m0(float value);  // 0 becomes 2^-127; negative numbers and NaN become 0xff

}  // namespace rlx
