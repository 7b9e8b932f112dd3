// Blocks of quantised weights as bytes with a scale for 32 or 16 of them: number = scale * code - min. Included only by the
// files compiled for one instruction set.
#pragma once

#include "rlx/backend/cpu/kernels/byte_vectors.h"
#include "rlx/backend/cpu/kernels/matmul/block_rows.h"

namespace rlx::cpu {

// Up to 256 numbers.
struct BlockCodes {
  alignas(64) int8_t code[256];
  alignas(64) float scale[16];  // where there are minima: eight scales, then eight minima
};

// What a format's blocks are: `numbers` in `bytes`; numbers that share a scale; whether there are minima.
template <RowFormat F>
struct BlockForm {
  static constexpr bool small = F == RowFormat::q8_0 || F == RowFormat::q4_0;
  static constexpr int numbers = small ? 32 : 256;
  static constexpr int bytes = F == RowFormat::q8_0   ? 34
                               : F == RowFormat::q4_0 ? 18
                               : F == RowFormat::q4_k ? 144
                               : F == RowFormat::q5_k ? 176
                               : F == RowFormat::q6_k ? 210
                                                      : 136;
  static constexpr int per_scale = F == RowFormat::q6_k ? 16 : 32;
  static constexpr bool has_min = F == RowFormat::q4_k || F == RowFormat::q5_k;
  static constexpr bool nibbles = F != RowFormat::q8_0 && F != RowFormat::q6_k;
};

[[gnu::always_inline]] inline float half_at(const uint8_t* p) {
  uint16_t bits;
  __builtin_memcpy(&bits, p, 2);
#if defined(__F16C__)
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
#else
  return f16_to_float(bits);
#endif
}

[[gnu::always_inline]] inline uint32_t word_at(const uint8_t* p) {
  uint32_t v;
  __builtin_memcpy(&v, p, 4);
  return v;
}

inline constexpr int8_t kUnevenLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                             1,    13,   25,  38,  53,  69,  89,  113};

// out[i] = d * byte[i], i < 16; the last eight times `rest`.
template <int W, bool kSigned>
[[gnu::always_inline]] inline void scale_bytes(const void* bytes, float d, float rest, float* out) {
  constexpr int L = kLanes<float, W>;
  const auto* from = static_cast<const uint8_t*>(bytes);
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += L) {
    const auto v = __builtin_convertvector((widened<W, kSigned>(from + i)), Vec<float, W>);
    if constexpr (L == 16) {
      const Vec<float, W> by = {d,    d,    d,    d,    d,    d,    d,    d,
                                rest, rest, rest, rest, rest, rest, rest, rest};
      store<float, W>(out + i, v * by);
    } else {
      store<float, W>(out + i, v * (i < 8 ? d : rest));
    }
  }
}

// Eight 6-bit pairs of Q4_K and Q5_K (quant/k_blocks.cc, load_pairs), times d and dmin: eight scales, eight minima.
template <int W>
[[gnu::always_inline]] inline void load_k_scales(const uint8_t* b, float* out) {
  const uint32_t a = word_at(b + 4), c = word_at(b + 8), e = word_at(b + 12);
  const uint32_t words[4] = {a & 0x3f3f3f3f, (e & 0x0f0f0f0f) | (a >> 6 & 0x03030303) << 4,
                             c & 0x3f3f3f3f, (e >> 4 & 0x0f0f0f0f) | (c >> 6 & 0x03030303) << 4};
  uint8_t bytes[16];
  __builtin_memcpy(bytes, words, 16);
  scale_bytes<W, false>(bytes, half_at(b), half_at(b + 2), out);
}

[[gnu::always_inline]] inline void load_iq4_scales(const uint8_t* b, float* scale) {
  typedef uint32_t Words __attribute__((vector_size(32)));  // whatever the vectors are
  typedef int32_t Ints8 __attribute__((vector_size(32)));
  typedef float Floats8 __attribute__((vector_size(32)));
  const Words step = {0, 1, 2, 3, 4, 5, 6, 7};
  const uint32_t low = word_at(b + 4), high = static_cast<uint32_t>(b[2] | b[3] << 8);
  const Words six = (low >> step * 4 & 15) | (high >> step * 2 & 3) << 4;
  const Ints8 whole = reinterpret_cast<Ints8>(six) - 32;
  const Floats8 out = __builtin_convertvector(whole, Floats8) * half_at(b);
  __builtin_memcpy(scale, &out, 32);
}

// Where the nibbles of group g of 32 numbers begin, and whether they are the low and then the high ones of 16 bytes, or one
// kind of 32 bytes.
template <RowFormat F>
[[gnu::always_inline]] inline const uint8_t* nibbles_of(const uint8_t* b, int g) {
  if constexpr (F == RowFormat::q4_0) return b + 18 * g + 2;
  if constexpr (F == RowFormat::iq4_xs) return b + 8 + 16 * g;
  return b + (F == RowFormat::q5_k ? 48 : 16) + g / 2 * 32;
}
template <RowFormat F>
inline constexpr bool kBothHalves = F == RowFormat::q4_0 || F == RowFormat::iq4_xs;

// Scales, and minima behind them, of `groups` times 32 numbers.
template <RowFormat F, int W>
[[gnu::always_inline]] inline void load_scales(const uint8_t* b, int groups, BlockCodes& c) {
  if constexpr (BlockForm<F>::small)
    for (int g = 0; g < groups; ++g) c.scale[g] = half_at(b + BlockForm<F>::bytes * g);
  else if constexpr (BlockForm<F>::has_min)
    load_k_scales<W>(b, c.scale);
  else if constexpr (F == RowFormat::iq4_xs)
    load_iq4_scales(b, c.scale);
  else
    scale_bytes<W, true>(b + 192, half_at(b + 208), half_at(b + 208), c.scale);
}

using Bytes16 = Vec<uint8_t, 16>;
[[gnu::always_inline]] inline Bytes16 bytes_at(const uint8_t* p) { return load<uint8_t, 16>(p); }
[[gnu::always_inline]] inline void put_codes(int8_t* to, Bytes16 v) {
  __builtin_memcpy(to, &v, 16);
}

// Nibbles 0..15 as the codes of the format.
template <RowFormat F>
[[gnu::always_inline]] inline Bytes16 codes_of(Bytes16 nibble) {
  if constexpr (F == RowFormat::q4_0) return nibble - 8;
  if constexpr (F == RowFormat::iq4_xs) {
#if defined(__SSSE3__)
    return reinterpret_cast<Bytes16>(
        _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(kUnevenLevels)),
                         reinterpret_cast<__m128i>(nibble)));
#else
    for (int i = 0; i < 16; ++i) nibble[i] = static_cast<uint8_t>(kUnevenLevels[nibble[i]]);
#endif
  }
  return nibble;
}

template <RowFormat F>
[[gnu::always_inline]] inline void load_codes(const uint8_t* b, int groups, int8_t* code) {
  if constexpr (F == RowFormat::q8_0) {
    for (int g = 0; g < groups; ++g) __builtin_memcpy(code + 32 * g, b + 34 * g + 2, 32);
  } else if constexpr (kBothHalves<F>) {
    for (int g = 0; g < groups; ++g) {
      const Bytes16 v = bytes_at(nibbles_of<F>(b, g));
      put_codes(code + 32 * g, codes_of<F>(v & 15));
      put_codes(code + 32 * g + 16, codes_of<F>(v >> 4));
    }
  } else if constexpr (F == RowFormat::q6_k) {
    for (int h = 0; h < 2; ++h)
      for (int o = 0; o < 32; o += 16) {
        const Bytes16 low = bytes_at(b + 64 * h + o), next = bytes_at(b + 64 * h + 32 + o),
                      high = bytes_at(b + 128 + 32 * h + o);
        int8_t* const to = code + 128 * h + o;
        put_codes(to, ((low & 15) | (high & 3) << 4) - 32);
        put_codes(to + 32, ((next & 15) | (high >> 2 & 3) << 4) - 32);
        put_codes(to + 64, (low >> 4 | (high >> 4 & 3) << 4) - 32);
        put_codes(to + 96, (next >> 4 | (high >> 6) << 4) - 32);
      }
  } else {
    for (int p = 0; p < 4; ++p)
      for (int o = 0; o < 32; o += 16) {
        const Bytes16 v = bytes_at(nibbles_of<F>(b, 2 * p) + o);
        Bytes16 low = v & 15, high = v >> 4;
        if constexpr (F == RowFormat::q5_k) {
          const Bytes16 fifth = bytes_at(b + 16 + o) >> static_cast<uint8_t>(2 * p);
          low |= (fifth & 1) << 4;
          high |= (fifth & 2) << 3;
        }
        put_codes(code + 64 * p + o, low);
        put_codes(code + 64 * p + 32 + o, high);
      }
  }
}

#if defined(__AVX2__)
// The codes of group g of 32 numbers, as load_codes gives them.
template <RowFormat F>
[[gnu::always_inline]] inline __m256i codes_of_group(const uint8_t* b, int g) {
  const auto bytes = [](const uint8_t* p) __attribute__((always_inline)) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(p));
  };
  const __m256i four = _mm256_set1_epi8(15);
  if constexpr (F == RowFormat::q8_0) {
    return bytes(b + 34 * g + 2);
  } else if constexpr (kBothHalves<F>) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(nibbles_of<F>(b, g)));
    const __m256i both =
        _mm256_inserti128_si256(_mm256_castsi128_si256(v), _mm_srli_epi16(v, 4), 1);
    const __m256i nibble = _mm256_and_si256(both, four);
    if constexpr (F == RowFormat::q4_0) return _mm256_sub_epi8(nibble, _mm256_set1_epi8(8));
    const __m128i levels = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(kUnevenLevels));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels), nibble);
  } else if constexpr (F == RowFormat::q6_k) {
    const int half = g / 4, part = g % 4;
    const __m256i low = bytes(b + 64 * half + part % 2 * 32), high = bytes(b + 128 + 32 * half);
    const __m256i four_bits = _mm256_and_si256(part < 2 ? low : _mm256_srli_epi16(low, 4), four);
    const __m256i two_bits = _mm256_and_si256(part == 0   ? _mm256_slli_epi16(high, 4)
                                              : part == 1 ? _mm256_slli_epi16(high, 2)
                                              : part == 2 ? high
                                                          : _mm256_srli_epi16(high, 2),
                                              _mm256_set1_epi8(0x30));
    return _mm256_sub_epi8(_mm256_or_si256(four_bits, two_bits), _mm256_set1_epi8(32));
  } else {
    const __m256i v = bytes(nibbles_of<F>(b, g));
    __m256i code = _mm256_and_si256(g % 2 ? _mm256_srli_epi16(v, 4) : v, four);
    if constexpr (F == RowFormat::q5_k) {
      const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << g));
      const __m256i on = _mm256_cmpeq_epi8(_mm256_and_si256(bytes(b + 16), bit), bit);
      code = _mm256_or_si256(code, _mm256_and_si256(on, _mm256_set1_epi8(16)));
    }
    return code;
  }
}
#endif

// Numbers [32 g, 32 g + 32) of up to 256, as vectors: f(i, v) for the i-th vector of the group. Scales come from
// load_scales, codes (where with_codes) from load_codes.
template <RowFormat F, int W>
inline constexpr bool kByTable = W == 64 && BlockForm<F>::nibbles;

template <RowFormat F, int W, class Use>
[[gnu::always_inline]] inline void numbers_of_group(const uint8_t* b, const BlockCodes& c, int g,
                                                    Use use) {
  using V = Vec<float, W>;
  constexpr int L = kLanes<float, W>;
#if defined(__AVX512F__)
  if constexpr (kByTable<F, W>) {
    // All sixteen numbers of the group, and each picked by its nibble: the instruction reads four bits.
    const __m512 levels =
        F == RowFormat::iq4_xs ? _mm512_setr_ps(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25,
                                                38, 53, 69, 89, 113)
        : F == RowFormat::q4_0
            ? _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7)
            : _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const V scale = splat<float, W>(c.scale[g]);
    V table = reinterpret_cast<V>(levels) * scale;
    if constexpr (BlockForm<F>::has_min) table -= c.scale[8 + g];
    const uint8_t* const p = nibbles_of<F>(b, g);
    using Words = Vec<uint32_t, W>;
    auto first = reinterpret_cast<Words>(widened<W, false>(p)), second = first;
    if constexpr (kBothHalves<F>) {
      second = first >> 4;
    } else {
      second = reinterpret_cast<Words>(widened<W, false>(p + 16));
      if (g % 2) first >>= 4, second >>= 4;
    }
    const auto pick = [&](Words at) __attribute__((always_inline)) {
      return _mm512_maskz_permutexvar_ps(0xffff, reinterpret_cast<__m512i>(at),
                                         reinterpret_cast<__m512>(table));
    };
    __m512 x = pick(first), y = pick(second);
    if constexpr (F == RowFormat::q5_k) {
      const __m256i fifth = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(b + 16));
      const __mmask32 on =
          _mm256_test_epi8_mask(fifth, _mm256_set1_epi8(static_cast<char>(1 << g)));
      const auto more = reinterpret_cast<__m512>(scale * 16.0f);
      x = _mm512_mask_add_ps(x, static_cast<__mmask16>(on), x, more);
      y = _mm512_mask_add_ps(y, static_cast<__mmask16>(on >> 16), y, more);
    }
    use(0, reinterpret_cast<V>(x));
    use(1, reinterpret_cast<V>(y));
    return;
  }
#endif
#pragma GCC unroll 8
  for (int i = 0; i < 32 / L; ++i) {
    const void* const from = F == RowFormat::q8_0 ? static_cast<const void*>(b + 34 * g + 2 + i * L)
                                                  : c.code + 32 * g + i * L;
    const V number = __builtin_convertvector((widened<W, true>(from)), V);
    V scaled = number * c.scale[(32 * g + i * L) / BlockForm<F>::per_scale];
    if constexpr (BlockForm<F>::has_min) scaled -= c.scale[8 + g];
    use(i, scaled);
  }
}

}  // namespace rlx::cpu
