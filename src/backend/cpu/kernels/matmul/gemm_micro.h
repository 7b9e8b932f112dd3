// The register-blocked matrix product that matmul and attention are built from.
//
// B comes in panels of kPanel columns (k rows of kPanel elements each, b_row apart); A is read one
// element at a time with any two strides; a block of C of up to kRows x kPanel stays in registers
// over the whole sum.
//
// Included only by files compiled for one instruction set (simd.h says why).
#pragma once

#include "rlx/backend/cpu/kernels/simd.h"

namespace rlx::cpu {

// Rows of a register block: as many as leave room for a row of B and one element of A.
template <int W>
inline constexpr int kRows = W == 64   ? 14
                             : W == 32 ? 6
                                       : 4;
// Vectors in a row of a register block.
inline constexpr int kPanelVectors = 2;
template <class T, int W>
inline constexpr int kPanel = kPanelVectors * kLanes<T, W>;

// What to do with the C that is already there.
enum class Into : uint8_t { Overwrite, Add };

template <class T>
struct MicroArgs {
  int64_t k;
  const T* a;
  int64_t a_row, a_col;
  const T* b;
  int64_t b_row;
  T* c;
  int64_t c_row;
  const T* ahead =
      nullptr;  // fetched into the second cache meanwhile, a line for each step of k; nullptr: nothing
};

// sum += A[R x k] B[k x kPanel]; returns where B goes on.
template <class T, int W, int R, int V>
[[gnu::always_inline]] inline const T* add_products(Vec<T, W> (&sum)[R][V], int64_t k, const T* a,
                                                    int64_t a_row, int64_t a_col, const T* b,
                                                    int64_t b_row, const T* ahead) {
  constexpr int L = kLanes<T, W>;
  for (int64_t p = 0; p < k; ++p) {
    Vec<T, W> row[V];
#pragma GCC unroll 2
    for (int j = 0; j < V; ++j) row[j] = load<T, W>(b + j * L);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      const T x = a[i * a_row];
#pragma GCC unroll 2
      for (int j = 0; j < V; ++j) sum[i][j] += x * row[j];
    }
    __builtin_prefetch(ahead + p * (64 / static_cast<int64_t>(sizeof(T))), 0, 2);
    a += a_col;
    b += b_row;
  }
  return b;
}

template <class T, int W, int R, int V, Into into>
[[gnu::always_inline]] inline void finish_block(const Vec<T, W> (&sum)[R][V],
                                                const MicroArgs<T>& args) {
  constexpr int L = kLanes<T, W>;
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < V; ++j) {
      T* c = args.c + i * args.c_row + j * L;
      store<T, W>(c, into == Into::Add ? load<T, W>(c) + sum[i][j] : sum[i][j]);
    }
  }
}

template <class T, int W, int R, int V>
[[gnu::always_inline]] inline void clear_block(Vec<T, W> (&sum)[R][V]) {
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < V; ++j) sum[i][j] = Vec<T, W>{};
  }
}

// C[R x V vectors] (+)= A[R x k] B[k x V vectors]
template <class T, int W, int R, Into into, int V = kPanelVectors>
[[gnu::noinline]] void micro(const MicroArgs<T>& args) {
  Vec<T, W> sum[R][V];
  clear_block<T, W, R, V>(sum);
  add_products<T, W, R, V>(sum, args.k, args.a, args.a_row, args.a_col, args.b, args.b_row,
                           args.ahead ? args.ahead : args.b);
  finish_block<T, W, R, V, into>(sum, args);
}

// The same over whole panels, with B where it lies; leaves B's rows in `packed`, and fetches what stands beside them.
template <class T, int W, int R, Into into>
[[gnu::noinline]] void micro_packing(const MicroArgs<T>& args, T* packed) {
  constexpr int L = kLanes<T, W>, V = kPanelVectors;
  Vec<T, W> sum[R][V];
  clear_block<T, W, R, V>(sum);
  const T *a = args.a, *b = args.b;
  for (int64_t p = 0; p < args.k; ++p, a += args.a_col, b += args.b_row, packed += V * L) {
    Vec<T, W> row[V];
#pragma GCC unroll 2
    for (int j = 0; j < V; ++j) {
      row[j] = load<T, W>(b + j * L);
      store<T, W>(packed + j * L, row[j]);
      __builtin_prefetch(b + (V + j) * L);
    }
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      const T x = a[i * args.a_row];
#pragma GCC unroll 2
      for (int j = 0; j < V; ++j) sum[i][j] += x * row[j];
    }
  }
  finish_block<T, W, R, V, into>(sum, args);
}

template <class T>
using MicroFn = void (*)(const MicroArgs<T>&);

template <class T, int W, Into into, int V>
struct MicroTable {
  MicroFn<T> fn[kRows<W> + 1] = {};  // by number of rows
  template <int R>
  constexpr void fill() {
    if constexpr (R > 0) {
      fn[R] = &micro<T, W, R, into, V>;
      fill<R - 1>();
    }
  }
  constexpr MicroTable() { fill<kRows<W>>(); }
};
template <class T, int W, Into into, int V = kPanelVectors>
inline constexpr MicroTable<T, W, into, V> kMicro{};

// The first block of rows has more than half of the most, unless it is alone.
template <class T, int W, Into into>
struct PackingTable {
  void (*fn[kRows<W> + 1])(const MicroArgs<T>&, T* packed) = {};  // by number of rows
  template <int R>
  constexpr void fill() {
    if constexpr (R > kRows<W> / 2) {
      fn[R] = &micro_packing<T, W, R, into>;
      fill<R - 1>();
    }
  }
  constexpr PackingTable() { fill<kRows<W>>(); }
};
template <class T, int W, Into into>
inline constexpr PackingTable<T, W, into> kPacking{};

// Cuts m rows into blocks of at most kRows whose sizes differ by one at most.
template <int W>
struct RowBlocks {
  int64_t count, size, larger;  // the first `larger` blocks have size + 1 rows
  [[gnu::always_inline]] explicit RowBlocks(int64_t m)
      : count((m + kRows<W> - 1) / kRows<W>),
        size(count ? m / count : 0),
        larger(count ? m % count : 0) {}
  [[gnu::always_inline]] int64_t begin(int64_t i) const {
    return i * size + (i < larger ? i : larger);
  }
};

// C[m x n] (+)= A[m x k] B. B is packed: panel j starts at b + j * panel_stride and is [k x
// kPanel], padded with anything in the columns past n. Only columns below n of C are written.
template <class T>
struct GemmArgs {
  int64_t m, n, k;
  const T* a;
  int64_t a_row, a_col;
  const T* b;
  int64_t b_row, panel_stride;
  T* c;
  int64_t c_row;
  // What is fetched beside panel 0, and how far apart that of the other panels is: by the first blocks of rows, a line each for a row of B.
  const T* next = nullptr;
  int64_t next_stride = 0;
};

// c (+)= the first columns of a row.
template <class T, int W, Into into>
[[gnu::always_inline]] inline void put_row(T* c, const T* row, int64_t columns) {
  constexpr int L = kLanes<T, W>;
  int64_t q = 0;
  for (; q + L <= columns; q += L)
    store<T, W>(c + q,
                into == Into::Add ? load<T, W>(c + q) + load<T, W>(row + q) : load<T, W>(row + q));
#if defined(__AVX512F__)
  if constexpr (W == 64 && __is_same(T, float)) {
    const auto mask = static_cast<__mmask16>((1u << (columns - q)) - 1);
    const __m512 x = _mm512_loadu_ps(row + q);
    return _mm512_mask_storeu_ps(
        c + q, mask, into == Into::Add ? _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c + q), x) : x);
  }
#endif
  for (; q < columns; ++q) c[q] = into == Into::Add ? c[q] + row[q] : row[q];
}

// The last columns, fewer than a panel, by `run`, which fills a panel of rows: through a buffer.
template <class T, int W, Into into, class Run>
[[gnu::always_inline]] inline void through_buffer(MicroArgs<T> args, int64_t rows, int64_t columns,
                                                  Run run) {
  constexpr int P = kPanel<T, W>;
  alignas(64) T edge[kRows<W> * P + kLanes<T, W>];  // rows are read in whole vectors
  T* const c = args.c;
  const int64_t c_row = args.c_row;
  args.c = edge;
  args.c_row = P;
  run(args);
  for (int64_t r = 0; r < rows; ++r) put_row<T, W, into>(c + r * c_row, edge + r * P, columns);
}

template <class T, int W, Into into>
[[gnu::noinline]] void micro_edge(const MicroArgs<T>& args, int64_t rows, int64_t columns) {
  through_buffer<T, W, into>(args, rows, columns, [&](const MicroArgs<T>& edge) {
    if constexpr (__is_same(T, float))  // where half of the panel is enough
      if (columns <= kLanes<T, W>) return kMicro<T, W, Into::Overwrite, 1>.fn[rows](edge);
    kMicro<T, W, Into::Overwrite>.fn[rows](edge);
  });
}

// What a block of rows fetches of the panel that comes next: a part of its lines, nullptr when others have fetched all.
template <class T, int W>
[[gnu::always_inline]] inline const T* ahead_of(const GemmArgs<T>& g, int64_t block) {
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  const int64_t at = block * g.k * kLine;
  return g.next && at < g.k * kPanel<T, W> ? g.next + at : nullptr;
}

// The loop over panels is the outer one: a panel of B stays in the first cache while A's rows stream
// past.
template <class T, int W, Into into>
void gemm_panels(const GemmArgs<T>& g, int64_t first_block = 0) {
  constexpr int P = kPanel<T, W>;
  const RowBlocks<W> blocks(g.m);
  for (int64_t j = 0, panel = 0; j < g.n; j += P, ++panel) {
    for (int64_t block = 0; block < blocks.count; ++block) {
      const int64_t i = blocks.begin(block), rows = blocks.begin(block + 1) - i;
      MicroArgs<T> args{
          g.k,     g.a + i * g.a_row,     g.a_row, g.a_col, g.b + panel * g.panel_stride,
          g.b_row, g.c + i * g.c_row + j, g.c_row};
      if (const T* const ahead = ahead_of<T, W>(g, first_block + block))
        args.ahead = ahead + panel * g.next_stride;
      if (j + P <= g.n)
        kMicro<T, W, into>.fn[rows](args);
      else
        micro_edge<T, W, into>(args, rows, g.n - j);
    }
  }
}

// Packs rows [begin, end) of B into one whole panel; B's rows are contiguous. Fetches the lines
// that the next call for this panel will want: they are too far apart for the machine to guess.
template <class S, int W>
[[gnu::always_inline]] inline void pack_rows(int64_t begin, int64_t end, int64_t ahead,
                                             const S* source, int64_t b_row, Compute<S>* out) {
  using T = Compute<S>;
  constexpr int L = kLanes<T, W>;
  for (int64_t p = begin; p < end; ++p) {
#pragma GCC unroll 2
    for (int v = 0; v < kPanelVectors; ++v) {
      const S* const from = source + p * b_row + v * L;
      __builtin_prefetch(from + ahead * b_row);
      store<T, W>(out + p * kPanel<T, W> + v * L, load_as<S, W>(from));
    }
  }
}

// The same when B's columns are contiguous; rows in multiples of kLanes, returns the first row not
// done.
template <class S, int W>
[[gnu::always_inline]] inline int64_t pack_columns(int64_t k, const S* source, int64_t b_col,
                                                   Compute<S>* out) {
  using T = Compute<S>;
  constexpr int L = kLanes<T, W>;
  int64_t p = 0;
  for (; p + L <= k; p += L) {
    for (int v = 0; v < kPanelVectors; ++v) {
      Vec<T, W> rows[L];
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) rows[i] = load_as<S, W>(source + p + (v * L + i) * b_col);
      transpose<T, W>(rows);
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) store<T, W>(out + (p + i) * kPanel<T, W> + v * L, rows[i]);
    }
  }
  return p;
}

// The same for fewer columns than a panel has, where a row can be read in part: all rows or none.
template <class T, int W>
[[gnu::always_inline]] inline int64_t pack_part([[maybe_unused]] int64_t k,
                                                [[maybe_unused]] int64_t columns,
                                                [[maybe_unused]] const T* source,
                                                [[maybe_unused]] int64_t b_row,
                                                [[maybe_unused]] T* out) {
#if defined(__AVX512F__)
  if constexpr (W == 64 && __is_same(T, float)) {
    const uint32_t all = (uint32_t{1} << columns) - 1;
    const auto low = static_cast<__mmask16>(all), high = static_cast<__mmask16>(all >> 16);
    for (int64_t p = 0; p < k; ++p, source += b_row, out += kPanel<T, W>) {
      _mm512_storeu_ps(out, _mm512_maskz_loadu_ps(low, source));
      _mm512_storeu_ps(out + 16, _mm512_maskz_loadu_ps(high, source + 16));
    }
    return k;
  }
#endif
  return 0;
}

// Packs B[k x n] (elements of storage S, strides b_row and b_col) into panels; columns past n are
// zero.
template <class S, int W>
void pack_panels(int64_t k, int64_t n, const S* b, int64_t b_row, int64_t b_col, Compute<S>* out,
                 int64_t panel_stride) {
  using T = Compute<S>;
  constexpr int P = kPanel<T, W>;
  constexpr int64_t kStrip = 8;  // rows read across all panels before the next rows
  const int64_t whole = n / P * P;
  if (b_col == 1) {
    for (int64_t p = 0; p < k; p += kStrip) {
      const int64_t end = p + kStrip < k ? p + kStrip : k;
      const int64_t ahead = end + kStrip <= k ? kStrip : 0;
      for (int64_t j = 0; j < whole; j += P) {
        pack_rows<S, W>(p, end, ahead, b + j, b_row, out + j / P * panel_stride);
      }
    }
  }
  for (int64_t j = b_col == 1 ? whole : 0; j < n; j += P) {
    const int64_t columns = n - j < P ? n - j : P;
    const S* const source = b + j * b_col;
    T* const to = out + j / P * panel_stride;
    int64_t p = columns == P && b_row == 1 ? pack_columns<S, W>(k, source, b_col, to) : 0;
    if constexpr (__is_same(S, T))
      if (b_col == 1) p = pack_part<T, W>(k, columns, source, b_row, to);
    for (; p < k; ++p) {
      for (int64_t q = 0; q < P; ++q) {
        to[p * P + q] = q < columns ? Element<S>::get(source[p * b_row + q * b_col]) : T{};
      }
    }
  }
}

}  // namespace rlx::cpu
