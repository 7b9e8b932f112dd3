// The loops of block_rows.h. Included only by the block_rows_dots_<isa>.cc files; every function that is not inlined is a
// template over the DotIsa.
#pragma once

#include "rlx/backend/cpu/kernels/compensated.h"
#include "rlx/backend/cpu/kernels/matmul/block_codes.h"
#include "rlx/backend/cpu/kernels/matmul/round_rows.h"

namespace rlx::cpu {
namespace {

#if defined(__AVX512VNNI__)
constexpr DotIsa kRowDots = DotIsa::Avx512Vnni;
#elif defined(__AVXVNNI__)
constexpr DotIsa kRowDots = DotIsa::AvxVnni;
#else
constexpr DotIsa kRowDots = kVectorBytes == 64   ? DotIsa::Avx512
                            : kVectorBytes == 32 ? DotIsa::Avx2
                                                 : DotIsa::Baseline;
#endif

}  // namespace

// Vectors of a sum: enough to hide how long an addition takes.
template <int M>
inline constexpr int kSumVectors = M == 1 ? 4 : 2;

// M sums over all chunks of 256 numbers: add(chunk's first number, its groups of 32, sums). A chunk adds to each of the
// vectors of a sum at most `terms` times. Chunks are added plainly in runs (compensated.h).
template <int W, int M, class Add>
[[gnu::always_inline]] inline void sum_chunks(int64_t k, int64_t terms, float* total, Add add) {
  using V = Vec<float, W>;
  constexpr int L = kLanes<float, W>;
  const int64_t run = kPlainTerms / terms * 256;
  V whole[M] = {}, lost[M] = {};
  for (int64_t begin = 0; begin == 0 || begin < k; begin += run) {
    const int64_t end = k - begin < run ? k : begin + run;
    V sum[M][kSumVectors<M>] = {};
    for (int64_t at = begin; at < end; at += 256)
      add(at, static_cast<int>(end - at < 256 ? (end - at) / 32 : 8), sum);
#pragma GCC unroll 4
    for (int r = 0; r < M; ++r) {
#pragma GCC unroll 2
      for (int half = kSumVectors<M> / 2; half > 0; half /= 2)
#pragma GCC unroll 2
        for (int i = 0; i < half; ++i) sum[r][i] += sum[r][i + half];
      add_run(whole[r], lost[r], sum[r][0]);
    }
  }
  for (int r = 0; r < M; ++r) {
    const V all = whole[r] + lost[r];
    float one = 0;
#pragma GCC unroll 16
    for (int l = 0; l < L; ++l) one += all[l];
    total[r] = one;
  }
}

// Scales are read from memory, one to all lanes: taking them out of a register costs the unit that decodes.
[[gnu::always_inline]] inline void in_memory(float (&scale)[16]) { asm("" : "+m"(scale)); }

template <DotIsa I, RowFormat F, int M>
[[gnu::always_inline]] inline void exact_strip(const BlockRows& p, int64_t first) {
  constexpr int W = dot_vector_bytes(I), L = kLanes<float, W>;
  using Form = BlockForm<F>;
  const int64_t row_bytes = p.k / Form::numbers * Form::bytes;
  const float* const x = p.x + first * p.x_row;
  BlockCodes c;
  for (int64_t j = 0; j < p.n; ++j) {
    const uint8_t* const w = p.w + j * row_bytes;
    float total[M];
    sum_chunks<W, M>(p.k, 256 / L / kSumVectors<M>, total,
                     [&](int64_t at, int given, auto& sum) __attribute__((always_inline)) {
                       const int groups = Form::small ? given : 8;
                       const uint8_t* const b = w + at / Form::numbers * Form::bytes;
                       load_scales<F, W>(b, groups, c);
                       in_memory(c.scale);
                       if constexpr (!kByTable<F, W> && F != RowFormat::q8_0)
                         load_codes<F>(b, groups, c.code);
                       auto group = [&](int g) __attribute__((always_inline)) {
                         numbers_of_group<F, W>(
                             b, c, g, [&](int i, Vec<float, W> v) __attribute__((always_inline)) {
                               const float* const from = x + at + 32 * g + i * L;
#pragma GCC unroll 4
                               for (int r = 0; r < M; ++r)
                                 sum[r][(32 / L * g + i) % kSumVectors<M>] +=
                                     v * load<float, W>(from + r * p.x_row);
                             });
                       };
                       if (groups == 8) {
#pragma GCC unroll 8
                         for (int g = 0; g < 8; ++g) group(g);
                       } else {
                         for (int g = 0; g < groups; ++g) group(g);
                       }
                     });
    for (int r = 0; r < M; ++r) p.y[(first + r) * p.y_row + j] = total[r];
  }
}

template <DotIsa I, RowFormat F>
void exact_rows(const BlockRows& p) {
  int64_t i = 0;
  for (; i + 4 <= p.m; i += 4) exact_strip<I, F, 4>(p, i);
  for (; i < p.m; ++i) exact_strip<I, F, 1>(p, i);
}

template <DotIsa I, RowFormat F>
void unpack_rows(const uint8_t* w, int64_t n, int64_t k, float* out) {
  constexpr int W = dot_vector_bytes(I), L = kLanes<float, W>;
  using Form = BlockForm<F>;
  BlockCodes c;
  for (int64_t at = 0; at < n * k;) {
    // Rows are whole blocks, so they are one run of them.
    const int groups = n * k - at < 256 ? static_cast<int>((n * k - at) / 32) : 8;
    const uint8_t* const b = w + at / Form::numbers * Form::bytes;
    load_scales<F, W>(b, groups, c);
    if constexpr (!kByTable<F, W> && F != RowFormat::q8_0) load_codes<F>(b, groups, c.code);
    for (int g = 0; g < groups; ++g, at += 32)
      numbers_of_group<F, W>(b, c, g, [&](int i, Vec<float, W> v) __attribute__((always_inline)) {
        store<float, W>(out + at + i * L, v);
      });
  }
}

// ---- x rounded ------------------------------------------------------------------------------------------

// Of the vectors of integers: no wider than this, so that one holds 32 numbers of one block of x.
template <DotIsa I>
inline constexpr int kRoundedBytes = I == DotIsa::Baseline ? 16 : 32;
// Whether the codes of x are stored plus 128: VNNI multiplies unsigned by signed bytes, and here the weights are signed.
template <DotIsa I, RowFormat F>
inline constexpr bool kShiftedX = has_vnni(I) && !BlockForm<F>::has_min;

// 32 codes of weights, and their dot product with x in lanes, each of neighbouring codes.
#if defined(__AVX2__)
using Codes32 = __m256i;

template <DotIsa I, RowFormat F>
[[gnu::always_inline]] inline Vec<int32_t, 32> dot_of_32(Codes32 w, const int8_t* x) {
  using V = Vec<int32_t, 32>;
  const __m256i right = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(x));
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
  if constexpr (has_vnni(I)) {
    const auto dots = [](__m256i a, __m256i b) __attribute__((always_inline)) {
#if defined(__AVX512VNNI__)
      return reinterpret_cast<V>(_mm256_dpbusd_epi32(_mm256_setzero_si256(), a, b));
#else
      return reinterpret_cast<V>(_mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), a, b));
#endif
    };
    if constexpr (BlockForm<F>::has_min) return dots(w, right);
    return dots(right, w) - dots(_mm256_set1_epi8(-128), w);
  }
#endif
  // |w| times x with w's sign: two products are at most 2 * 128 * 127, which 16 bits hold.
  const __m256i pairs = BlockForm<F>::has_min
                            ? _mm256_maddubs_epi16(w, right)
                            : _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(right, w));
  return reinterpret_cast<V>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
#else
using Codes32 = const int8_t*;

template <DotIsa I, RowFormat F>
[[gnu::always_inline]] inline Vec<int32_t, 16> dot_of_32(Codes32 w, const int8_t* x) {
  Vec<int32_t, 16> sum{};
  for (int l = 0; l < 4; ++l) {
    int32_t one = 0;
    for (int i = 8 * l; i < 8 * l + 8; ++i) one += w[i] * x[i];
    sum[l] = one;
  }
  return sum;
}
#endif

template <DotIsa I, RowFormat F, int M>
[[gnu::always_inline]] inline void rounded_strip(const BlockRows& p, int64_t first) {
  constexpr int W = kRoundedBytes<I>, L = kLanes<float, W>;
  using Form = BlockForm<F>;
  using V = Vec<float, W>;
  const int64_t row_bytes = p.k / Form::numbers * Form::bytes, x_blocks = p.k / kXBlock;
  BlockCodes c;
  for (int64_t j = 0; j < p.n; ++j) {
    const uint8_t* const w = p.w + j * row_bytes;
    float total[M];
    sum_chunks<W, M>(
        p.k, 8 / kSumVectors<M> + 8 / L, total,
        [&](int64_t at, int given, auto& sum) __attribute__((always_inline)) {
          const int groups = Form::small ? given : 8;
          const uint8_t* const b = w + at / Form::numbers * Form::bytes;
          load_scales<F, dot_vector_bytes(I)>(b, groups, c);
          if constexpr (I == DotIsa::Baseline) load_codes<F>(b, groups, c.code);
          float scale[M][16];  // of the products
#pragma GCC unroll 4
          for (int r = 0; r < M; ++r) {
            const float* const by = p.rounded.scale + (first + r) * x_blocks + at / 32;
            for (int i = 0; i < groups * 32 / Form::per_scale; ++i)
              scale[r][i] = c.scale[i] * by[i * Form::per_scale / 32];
            in_memory(scale[r]);
          }
          auto group = [&](int g) __attribute__((always_inline)) {
#if defined(__AVX2__)
            const Codes32 codes = codes_of_group<F>(b, g);
#else
            const Codes32 codes = c.code + 32 * g;
#endif
#pragma GCC unroll 4
            for (int r = 0; r < M; ++r) {
              const V dots = __builtin_convertvector(
                  (dot_of_32<I, F>(codes, p.rounded.code + (first + r) * p.k + at + 32 * g)), V);
              V by;
              if constexpr (Form::per_scale == 16) {
                const float low = scale[r][2 * g], high = scale[r][2 * g + 1];
                if constexpr (L == 8)
                  by = V{low, low, low, low, high, high, high, high};
                else
                  by = V{low, low, high, high};
              } else {
                by = splat<float, W>(scale[r][g]);
              }
              sum[r][g % kSumVectors<M>] += dots * by;
            }
          };
          if (groups == 8) {
#pragma GCC unroll 8
            for (int g = 0; g < 8; ++g) group(g);
          } else {
            for (int g = 0; g < groups; ++g) group(g);
          }
          if constexpr (Form::has_min)
            for (int r = 0; r < M; ++r)
              for (int i = 0; i < 8; i += L)
                sum[r][0] -= load<float, W>(c.scale + 8 + i) *
                             load<float, W>(p.rounded.sum + (first + r) * x_blocks + at / 32 + i);
        });
    for (int r = 0; r < M; ++r) p.y[(first + r) * p.y_row + j] = total[r];
  }
}

template <DotIsa I, RowFormat F>
void rounded_rows(const BlockRows& p) {
  int64_t i = 0;
  for (; i + 4 <= p.m; i += 4) rounded_strip<I, F, 4>(p, i);
  for (; i < p.m; ++i) rounded_strip<I, F, 1>(p, i);
}

template <DotIsa I, RowFormat F>
BlockRowFns fns_of_format() {
  return {&exact_rows<I, F>, &unpack_rows<I, F>, &rounded_rows<I, F>,
          &round_rows<I, kShiftedX<I, F>>};
}

template <DotIsa I>
BlockRowFns block_row_fns_of(RowFormat format) {
  switch (format) {
    case RowFormat::q8_0:
      return fns_of_format<I, RowFormat::q8_0>();
    case RowFormat::q4_0:
      return fns_of_format<I, RowFormat::q4_0>();
    case RowFormat::q4_k:
      return fns_of_format<I, RowFormat::q4_k>();
    case RowFormat::q5_k:
      return fns_of_format<I, RowFormat::q5_k>();
    case RowFormat::q6_k:
      return fns_of_format<I, RowFormat::q6_k>();
    case RowFormat::iq4_xs:
      return fns_of_format<I, RowFormat::iq4_xs>();
  }
  return {};
}

template BlockRowFns block_row_fns_of<kRowDots>(RowFormat format);

}  // namespace rlx::cpu
