// The loops of byte_dots.h. Included only by the byte_dots_<isa>.cc files; VNNI is compiled next to plain AVX of the same
// width, so every function that is not inlined is a template over the DotIsa.
#pragma once

#include "rlx/backend/cpu/kernels/byte_vectors.h"
#include "rlx/backend/cpu/kernels/matmul/byte_dots.h"

namespace rlx::cpu {
namespace {

#if defined(__AVX512VNNI__)
constexpr DotIsa kDots = DotIsa::Avx512Vnni;
#elif defined(__AVXVNNI__)
constexpr DotIsa kDots = DotIsa::AvxVnni;
#else
constexpr DotIsa kDots = kVectorBytes == 64   ? DotIsa::Avx512
                         : kVectorBytes == 32 ? DotIsa::Avx2
                                              : DotIsa::Baseline;
#endif

}  // namespace

// Rows of a block of C that stays in registers over a sum; it has two vectors of columns.
template <DotIsa I>
inline constexpr int kDotRows = dot_vector_bytes(I) == 64   ? 14
                                : dot_vector_bytes(I) == 32 ? 6
                                                            : 4;
template <DotIsa I>
inline constexpr int kDotLanes = dot_vector_bytes(I) / 4;
template <DotIsa I>
inline constexpr int kDotPanel = 2 * kDotLanes<I>;
template <DotIsa I>
using DotVec = Vec<uint32_t, dot_vector_bytes(I)>;
// Groups of k that are summed before the next: a block of A's rows stays in the first cache.
inline constexpr int64_t kDotDepth = 512;
// Groups of B (4 bytes each) that all rows of a tile meet before the next are read: a part of the second cache.
inline constexpr int64_t kDotChunk = 1 << 17;

// sum + the dot products of groups of A and B.
template <DotIsa I, bool kSignedA>
[[gnu::always_inline]] inline DotVec<I> add_dots(DotVec<I> sum, DotVec<I> a, DotVec<I> b) {
#if defined(__AVX512VNNI__)
  if constexpr (I == DotIsa::Avx512Vnni) {
    const auto s = reinterpret_cast<__m512i>(sum), x = reinterpret_cast<__m512i>(a),
               y = reinterpret_cast<__m512i>(b);
    return reinterpret_cast<DotVec<I>>(kSignedA ? _mm512_dpbusd_epi32(s, y, x)
                                                : _mm512_dpbusd_epi32(s, x, y));
  }
#endif
#if defined(__AVXVNNI__) && !defined(__AVX512VNNI__)
  if constexpr (I == DotIsa::AvxVnni) {
    const auto s = reinterpret_cast<__m256i>(sum), x = reinterpret_cast<__m256i>(a),
               y = reinterpret_cast<__m256i>(b);
    return reinterpret_cast<DotVec<I>>(kSignedA ? _mm256_dpbusd_avx_epi32(s, y, x)
                                                : _mm256_dpbusd_avx_epi32(s, x, y));
  }
#endif
#if defined(__AVX512BW__)
  if constexpr (I == DotIsa::Avx512)
    return sum + reinterpret_cast<DotVec<I>>(
                     _mm512_madd_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#endif
#if defined(__AVX2__)
  if constexpr (I == DotIsa::Avx2)
    return sum + reinterpret_cast<DotVec<I>>(
                     _mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#endif
#if defined(__SSE2__)
  if constexpr (I == DotIsa::Baseline)
    return sum + reinterpret_cast<DotVec<I>>(
                     _mm_madd_epi16(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#endif
#pragma GCC unroll 4
  for (int l = 0; l < kDotLanes<I>; ++l) {
    const auto low = static_cast<int32_t>(static_cast<int16_t>(a[l])) * static_cast<int16_t>(b[l]);
    const auto high = (static_cast<int32_t>(a[l]) >> 16) * (static_cast<int32_t>(b[l]) >> 16);
    sum[l] += static_cast<uint32_t>(low) + static_cast<uint32_t>(high);
  }
  return sum;
}

template <DotIsa I>
[[gnu::always_inline]] inline DotVec<I> load_dots(const void* p) {
  DotVec<I> v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

struct DotMicro {
  int64_t groups;
  const uint8_t* a;
  int64_t a_row;
  const uint32_t* b;
  uint32_t* c;
  int64_t c_row;
  bool add;
  ByteTerm terms[2];  // none but on the last groups
};

template <DotIsa I, bool kSignedA, int R>
[[gnu::noinline]] void dot_micro(const DotMicro& g) {
  using V = DotVec<I>;
  constexpr int L = kDotLanes<I>;
  V sum[R][2];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) sum[i][0] = sum[i][1] = V{};
  const uint8_t* a = g.a;
  const uint32_t* b = g.b;
  const int64_t a_row = g.a_row;
  for (int64_t p = 0; p < g.groups; ++p, a += 4, b += 2 * L) {
    const V left = load_dots<I>(b), right = load_dots<I>(b + L);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      uint32_t x;
      __builtin_memcpy(&x, a + i * a_row, 4);
      const V all = x - V{};
      sum[i][0] = add_dots<I, kSignedA>(sum[i][0], all, left);
      sum[i][1] = add_dots<I, kSignedA>(sum[i][1], all, right);
    }
  }
  for (const ByteTerm& t : g.terms) {
    if (!t.row) continue;
    const V left = load_dots<I>(t.column), right = load_dots<I>(t.column + L);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      sum[i][0] -= t.row[i] * left;
      sum[i][1] -= t.row[i] * right;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      uint32_t* const c = g.c + i * g.c_row + j * L;
      const V v = g.add ? load_dots<I>(c) + sum[i][j] : sum[i][j];
      __builtin_memcpy(c, &v, sizeof v);
    }
}

template <DotIsa I, bool kSignedA>
struct DotMicros {
  void (*fn[kDotRows<I> + 1])(const DotMicro&) = {};  // by number of rows
  template <int R>
  constexpr void fill() {
    if constexpr (R > 0) {
      fn[R] = &dot_micro<I, kSignedA, R>;
      fill<R - 1>();
    }
  }
  constexpr DotMicros() { fill<kDotRows<I>>(); }
};
template <DotIsa I, bool kSignedA>
inline constexpr DotMicros<I, kSignedA> kDotMicros{};

// The last columns, fewer than a panel: through a block of a whole panel's width.
template <DotIsa I, bool kSignedA>
[[gnu::noinline]] void dot_edge(DotMicro g, int64_t rows, int64_t columns) {
  constexpr int P = kDotPanel<I>;
  alignas(64) uint32_t edge[kDotRows<I> * P];
  uint32_t* const c = g.c;
  const int64_t c_row = g.c_row;
  const bool add = g.add;
  g.c = edge;
  g.c_row = P;
  g.add = false;
  kDotMicros<I, kSignedA>.fn[rows](g);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t q = 0; q < columns; ++q)
      c[r * c_row + q] = edge[r * P + q] + (add ? c[r * c_row + q] : 0);
}

// Groups [begin, end) of k and columns [first, last), in whole panels but for the last of the tile.
template <DotIsa I, bool kSignedA>
void run_dot_part(const ByteTile& t, int64_t begin, int64_t end, int64_t first, int64_t last) {
  constexpr int P = kDotPanel<I>;
  const int64_t blocks = (t.m + kDotRows<I> - 1) / kDotRows<I>;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t i = t.m * block / blocks, rows = t.m * (block + 1) / blocks - i;
    DotMicro g{.groups = end - begin,
               .a = reinterpret_cast<const uint8_t*>(t.a + begin) + i * t.a_row,
               .a_row = t.a_row,
               .b = nullptr,
               .c = nullptr,
               .c_row = t.c_row,
               .add = begin > 0,
               .terms = {}};
    for (int64_t j = first; j < last; j += P) {
      g.b = t.b + j / P * t.panel_stride + begin * P;
      g.c = reinterpret_cast<uint32_t*>(t.c) + i * t.c_row + j;
      if (end == t.groups)
        for (int q = 0; q < 2; ++q)
          if (t.terms[q].row) g.terms[q] = {t.terms[q].row + i, t.terms[q].column + j};
      if (last - j >= P)
        kDotMicros<I, kSignedA>.fn[rows](g);
      else
        dot_edge<I, kSignedA>(g, rows, last - j);
    }
  }
}

template <DotIsa I, bool kSignedA>
void run_dots(const ByteTile& t) {
  constexpr int P = kDotPanel<I>;
  const int64_t parts = t.groups > kDotDepth ? (t.groups + kDotDepth - 1) / kDotDepth : 1;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t begin = t.groups * part / parts, end = t.groups * (part + 1) / parts;
    const int64_t depth = end > begin ? end - begin : 1;
    const int64_t fit = kDotChunk / depth / P * P, chunk = fit < P ? P : fit;
    for (int64_t j = 0; j < t.n; j += chunk)
      run_dot_part<I, kSignedA>(t, begin, end, j, j + chunk < t.n ? j + chunk : t.n);
  }
}

template <DotIsa I>
void run_byte_tile(const ByteTile& t) {
  if (t.m <= 0) return;
  t.a_signed ? run_dots<I, true>(t) : run_dots<I, false>(t);
}

// One byte as a number of a group, at position i of it.
template <DotIsa I>
[[gnu::always_inline]] inline uint32_t in_group(uint8_t byte, bool is_signed, int i) {
  if constexpr (has_vnni(I)) return static_cast<uint32_t>(byte) << 8 * i;
  const int number = is_signed ? static_cast<int8_t>(byte) : byte;
  return (static_cast<uint32_t>(number) & 0xffff) << 16 * i;
}

// kDotLanes bytes as the numbers of that position in as many groups.
template <DotIsa I>
[[gnu::always_inline]] inline DotVec<I> in_groups(const uint8_t* p, bool is_signed, int i) {
  constexpr int W = dot_vector_bytes(I);
  if constexpr (has_vnni(I)) {
    return reinterpret_cast<DotVec<I>>(widened<W, false>(p)) << 8 * i;
  } else {
    const auto v = is_signed ? widened<W, true>(p) : widened<W, false>(p);
    return (reinterpret_cast<DotVec<I>>(v) & 0xffff) << 16 * i;
  }
}

template <DotIsa I>
inline constexpr int kDotGroup = has_vnni(I) ? 4 : 2;

template <DotIsa I>
void pack_dot_rows(const ByteRows& r, int64_t count, uint32_t* out, int64_t at,
                   int64_t panel_stride) {
  constexpr int P = kDotPanel<I>, L = kDotLanes<I>, G = kDotGroup<I>;
  for (int64_t j = 0; j < count;) {
    const int64_t column = (at + j) % P, left = P - column, rest = count - j;
    const int64_t run = rest < left ? rest : left;
    uint32_t* const to = out + (at + j) / P * panel_stride + column;
    int64_t q = 0;
    if (r.step == 1)
      for (; q + L <= run; q += L) {
        DotVec<I> v{};
#pragma GCC unroll 4
        for (int i = 0; i < G; ++i) v |= in_groups<I>(r.row[i] + j + q, r.is_signed, i);
        v = (v & r.keep) ^ r.flip;
        __builtin_memcpy(to + q, &v, sizeof v);
      }
    for (; q < run; ++q) {
      uint32_t v = 0;
#pragma GCC unroll 4
      for (int i = 0; i < G; ++i) v |= in_group<I>(r.row[i][(j + q) * r.step], r.is_signed, i);
      to[q] = (v & r.keep) ^ r.flip;
    }
    j += run;
  }
}

template <DotIsa I>
void copy_dot_lines(const GroupLines& l, int64_t count, uint32_t* flat, uint32_t* out, int64_t at,
                    int64_t panel_stride) {
  constexpr int P = kDotPanel<I>, L = kDotLanes<I>;
  static_assert(L <= kGroupSlack);
  const uint32_t* from = l.from + l.column;
  for (int64_t done = 0, left = l.width - l.column; done < count; left = l.width) {
    const int64_t run = left < count - done ? left : count - done;
    for (int64_t q = 0; q < run; q += L) {
      const DotVec<I> v = load_dots<I>(from + q);
      __builtin_memcpy(flat + done + q, &v, sizeof v);
    }
    from += l.line - (l.width - left);
    done += run;
  }
  for (int64_t j = 0; j < count;) {
    const int64_t column = (at + j) % P, left = P - column, rest = count - j;
    const int64_t run = rest < left ? rest : left;
    uint32_t* const to = out + (at + j) / P * panel_stride + column;
    int64_t q = 0;
    for (; q + L <= run; q += L) {
      const DotVec<I> v = load_dots<I>(flat + j + q);
      __builtin_memcpy(to + q, &v, sizeof v);
    }
    for (; q < run; ++q) to[q] = flat[j + q];
    j += run;
  }
}

template <DotIsa I>
void pack_dot_line(const uint8_t* from, int64_t step, int64_t k, bool is_signed, uint32_t* out) {
  constexpr int G = kDotGroup<I>;
  const int64_t whole = k / G;
  if (has_vnni(I) && step == 1) {
    __builtin_memcpy(out, from, static_cast<size_t>(whole * G));
  } else {
    for (int64_t p = 0; p < whole; ++p) {
      uint32_t v = 0;
#pragma GCC unroll 4
      for (int i = 0; i < G; ++i) v |= in_group<I>(from[(p * G + i) * step], is_signed, i);
      out[p] = v;
    }
  }
  if (whole * G == k) return;
  uint32_t v = 0;
  for (int i = 0; i < k - whole * G; ++i)
    v |= in_group<I>(from[(whole * G + i) * step], is_signed, i);
  out[whole] = v;
}

template <DotIsa I, bool kSignedA>
[[gnu::always_inline]] inline uint32_t sum_of_groups(const uint32_t* a, int64_t groups) {
  using V = DotVec<I>;
  constexpr int L = kDotLanes<I>;
  const V ones = V{} + (has_vnni(I) ? 0x01010101u : 0x00010001u);
  V sum{};
  int64_t p = 0;
  for (; p + L <= groups; p += L) sum = add_dots<I, kSignedA>(sum, load_dots<I>(a + p), ones);
  if (p < groups) {
    uint32_t rest[L] = {};
    __builtin_memcpy(rest, a + p, static_cast<size_t>(groups - p) * 4);
    sum = add_dots<I, kSignedA>(sum, load_dots<I>(rest), ones);
  }
  uint32_t total = 0;
#pragma GCC unroll 16
  for (int l = 0; l < L; ++l) total += sum[l];
  return total;
}

template <DotIsa I>
uint32_t sum_dot_line(const uint32_t* a, int64_t groups, bool is_signed) {
  return is_signed ? sum_of_groups<I, true>(a, groups) : sum_of_groups<I, false>(a, groups);
}

// Where the next vector of `count` elements begins that has some from i on: the last one takes in what is done, if it must.
template <int L>
[[gnu::always_inline]] inline int64_t vector_at(int64_t i, int64_t count) {
  return i + L <= count ? i : count - L;
}

template <DotIsa I, bool kSigned>
[[gnu::always_inline]] inline void put_numbers(const uint8_t* from, int64_t count, int32_t zero,
                                               float* out) {
  constexpr int W = dot_vector_bytes(I), L = W / 4;
  if (count >= L) {
    for (int64_t i = 0; i < count; i += L) {
      const int64_t at = vector_at<L>(i, count);
      store<float, W>(out + at, __builtin_convertvector((widened<W, kSigned>(from + at) - zero),
                                                        Vec<float, W>));
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i)
    out[i] = static_cast<float>((kSigned ? static_cast<int8_t>(from[i]) : from[i]) - zero);
}

template <DotIsa I>
void dot_numbers(const uint8_t* from, int64_t count, bool is_signed, int32_t zero, float* out) {
  is_signed ? put_numbers<I, true>(from, count, zero, out)
            : put_numbers<I, false>(from, count, zero, out);
}

// Vectors of sums from i on.
template <DotIsa I, int kVectors>
[[gnu::always_inline]] inline void sum_taps_at(const float* const* x, const float* factor,
                                               int64_t taps, int64_t i, int64_t count,
                                               int32_t* sums) {
  constexpr int W = dot_vector_bytes(I), L = W / 4;
  int64_t at[kVectors];
  Vec<float, W> sum[kVectors] = {};
  for (int v = 0; v < kVectors; ++v) at[v] = vector_at<L>(i + v * L, count);
  for (int64_t t = 0; t < taps; ++t) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[v] += factor[t] * load<float, W>(x[t] + at[v]);
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const auto whole = __builtin_convertvector(sum[v], Vec<int32_t, W>);
    __builtin_memcpy(sums + at[v], &whole, sizeof whole);
  }
}

template <DotIsa I>
void dot_sum_taps(const float* const* x, const float* factor, int64_t taps, int64_t count,
                  int32_t* sums) {
  constexpr int L = dot_vector_bytes(I) / 4;
  if (count >= L) {
    int64_t i = 0;
    for (; i + 3 * L < count; i += 4 * L) sum_taps_at<I, 4>(x, factor, taps, i, count, sums);
    for (; i < count; i += L) sum_taps_at<I, 1>(x, factor, taps, i, count, sums);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int64_t t = 0; t < taps; ++t) sum += factor[t] * x[t][i];
    sums[i] = static_cast<int32_t>(sum);
  }
}

template <DotIsa I>
ByteDotFns byte_dot_fns_of() {
  return {kDotPanel<I>,      kDotGroup<I>,       &run_byte_tile<I>,
          &pack_dot_rows<I>, &copy_dot_lines<I>, &pack_dot_line<I>,
          &sum_dot_line<I>,  &dot_numbers<I>,    &dot_sum_taps<I>};
}

template ByteDotFns byte_dot_fns_of<kDots>();

}  // namespace rlx::cpu
