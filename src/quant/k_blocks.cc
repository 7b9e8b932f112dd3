// Blocks of 256 elements whose sub-blocks have integer scales: Q2_K to Q6_K and IQ4_XS; and IQ4_NL, which
// shares IQ4_XS's uneven levels.
//
// Encoders fit each sub-block by itself (fit.h), round the fitted scales to integers under the block's scale
// and choose each element's code for the scale that came out of this.
#include <algorithm>
#include <cmath>

#include "rlx/quant/blocks.h"
#include "rlx/quant/fit.h"

namespace rlx::quant {
namespace {

int nearest(float x, int low, int high) { return clamp_int(std::nearbyint(x), low, high); }

// ---- Q2_K, Q4_K, Q5_K: value = d * scale * q - dmin * min ------------------------------------------------

struct SubScales {  // of up to 16 sub-blocks
  uint8_t scale[16], min[16];
};

// Fits sub-blocks of `size` elements, stores d and dmin, and codes the elements.
SubScales encode_scale_min(const float* x, int size, int levels, int top, uint8_t* d_at,
                           uint8_t* dmin_at, uint8_t* codes) {
  const int groups = kBlock / size;
  ScaleMin fit[16];
  float scale = 0, min = 0;
  for (int g = 0; g < groups; ++g) {
    fit[g] = fit_scale_min(x + g * size, size, levels);
    scale = std::max(scale, fit[g].scale), min = std::max(min, fit[g].min);
  }
  const float d = store_half(d_at, scale / static_cast<float>(top)),
              dmin = store_half(dmin_at, min / static_cast<float>(top));
  SubScales out{};
  for (int g = 0; g < groups; ++g) {
    out.scale[g] = static_cast<uint8_t>(nearest(fit[g].scale * inverse(d), 0, top));
    out.min[g] = static_cast<uint8_t>(nearest(fit[g].min * inverse(dmin), 0, top));
    const float to_code = inverse(d * static_cast<float>(out.scale[g])),
                offset = dmin * static_cast<float>(out.min[g]);
    for (int i = g * size; i < (g + 1) * size; ++i)
      codes[i] = static_cast<uint8_t>(nearest((x[i] + offset) * to_code, 0, levels));
  }
  return out;
}

// Q4_K and Q5_K keep eight 6-bit pairs in 12 bytes: the first four plainly; the others as 4 low bits each in
// bytes 8..11 and 2 high bits on top of the first four.
SubScales load_pairs(const uint8_t* b) {
  SubScales s{};
  for (int j = 0; j < 4; ++j) {
    s.scale[j] = b[j] & 63, s.min[j] = b[j + 4] & 63;
    s.scale[j + 4] = static_cast<uint8_t>((b[j + 8] & 15) | (b[j] >> 6) << 4);
    s.min[j + 4] = static_cast<uint8_t>(b[j + 8] >> 4 | (b[j + 4] >> 6) << 4);
  }
  return s;
}
void store_pairs(const SubScales& s, uint8_t* b) {
  for (int j = 0; j < 4; ++j) {
    b[j] = static_cast<uint8_t>(s.scale[j] | (s.scale[j + 4] >> 4) << 6);
    b[j + 4] = static_cast<uint8_t>(s.min[j] | (s.min[j + 4] >> 4) << 6);
    b[j + 8] = static_cast<uint8_t>((s.scale[j + 4] & 15) | (s.min[j + 4] & 15) << 4);
  }
}

// Q4_K has no fifth bits (high = nullptr). Sub-blocks 2p and 2p + 1 are the nibbles of 32 bytes.
void decode_pairs(const uint8_t* b, const uint8_t* high, const uint8_t* low, float* out) {
  const float d = load_half(b), dmin = load_half(b + 2);
  const SubScales s = load_pairs(b + 4);
  for (int g = 0; g < 8; ++g) {
    const float scale = d * s.scale[g], min = dmin * s.min[g];
    const uint8_t* nibbles = low + g / 2 * 32;
    for (int l = 0; l < 32; ++l) {
      const int q = (nibbles[l] >> g % 2 * 4 & 15) | (high ? (high[l] >> g & 1) << 4 : 0);
      out[32 * g + l] = scale * static_cast<float>(q) - min;
    }
  }
}
void encode_pairs(const float* x, uint8_t* b, uint8_t* high, uint8_t* low) {
  uint8_t codes[kBlock];
  store_pairs(encode_scale_min(x, 32, high ? 31 : 15, 63, b, b + 2, codes), b + 4);
  for (int p = 0; p < 4; ++p)
    for (int l = 0; l < 32; ++l)
      low[32 * p + l] =
          static_cast<uint8_t>((codes[64 * p + l] & 15) | (codes[64 * p + 32 + l] & 15) << 4);
  for (int l = 0; high && l < 32; ++l) {
    high[l] = 0;
    for (int g = 0; g < 8; ++g) high[l] |= static_cast<uint8_t>(codes[32 * g + l] >> 4 << g);
  }
}

// Q2_K and Q3_K keep 2-bit codes: element i is at this byte, shifted by this much. Sixteen elements of a sub-block
// are in consecutive bytes.
int pair_byte(int i) { return i / 128 * 32 + i % 32; }
int pair_shift(int i) { return i % 128 / 32 * 2; }
void store_pairs_of_bits(const uint8_t* values, uint8_t* codes) {
  std::memset(codes, 0, kBlock / 4);
  for (int i = 0; i < kBlock; ++i)
    codes[pair_byte(i)] |= static_cast<uint8_t>((values[i] & 3) << pair_shift(i));
}

// ---- Q3_K, Q6_K: value = d * scale * q with signed scales ------------------------------------------------

// Fits sub-blocks of 16, stores d, and codes the elements as q + limit. Scales are in [-top, top - 1].
void encode_signed(const float* x, int limit, int top, uint8_t* d_at, int* scales, uint8_t* codes) {
  float fit[16], most = 0;
  for (int g = 0; g < 16; ++g) {
    fit[g] = fit_scale(x + 16 * g, 16, limit);
    if (std::fabs(fit[g]) > std::fabs(most)) most = fit[g];
  }
  const float d = store_half(d_at, -most / static_cast<float>(top));  // the extreme one is -top
  for (int g = 0; g < 16; ++g) {
    scales[g] = nearest(fit[g] * inverse(d), -top, top - 1);
    const float to_code = inverse(d * static_cast<float>(scales[g]));
    for (int i = 16 * g; i < 16 * g + 16; ++i)
      codes[i] = static_cast<uint8_t>(nearest(x[i] * to_code, -limit, limit - 1) + limit);
  }
}

// Q3_K keeps sixteen 6-bit scales (plus 32) in 12 bytes: 4 low bits in the first eight, 2 high bits in the rest.
int load_scale(const uint8_t* b, int g) {
  return ((b[g % 8] >> g / 8 * 4 & 15) | (b[8 + g % 4] >> g / 4 * 2 & 3) << 4) - 32;
}
void store_scales(const int* scales, uint8_t* b) {
  std::memset(b, 0, 12);
  for (int g = 0; g < 16; ++g) {
    const int s = scales[g] + 32;
    b[g % 8] |= static_cast<uint8_t>((s & 15) << g / 8 * 4);
    b[8 + g % 4] |= static_cast<uint8_t>(s >> 4 << g / 4 * 2);
  }
}

// Q6_K: where element i's nibble and its two high bits are.
struct SixBits {
  int low, low_shift, high, high_shift;
  explicit SixBits(int i)
      : low(i / 128 * 64 + i % 64),
        low_shift(i % 128 / 64 * 4),
        high(i / 128 * 32 + i % 32),
        high_shift(i % 128 / 32 * 2) {}
};

// ---- IQ4_NL, IQ4_XS: sixteen uneven levels ---------------------------------------------------------------

constexpr float kUneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};

void decode_uneven(const uint8_t* codes, float scale, float* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * kUneven[codes[i] & 15];
    out[16 + i] = scale * kUneven[codes[i] >> 4];
  }
}
void encode_uneven(const float* x, float scale, uint8_t* codes) {
  const float to_value = inverse(scale);
  for (int i = 0; i < 16; ++i)
    codes[i] = static_cast<uint8_t>(nearest_value(x[i] * to_value, kUneven, 16) |
                                    nearest_value(x[16 + i] * to_value, kUneven, 16) << 4);
}

}  // namespace

void decode_q2_k(const uint8_t* b, float* out) {
  const float d = load_half(b + 80), dmin = load_half(b + 82);
  for (int g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(b[g] & 15),
                min = dmin * static_cast<float>(b[g] >> 4);
    const uint8_t* codes = b + 16 + pair_byte(16 * g);
    const int shift = pair_shift(16 * g);
    for (int l = 0; l < 16; ++l)
      out[16 * g + l] = scale * static_cast<float>(codes[l] >> shift & 3) - min;
  }
}
void encode_q2_k(const float* x, uint8_t* b) {
  uint8_t codes[kBlock];
  const SubScales s = encode_scale_min(x, 16, 3, 15, b + 80, b + 82, codes);
  for (int g = 0; g < 16; ++g) b[g] = static_cast<uint8_t>(s.scale[g] | s.min[g] << 4);
  store_pairs_of_bits(codes, b + 16);
}

void decode_q3_k(const uint8_t* b, float* out) {
  const float d = load_half(b + 108);
  for (int g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(load_scale(b + 96, g));
    const uint8_t *codes = b + 32 + pair_byte(16 * g), *high = b + g % 2 * 16;
    const int shift = pair_shift(16 * g), bit = g / 2;
    for (int l = 0; l < 16; ++l) {
      const int q = (codes[l] >> shift & 3) + 4 * (high[l] >> bit & 1) - 4;
      out[16 * g + l] = scale * static_cast<float>(q);
    }
  }
}
void encode_q3_k(const float* x, uint8_t* b) {
  uint8_t codes[kBlock];
  int scales[16];
  encode_signed(x, 4, 32, b + 108, scales, codes);
  store_scales(scales, b + 96);
  store_pairs_of_bits(codes, b + 32);
  std::memset(b, 0, 32);
  for (int i = 0; i < kBlock; ++i) b[i % 32] |= static_cast<uint8_t>(codes[i] >> 2 << i / 32);
}

void decode_q4_k(const uint8_t* b, float* out) { decode_pairs(b, nullptr, b + 16, out); }
void encode_q4_k(const float* x, uint8_t* b) { encode_pairs(x, b, nullptr, b + 16); }
void decode_q5_k(const uint8_t* b, float* out) { decode_pairs(b, b + 16, b + 48, out); }
void encode_q5_k(const float* x, uint8_t* b) { encode_pairs(x, b, b + 16, b + 48); }

void decode_q6_k(const uint8_t* b, float* out) {
  const float d = load_half(b + 208);
  for (int g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(static_cast<int8_t>(b[192 + g]));
    const SixBits at(16 * g);  // and the next fifteen behind it
    const uint8_t *low = b + at.low, *high = b + 128 + at.high;
    for (int l = 0; l < 16; ++l) {
      const int q = (low[l] >> at.low_shift & 15) | (high[l] >> at.high_shift & 3) << 4;
      out[16 * g + l] = scale * static_cast<float>(q - 32);
    }
  }
}
void encode_q6_k(const float* x, uint8_t* b) {
  uint8_t codes[kBlock];
  int scales[16];
  encode_signed(x, 32, 128, b + 208, scales, codes);
  std::memset(b, 0, 192);
  for (int g = 0; g < 16; ++g) b[192 + g] = static_cast<uint8_t>(scales[g]);
  for (int i = 0; i < kBlock; ++i) {
    const SixBits at(i);
    b[at.low] |= static_cast<uint8_t>((codes[i] & 15) << at.low_shift);
    b[128 + at.high] |= static_cast<uint8_t>(codes[i] >> 4 << at.high_shift);
  }
}

void decode_iq4_nl(const uint8_t* b, float* out) { decode_uneven(b + 2, load_half(b), out); }
void encode_iq4_nl(const float* x, uint8_t* b) {
  encode_uneven(x, store_half(b, fit_values(x, 32, kUneven, 16)), b + 2);
}

void decode_iq4_xs(const uint8_t* b, float* out) {
  const float d = load_half(b);
  const int high = load16(b + 2);
  for (int g = 0; g < 8; ++g) {
    const int s = ((b[4 + g / 2] >> g % 2 * 4 & 15) | (high >> 2 * g & 3) << 4) - 32;
    decode_uneven(b + 8 + 16 * g, d * static_cast<float>(s), out + 32 * g);
  }
}
void encode_iq4_xs(const float* x, uint8_t* b) {
  float fit[8], most = 0;
  for (int g = 0; g < 8; ++g) {
    fit[g] = fit_values(x + 32 * g, 32, kUneven, 16);
    if (std::fabs(fit[g]) > std::fabs(most)) most = fit[g];
  }
  const float d = store_half(b, -most / 32);
  uint32_t high = 0;
  std::memset(b + 4, 0, 4);
  for (int g = 0; g < 8; ++g) {
    const int s = nearest(fit[g] * inverse(d), -32, 31);
    high |= static_cast<uint32_t>((s + 32) >> 4) << 2 * g;
    b[4 + g / 2] |= static_cast<uint8_t>(((s + 32) & 15) << g % 2 * 4);
    encode_uneven(x + 32 * g, d * static_cast<float>(s), b + 8 + 16 * g);
  }
  store16(b + 2, high);
}

}  // namespace rlx::quant
