// Blocks with one scale (and minimum): Q4_0 to Q8_1, Q1_0, the ternary ones, MXFP4, NVFP4; and codes whose
// scales live in tensors of their own. Encoders compute in f32 in the order that ggml's files expect, so
// that they give the same bytes.
#include <algorithm>
#include <cmath>

#include "rlx/quant/blocks.h"
#include "rlx/quant/minifloat.h"

namespace rlx::quant {
namespace {

float largest_magnitude(const float* x, int n) {
  float most = 0;
  for (int i = 0; i < n; ++i) most = std::max(most, std::fabs(x[i]));
  return most;
}

// ---- Q4_0, Q4_1, Q5_0, Q5_1: 32 elements; low nibbles first, then high ones; fifth bits in a u32 ----------

template <int kBits, bool kHasMin>
struct Nibbles {
  static constexpr int kElements = 32, kLevels = 1 << kBits, kZero = kHasMin ? 0 : kLevels / 2;
  static constexpr int kHigh = kHasMin ? 4 : 2;                // offset of the fifth bits
  static constexpr int kCodes = kHigh + (kBits == 5 ? 4 : 0);  // offset of the nibbles

  static void decode(const uint8_t* b, float* out) {
    const float d = load_half(b), m = kHasMin ? load_half(b + 2) : 0;
    const uint32_t high = kBits == 5 ? load32(b + kHigh) : 0;
    for (int i = 0; i < kElements; ++i) {
      const int nibble = i < 16 ? b[kCodes + i] & 15 : b[kCodes + i - 16] >> 4;
      const int q = nibble | static_cast<int>(high >> i & 1) << 4;
      const float v = d * static_cast<float>(q - kZero);
      out[i] = kHasMin ? v + m : v;
    }
  }

  static void encode(const float* x, uint8_t* b) {
    float d, low = 0;
    if (kHasMin) {
      low = *std::min_element(x, x + kElements);
      d = (*std::max_element(x, x + kElements) - low) / (kLevels - 1);
    } else {
      // The element furthest from 0 gets the code 0, which has no counterpart of the other sign.
      const float* extreme = std::max_element(
          x, x + kElements, [](float a, float c) { return std::fabs(a) < std::fabs(c); });
      d = *extreme / -kZero;
    }
    const float scale = inverse(d), half = static_cast<float>(kZero) + 0.5f;
    store_half(b, d);
    if (kHasMin) store_half(b + 2, low);
    std::memset(b + kCodes, 0, 16);
    uint32_t high = 0;
    for (int i = 0; i < kElements; ++i) {
      const int q = clamp_int((x[i] - low) * scale + half, 0, kLevels - 1);
      b[kCodes + i % 16] |= static_cast<uint8_t>((q & 15) << (i < 16 ? 0 : 4));
      high |= static_cast<uint32_t>(q >> 4) << i;
    }
    if (kBits == 5) store32(b + kHigh, high);
  }
};

// ---- Q8_0, Q8_1 ------------------------------------------------------------------------------------------

void decode_bytes(const uint8_t* codes, float d, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(codes[i]));
}

// Returns the sum of the codes.
int encode_bytes(const float* x, float d, int n, uint8_t* codes) {
  const float scale = inverse(d);
  int sum = 0;
  for (int i = 0; i < n; ++i) {
    const int q = clamp_int(std::round(x[i] * scale), -128, 127);
    codes[i] = static_cast<uint8_t>(q);
    sum += q;
  }
  return sum;
}

// ---- ternary: digits 0, 1, 2 for -1, 0, 1 ----------------------------------------------------------------

int digit(float x, float scale) { return clamp_int(std::round(x * scale), -1, 1) + 1; }

// TQ1_0 packs five digits into a byte, as a fraction of 256 whose leading base-3 digits they are. Three runs
// of bytes: digit k of byte m stands for element first + k * width + m.
struct TernaryRun {
  int first, width, digits, bytes;
};
constexpr TernaryRun kTernaryRuns[] = {{0, 32, 5, 0}, {160, 16, 5, 32}, {240, 4, 4, 48}};
constexpr int kPowersOf3[] = {1, 3, 9, 27, 81};

// ---- MXFP4 and NVFP4: E2M1 codes, doubled to be integers -------------------------------------------------

constexpr int kDoubledE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Low nibbles hold the first half of the n elements, high ones the second.
void decode_fp4(const uint8_t* codes, float half_scale, int n, float* out) {
  for (int i = 0; i < n / 2; ++i) {
    out[i] = half_scale * static_cast<float>(kDoubledE2M1[codes[i] & 15]);
    out[n / 2 + i] = half_scale * static_cast<float>(kDoubledE2M1[codes[i] >> 4]);
  }
}

int nearest_fp4(float x, float half_scale) {
  int best = 0;
  for (int q = 1; q < 16; ++q)
    if (std::fabs(half_scale * static_cast<float>(kDoubledE2M1[q]) - x) <
        std::fabs(half_scale * static_cast<float>(kDoubledE2M1[best]) - x))
      best = q;
  return best;
}

// Returns the squared error.
double encode_fp4(const float* x, float half_scale, int n, uint8_t* codes) {
  double error = 0;
  for (int i = 0; i < n; ++i) {
    const int q = nearest_fp4(x[i], half_scale);
    uint8_t& byte = codes[i % (n / 2)];
    byte = static_cast<uint8_t>(i < n / 2 ? q : byte | q << 4);
    const double off = half_scale * static_cast<float>(kDoubledE2M1[q]) - x[i];
    error += off * off;
  }
  return error;
}

// 2^(e - 128), exact also where it is subnormal.
float half_of_e8m0(uint8_t e) { return std::ldexp(1.0f, e - 128); }

// ggml's unsigned E4M3 ignores the sign bit and reads 0x7f as 0.
float half_of_ue4m3(uint8_t bits) {
  if (bits == 0x7f) return 0;
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  return exponent ? std::ldexp(static_cast<float>(8 + mantissa), exponent - 11)
                  : std::ldexp(static_cast<float>(mantissa), -10);
}

}  // namespace

void decode_f32(const uint8_t* b, float* out) { std::memcpy(out, b, 4); }
void encode_f32(const float* x, uint8_t* b) { std::memcpy(b, x, 4); }
void decode_f16(const uint8_t* b, float* out) { *out = load_half(b); }
void encode_f16(const float* x, uint8_t* b) { store_half(b, *x); }
void decode_bf16(const uint8_t* b, float* out) { *out = bf16_to_float(load16(b)); }
void encode_bf16(const float* x, uint8_t* b) { store16(b, float_to_bf16(*x)); }

void decode_q4_0(const uint8_t* b, float* out) { Nibbles<4, false>::decode(b, out); }
void decode_q4_1(const uint8_t* b, float* out) { Nibbles<4, true>::decode(b, out); }
void decode_q5_0(const uint8_t* b, float* out) { Nibbles<5, false>::decode(b, out); }
void decode_q5_1(const uint8_t* b, float* out) { Nibbles<5, true>::decode(b, out); }
void encode_q4_0(const float* x, uint8_t* b) { Nibbles<4, false>::encode(x, b); }
void encode_q4_1(const float* x, uint8_t* b) { Nibbles<4, true>::encode(x, b); }
void encode_q5_0(const float* x, uint8_t* b) { Nibbles<5, false>::encode(x, b); }
void encode_q5_1(const float* x, uint8_t* b) { Nibbles<5, true>::encode(x, b); }

void decode_q8_0(const uint8_t* b, float* out) { decode_bytes(b + 2, load_half(b), 32, out); }
void encode_q8_0(const float* x, uint8_t* b) {
  const float d = largest_magnitude(x, 32) / 127;
  store_half(b, d);
  encode_bytes(x, d, 32, b + 2);
}

void decode_q8_1(const uint8_t* b, float* out) { decode_bytes(b + 4, load_half(b), 32, out); }
void encode_q8_1(const float* x, uint8_t* b) {
  const float d = largest_magnitude(x, 32) / 127;
  store_half(b, d);
  store_half(b + 2, d * static_cast<float>(encode_bytes(x, d, 32, b + 4)));
}

void decode_q8_k(const uint8_t* b, float* out) {
  float d;
  std::memcpy(&d, b, 4);
  decode_bytes(b + 4, d, 256, out);
}
void encode_q8_k(const float* x, uint8_t* b) {
  const float d = largest_magnitude(x, 256) / 127;
  std::memcpy(b, &d, 4);
  for (int g = 0; g < 16; ++g)
    store16(b + 260 + 2 * g,
            static_cast<uint32_t>(encode_bytes(x + 16 * g, d, 16, b + 4 + 16 * g)));
}

void decode_q1_0(const uint8_t* b, float* out) {
  const float d = load_half(b);
  for (int i = 0; i < 128; ++i) out[i] = b[2 + i / 8] >> i % 8 & 1 ? d : -d;
}
void encode_q1_0(const float* x, uint8_t* b) {
  float sum = 0;
  for (int i = 0; i < 128; ++i) sum += std::fabs(x[i]);
  store_half(b, sum / 128);  // the mean is the best single magnitude
  std::memset(b + 2, 0, 16);
  for (int i = 0; i < 128; ++i) b[2 + i / 8] |= static_cast<uint8_t>((x[i] >= 0) << i % 8);
}

void decode_tq1_0(const uint8_t* b, float* out) {
  const float d = load_half(b + 52);
  for (const TernaryRun& r : kTernaryRuns)
    for (int k = 0; k < r.digits; ++k)
      for (int m = 0; m < r.width; ++m) {
        const auto rest = static_cast<uint8_t>(b[r.bytes + m] * kPowersOf3[k]);
        out[r.first + k * r.width + m] = d * static_cast<float>((rest * 3 >> 8) - 1);
      }
}
void encode_tq1_0(const float* x, uint8_t* b) {
  const float d = largest_magnitude(x, 256), scale = inverse(d);
  for (const TernaryRun& r : kTernaryRuns)
    for (int m = 0; m < r.width; ++m) {
      int number = 0;
      for (int k = 0; k < r.digits; ++k)
        number += digit(x[r.first + k * r.width + m], scale) * kPowersOf3[4 - k];
      b[r.bytes + m] = static_cast<uint8_t>((number * 256 + 242) / 243);
    }
  store_half(b + 52, d);
}

void decode_tq2_0(const uint8_t* b, float* out) {
  const float d = load_half(b + 64);
  for (int i = 0; i < 256; ++i) {
    const int byte = b[i / 128 * 32 + i % 32], shift = i % 128 / 32 * 2;
    out[i] = d * static_cast<float>((byte >> shift & 3) - 1);
  }
}
void encode_tq2_0(const float* x, uint8_t* b) {
  const float d = largest_magnitude(x, 256), scale = inverse(d);
  std::memset(b, 0, 64);
  for (int i = 0; i < 256; ++i)
    b[i / 128 * 32 + i % 32] |= static_cast<uint8_t>(digit(x[i], scale) << i % 128 / 32 * 2);
  store_half(b + 64, d);
}

void decode_mxfp4(const uint8_t* b, float* out) { decode_fp4(b + 1, half_of_e8m0(b[0]), 32, out); }
void encode_mxfp4(const float* x, uint8_t* b) {
  const float most = largest_magnitude(x, 32);
  // The binade of the largest element becomes E2M1's top binade [4, 8).
  b[0] = most > 0 ? static_cast<uint8_t>(clamp_int(std::floor(std::log2(most)) + 125, 0, 254)) : 0;
  encode_fp4(x, half_of_e8m0(b[0]), 32, b + 1);
}

void decode_nvfp4(const uint8_t* b, float* out) {
  for (int g = 0; g < 4; ++g) decode_fp4(b + 4 + 8 * g, half_of_ue4m3(b[g]), 16, out + 16 * g);
}
void encode_nvfp4(const float* x, uint8_t* b) {
  std::memset(b, 0, 36);  // what a group with NaN keeps
  for (int g = 0; g < 4; ++g) {
    const float* group = x + 16 * g;
    // The scale that maps the largest element to 6, and its neighbours: the least error wins.
    const int middle = float_to_e4m3(largest_magnitude(group, 16) / 6);
    double least = INFINITY;
    for (int code = std::max(middle - 2, 0); code <= std::min(middle + 2, 0x7e); ++code) {
      uint8_t codes[8];
      const auto bits = static_cast<uint8_t>(code);
      const double error = encode_fp4(group, half_of_ue4m3(bits), 16, codes);
      if (error < least) {
        least = error, b[g] = bits;
        std::copy(codes, codes + 8, b + 4 + 8 * g);
      }
    }
  }
}

// ---- codes with scales elsewhere -------------------------------------------------------------------------

void decode_int8(const uint8_t* b, float* out) {
  *out = static_cast<float>(static_cast<int8_t>(*b));
}
void encode_int8(const float* x, uint8_t* b) {
  *b = static_cast<uint8_t>(clamp_int(std::round(*x), -128, 127));
}
void decode_uint4(const uint8_t* b, float* out) {
  out[0] = static_cast<float>(*b & 15), out[1] = static_cast<float>(*b >> 4);
}
void encode_uint4(const float* x, uint8_t* b) {
  *b = static_cast<uint8_t>(clamp_int(std::round(x[0]), 0, 15) | clamp_int(std::round(x[1]), 0, 15)
                                                                     << 4);
}
void decode_e4m3(const uint8_t* b, float* out) { *out = e4m3_to_float(*b); }
void encode_e4m3(const float* x, uint8_t* b) { *b = float_to_e4m3(*x); }
void decode_e5m2(const uint8_t* b, float* out) { *out = e5m2_to_float(*b); }
void encode_e5m2(const float* x, uint8_t* b) { *b = float_to_e5m2(*x); }
void decode_e2m1(const uint8_t* b, float* out) {
  out[0] = e2m1_to_float(*b & 15), out[1] = e2m1_to_float(*b >> 4);
}
void encode_e2m1(const float* x, uint8_t* b) {
  *b = static_cast<uint8_t>(float_to_e2m1(x[0]) | float_to_e2m1(x[1]) << 4);
}

}  // namespace rlx::quant
