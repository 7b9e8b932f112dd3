// The block formats' own conversions; format.cc lists them in the table and everybody else goes through it.
#pragma once

#include <cstdint>
#include <cstring>

#include "rlx/ir/dtype.h"

namespace rlx::quant {

using Encode = void (*)(const float* in, uint8_t* block);

// Multi-byte numbers of a block are little-endian and unaligned.
inline uint16_t load16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
inline uint32_t load32(const uint8_t* p) {
  return load16(p) | static_cast<uint32_t>(load16(p + 2)) << 16;
}
inline void store16(uint8_t* p, uint32_t v) {
  p[0] = static_cast<uint8_t>(v), p[1] = static_cast<uint8_t>(v >> 8);
}
inline void store32(uint8_t* p, uint32_t v) { store16(p, v), store16(p + 2, v >> 16); }
inline float load_half(const uint8_t* p) { return f16_to_float(load16(p)); }
// Stores and gives back what was stored.
inline float store_half(uint8_t* p, float v) {
  store16(p, float_to_f16(v));
  return load_half(p);
}
// To an integer in [low, high] by the given rounding; NaN gives low.
inline int clamp_int(float v, int low, int high) {
  return v >= static_cast<float>(high) ? high
         : v > static_cast<float>(low) ? static_cast<int>(v)
                                       : low;
}
inline float inverse(float v) { return v == 0 ? 0 : 1 / v; }

// simple_blocks.cc: one scale (and minimum) per block
void decode_f32(const uint8_t*, float*), decode_f16(const uint8_t*, float*),
    decode_bf16(const uint8_t*, float*), decode_q4_0(const uint8_t*, float*),
    decode_q4_1(const uint8_t*, float*), decode_q5_0(const uint8_t*, float*),
    decode_q5_1(const uint8_t*, float*), decode_q8_0(const uint8_t*, float*),
    decode_q8_1(const uint8_t*, float*), decode_q1_0(const uint8_t*, float*),
    decode_tq1_0(const uint8_t*, float*), decode_tq2_0(const uint8_t*, float*),
    decode_mxfp4(const uint8_t*, float*), decode_nvfp4(const uint8_t*, float*),
    decode_int8(const uint8_t*, float*), decode_uint4(const uint8_t*, float*),
    decode_e4m3(const uint8_t*, float*), decode_e5m2(const uint8_t*, float*),
    decode_e2m1(const uint8_t*, float*);
void encode_f32(const float*, uint8_t*), encode_f16(const float*, uint8_t*),
    encode_bf16(const float*, uint8_t*), encode_q4_0(const float*, uint8_t*),
    encode_q4_1(const float*, uint8_t*), encode_q5_0(const float*, uint8_t*),
    encode_q5_1(const float*, uint8_t*), encode_q8_0(const float*, uint8_t*),
    encode_q8_1(const float*, uint8_t*), encode_q1_0(const float*, uint8_t*),
    encode_tq1_0(const float*, uint8_t*), encode_tq2_0(const float*, uint8_t*),
    encode_mxfp4(const float*, uint8_t*), encode_nvfp4(const float*, uint8_t*),
    encode_int8(const float*, uint8_t*), encode_uint4(const float*, uint8_t*),
    encode_e4m3(const float*, uint8_t*), encode_e5m2(const float*, uint8_t*),
    encode_e2m1(const float*, uint8_t*);

inline constexpr int kBlock = 256;  // elements of a block of the following two files

// k_blocks.cc: scales of sub-blocks in integers under one or two scales of the block
void decode_q2_k(const uint8_t*, float*), decode_q3_k(const uint8_t*, float*),
    decode_q4_k(const uint8_t*, float*), decode_q5_k(const uint8_t*, float*),
    decode_q6_k(const uint8_t*, float*), decode_q8_k(const uint8_t*, float*),
    decode_iq4_nl(const uint8_t*, float*), decode_iq4_xs(const uint8_t*, float*);
void encode_q2_k(const float*, uint8_t*), encode_q3_k(const float*, uint8_t*),
    encode_q4_k(const float*, uint8_t*), encode_q5_k(const float*, uint8_t*),
    encode_q6_k(const float*, uint8_t*), encode_q8_k(const float*, uint8_t*),
    encode_iq4_nl(const float*, uint8_t*), encode_iq4_xs(const float*, uint8_t*);

// grid_blocks.cc: vectors of 8 or 4 elements from a codebook
void decode_iq1_s(const uint8_t*, float*), decode_iq1_m(const uint8_t*, float*),
    decode_iq2_xxs(const uint8_t*, float*), decode_iq2_xs(const uint8_t*, float*),
    decode_iq2_s(const uint8_t*, float*), decode_iq3_xxs(const uint8_t*, float*),
    decode_iq3_s(const uint8_t*, float*);
void encode_iq1_s(const float*, uint8_t*), encode_iq1_m(const float*, uint8_t*),
    encode_iq2_xxs(const float*, uint8_t*), encode_iq2_xs(const float*, uint8_t*),
    encode_iq2_s(const float*, uint8_t*), encode_iq3_xxs(const float*, uint8_t*),
    encode_iq3_s(const float*, uint8_t*);

}  // namespace rlx::quant
