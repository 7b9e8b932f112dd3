// The loops of block_panels.h. Included only by the block_panels_dots_<isa>.cc files; every function that is not inlined is
// a template over the DotIsa.
#pragma once

#include "rlx/backend/cpu/kernels/compensated.h"
#include "rlx/backend/cpu/kernels/matmul/block_codes.h"
#include "rlx/backend/cpu/kernels/matmul/block_panels.h"
#include "rlx/backend/cpu/kernels/matmul/round_rows.h"

namespace rlx::cpu {
namespace {

#if defined(__AVX512VNNI__)
constexpr DotIsa kPanelDots = DotIsa::Avx512Vnni;
#elif defined(__AVXVNNI__)
constexpr DotIsa kPanelDots = DotIsa::AvxVnni;
#else
constexpr DotIsa kPanelDots = kVectorBytes == 64   ? DotIsa::Avx512
                              : kVectorBytes == 32 ? DotIsa::Avx2
                                                   : DotIsa::Baseline;
#endif

}  // namespace

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)

// Rows whose sums, in integers and in floats, stay in registers.
template <DotIsa I>
inline constexpr int kPanelRows = I == DotIsa::Avx512Vnni ? 6 : 2;

template <DotIsa I, RowFormat F>
struct PanelForm {
  static constexpr int W = dot_vector_bytes(I), L = W / 4, P = 2 * L;
  static constexpr int per_scale = BlockForm<F>::per_scale;
  static constexpr bool has_min = BlockForm<F>::has_min;
  static constexpr int block_bytes = P * (per_scale + 4 + (has_min ? 4 : 0));
};

template <DotIsa I, RowFormat F>
int64_t panel_bytes(int64_t k) {
  using Form = PanelForm<I, F>;
  return k / Form::per_scale * Form::block_bytes;
}

template <DotIsa I, RowFormat F>
void pack_panel(const uint8_t* w, int64_t n, int64_t k, uint8_t* panel) {
  using Form = PanelForm<I, F>;
  constexpr int P = Form::P, S = Form::per_scale;
  const int64_t row_bytes = k / BlockForm<F>::numbers * BlockForm<F>::bytes;
  BlockCodes c;
  for (int64_t j = 0; j < P; ++j)
    for (int64_t at = 0; at < k; at += 256) {
      const int groups = k - at < 256 ? static_cast<int>((k - at) / 32) : 8;
      if (j < n) {
        const uint8_t* const b =
            w + j * row_bytes + at / BlockForm<F>::numbers * BlockForm<F>::bytes;
        load_scales<F, Form::W>(b, groups, c);
        load_codes<F>(b, groups, c.code);
      } else {
        c = {};
      }
      for (int i = 0; i < groups * 32 / S; ++i) {
        uint8_t* const block = panel + (at / S + i) * Form::block_bytes;
        for (int p = 0; p < S; ++p)
          block[p / 4 * 4 * P + 4 * j + p % 4] =
              static_cast<uint8_t>(c.code[i * S + p] ^ (Form::has_min ? 0 : 0x80));
        __builtin_memcpy(block + S * P + 4 * j, &c.scale[i], 4);
        if (Form::has_min) __builtin_memcpy(block + (S + 4) * P + 4 * j, &c.scale[8 + i], 4);
      }
    }
}

// Minus 128 times the sum of each sixteen codes; 0 where the weights are not shifted.
template <DotIsa I, RowFormat F>
void panel_starts(const int8_t* code, int64_t count, int32_t* start) {
  for (int64_t i = 0; i < count; i += 16) {
    int32_t sum = 0;
    for (int64_t p = i; p < i + 16; ++p) sum += code[p];
    start[i / 16] = PanelForm<I, F>::has_min ? 0 : -128 * sum;
  }
}

// R rows over blocks [begin, end), which are added plainly.
template <DotIsa I, RowFormat F, int R>
[[gnu::noinline]] void panel_micro(const BlockPanelTile& t, int64_t row, int64_t begin, int64_t end,
                                   float* y, int64_t y_row) {
  using Form = PanelForm<I, F>;
  constexpr int W = Form::W, L = Form::L, P = Form::P, S = Form::per_scale;
  using V = Vec<float, W>;
  using Whole = Vec<int32_t, W>;
  V sum[R][2];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = V{};
  const uint8_t* block = t.panel + begin * Form::block_bytes;
  for (int64_t b = begin; b < end; ++b, block += Form::block_bytes) {
    Whole dots[R][2];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const int32_t* const start = t.start + ((row + r) * t.k + b * S) / 16;
      dots[r][0] = dots[r][1] = start[0] + (S == 32 ? start[1] : 0) - Whole{};
    }
#pragma GCC unroll 8
    for (int p = 0; p < S; p += 4) {
      Whole left, right;
      __builtin_memcpy(&left, block + p * P, W);
      __builtin_memcpy(&right, block + p * P + W, W);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        int32_t x;
        __builtin_memcpy(&x, t.code + (row + r) * t.k + b * S + p, 4);
        const Whole all = x - Whole{};
#if defined(__AVX512VNNI__)
        dots[r][0] = reinterpret_cast<Whole>(
            _mm512_dpbusd_epi32(reinterpret_cast<__m512i>(dots[r][0]),
                                reinterpret_cast<__m512i>(left), reinterpret_cast<__m512i>(all)));
        dots[r][1] = reinterpret_cast<Whole>(
            _mm512_dpbusd_epi32(reinterpret_cast<__m512i>(dots[r][1]),
                                reinterpret_cast<__m512i>(right), reinterpret_cast<__m512i>(all)));
#else
        dots[r][0] = reinterpret_cast<Whole>(_mm256_dpbusd_avx_epi32(
            reinterpret_cast<__m256i>(dots[r][0]), reinterpret_cast<__m256i>(left),
            reinterpret_cast<__m256i>(all)));
        dots[r][1] = reinterpret_cast<Whole>(_mm256_dpbusd_avx_epi32(
            reinterpret_cast<__m256i>(dots[r][1]), reinterpret_cast<__m256i>(right),
            reinterpret_cast<__m256i>(all)));
#endif
      }
    }
    const auto* const scale = reinterpret_cast<const float*>(block + S * P);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const int64_t at = ((row + r) * t.k + b * S) / 32;
      const V by = splat<float, W>(t.scale[at]);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        sum[r][h] += __builtin_convertvector(dots[r][h], V) * (by * load<float, W>(scale + h * L));
        if constexpr (Form::has_min) sum[r][h] -= load<float, W>(scale + P + h * L) * t.sum[at];
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) store<float, W>(y + r * y_row + h * L, sum[r][h]);
}

template <DotIsa I, RowFormat F, int R>
[[gnu::always_inline]] inline void panel_rows(const BlockPanelTile& t, int64_t row) {
  constexpr int P = PanelForm<I, F>::P;
  const int64_t blocks = t.k / PanelForm<I, F>::per_scale;
  alignas(64) float part[R * P], whole[R * P] = {}, lost[R * P] = {};
  const bool direct = t.n == P && blocks <= kPlainTerms / 2;
  for (int64_t begin = 0; begin == 0 || begin < blocks; begin += kPlainTerms / 2) {
    const int64_t end = blocks - begin < kPlainTerms / 2 ? blocks : begin + kPlainTerms / 2;
    if (direct) {
      panel_micro<I, F, R>(t, row, begin, end, t.y + row * t.y_row, t.y_row);
      return;
    }
    panel_micro<I, F, R>(t, row, begin, end, part, P);
    for (int i = 0; i < R * P; ++i) add_run(whole[i], lost[i], part[i]);
  }
  for (int r = 0; r < R; ++r)
    for (int64_t j = 0; j < t.n; ++j)
      t.y[(row + r) * t.y_row + j] = whole[r * P + j] + lost[r * P + j];
}

template <DotIsa I, RowFormat F>
void run_panel(const BlockPanelTile& t) {
  constexpr int R = kPanelRows<I>;
  int64_t row = 0;
  for (; row + R <= t.m; row += R) panel_rows<I, F, R>(t, row);
  for (; row < t.m; ++row) panel_rows<I, F, 1>(t, row);
}

template <DotIsa I, RowFormat F>
BlockPanelFns panel_fns_of_format() {
  return {PanelForm<I, F>::P,    &panel_bytes<I, F>,  &pack_panel<I, F>,
          &round_rows<I, false>, &panel_starts<I, F>, &run_panel<I, F>};
}

template <DotIsa I>
BlockPanelFns block_panel_fns_of(RowFormat format) {
  switch (format) {
    case RowFormat::q8_0:
      return panel_fns_of_format<I, RowFormat::q8_0>();
    case RowFormat::q4_0:
      return panel_fns_of_format<I, RowFormat::q4_0>();
    case RowFormat::q4_k:
      return panel_fns_of_format<I, RowFormat::q4_k>();
    case RowFormat::q5_k:
      return panel_fns_of_format<I, RowFormat::q5_k>();
    case RowFormat::q6_k:
      return panel_fns_of_format<I, RowFormat::q6_k>();
    case RowFormat::iq4_xs:
      return panel_fns_of_format<I, RowFormat::iq4_xs>();
  }
  return {};
}

#else

template <DotIsa I>
BlockPanelFns block_panel_fns_of(RowFormat) {
  return {};  // without products of bytes the rows' kernel is as good
}

#endif

template BlockPanelFns block_panel_fns_of<kPanelDots>(RowFormat format);

}  // namespace rlx::cpu
