// A tile of a matrix product on top of gemm_micro.h. Included only by the matmul_<isa>.cc files.
//
// Per block of k: B is packed into panels (unless it came packed), A is packed when it must be
// converted (or has no unit stride), and the product is added to C: in place when C is stored as it
// is computed, else in a scratch tile that is converted at the end. A float product deeper than a run
// of blocks is formed run by run, and what adding a run to C rounds away is added with the next
// (compensated.h).
#pragma once

#include "rlx/backend/cpu/kernels/matmul/gemm_few_rows.h"
#include "rlx/backend/cpu/kernels/matmul/gemm_runs.h"
#include "rlx/backend/cpu/kernels/matmul/matmul_tile.h"

namespace rlx::cpu {

// With no more rows than this, packing B would cost as much as the product, so B is read where it
// lies.
inline constexpr int64_t kFewRows = 8;
// Blocks of k in a run. Where there are few rows, a block is 16 rows of B or more, so that a run has
// at most kPlainTerms of them.
inline constexpr int64_t kRunBlocks = 16;

template <class S, class O, int W>
struct TileImpl {
  using T = Compute<S>;
  static constexpr bool kSame = __is_same(S, T);
  static constexpr int P = kPanel<T, W>;

  static bool direct_c(const MatmulTileCall& call) { return __is_same(O, T) && call.c_col == 1; }
  static bool packs_a(const MatmulTileCall& call) {
    return !kSame || (call.a_col != 1 && call.a_row != 1);
  }

  static int64_t round_up(int64_t n) { return (n + P - 1) / P * P; }

  static MatmulTileSizes sizes(const MatmulTileCall& call) {
    const int64_t bytes = sizeof(T);
    return {.scratch = {call.k_block * round_up(call.n) * bytes,
                        packs_a(call) ? call.k_block * call.m * bytes : 0,
                        direct_c(call) ? 0 : call.m * round_up(call.n) * bytes,
                        may_run(call) ? 2 * call.m * round_up(call.n) * bytes : 0},
            .packed_column_bytes = call.k * bytes,
            .panel = P};
  }

  static void pack(int64_t k, int64_t n, const void* b, int64_t b_row, int64_t b_col,
                   void* packed) {
    pack_panels<S, W>(k, n, static_cast<const S*>(b), b_row, b_col, static_cast<T*>(packed), k * P);
  }

  static void run(const MatmulTileCall& call) {
    const bool direct = direct_c(call);
    T* const c = static_cast<T*>(direct ? call.c : call.scratch[2]);
    const int64_t c_row = direct ? call.c_row : round_up(call.n);
    const bool add = direct && call.accumulate;
    if (call.k == 0 && !add) {
      for (int64_t i = 0; i < call.m; ++i) {
        for (int64_t j = 0; j < call.n; ++j) c[i * c_row + j] = T{};
      }
    }
    if (in_runs(call))
      run_in_runs(call, c, c_row, add);
    else
      run_range(call, 0, call.k, c, c_row, add);
    if (!direct) store_c(call, c, c_row);
  }

 private:
  static constexpr bool kRounds = __is_same(T, float) || __is_same(T, double);

  // How much of k a run covers: whole blocks, or in a dot product what its two vectors of sums take.
  static constexpr int64_t kDotDepth = 2 * kLanes<T, W> * kPlainTerms;
  static int64_t run_depth(const MatmulTileCall& call) {
    return few_rows(call) && call.b_col != 1 ? kDotDepth : kRunBlocks * call.k_block;
  }
  static bool in_runs(const MatmulTileCall& call) { return kRounds && call.k > run_depth(call); }
  // Whether a tile of this plan does: the last one may have few rows.
  static bool may_run(const MatmulTileCall& call) {
    return kRounds && (call.k > kDotDepth || call.k > kRunBlocks * call.k_block);
  }

  static void run_in_runs(const MatmulTileCall& call, T* c, int64_t c_row, bool add) {
    if constexpr (kRounds) {
      const int64_t row = round_up(call.n), step = run_depth(call);
      T* const run = static_cast<T*>(call.scratch[3]);
      T* const lost = run + call.m * row;
      for (int64_t i = 0; i < call.m * row; ++i) lost[i] = 0;
      run_range(call, 0, step, c, c_row, add);
      for (int64_t p = step; p < call.k; p += step) {
        run_range(call, p, call.k - p < step ? call.k - p : step, run, row, false);
        add_run_tile<T, W>(call.m, call.n, c, c_row, lost, run, row);
      }
      for (int64_t i = 0; i < call.m; ++i)
        for (int64_t j = 0; j < call.n; ++j) c[i * c_row + j] += lost[i * row + j];
    }
  }

  // C (+)= the product over [begin, begin + count) of k.
  static void run_range(const MatmulTileCall& call, int64_t begin, int64_t count, T* c,
                        int64_t c_row, bool add) {
    if (few_rows(call)) return run_few_rows(call, begin, count, c, c_row, add);
    if constexpr (kSame && kRounds) {
      if (call.packed && call.m <= 2 * kStreamRows<W> && !packs_a(call))
        return run_streams(call, begin, count, c, c_row, add);
    }
    run_blocks(call, begin, count, c, c_row, add);
  }

  // Packed panels, several at a time, each from its begin to its end, as it lies in memory.
  static void run_streams(const MatmulTileCall& call, int64_t begin, int64_t count, T* c,
                          int64_t c_row, bool add) {
    // Of more rows a half each: the second finds the panels in the first cache.
    const int64_t rows = call.m > kStreamRows<W> ? (call.m + 1) / 2 : call.m;
    const int64_t columns = kStreamed<T, W, Into::Add>.panels[rows] * P;
    int64_t done = 0;
    for (; done + columns <= call.n; done += columns)
      for (int64_t p = 0; p < count; p += call.k_block) {
        const auto& streamed =
            add || p > 0 ? kStreamed<T, W, Into::Add>.fn : kStreamed<T, W, Into::Overwrite>.fn;
        GemmArgs<T> g = packed_block(call, begin + p, depth_at(call, p, count), done, c, c_row);
        streamed[rows](g);
        if (rows == call.m) continue;
        g.a += rows * g.a_row;
        g.c += rows * g.c_row;
        streamed[call.m - rows](g);
      }
    if (done == call.n) return;
    MatmulTileCall rest = call;
    rest.n = call.n - done;
    rest.packed = static_cast<const T*>(call.packed) + done * call.k;
    run_blocks(rest, begin, count, c + done, c_row, add);
  }

  // Block by block of k.
  static void run_blocks(const MatmulTileCall& call, int64_t begin, int64_t count, T* c,
                         int64_t c_row, bool add) {
    for (int64_t p = 0; p < count; p += call.k_block)
      run_block(call, begin + p, depth_at(call, p, count), c, c_row, add || p > 0);
  }

  static int64_t depth_at(const MatmulTileCall& call, int64_t p, int64_t count) {
    return count - p < call.k_block ? count - p : call.k_block;
  }

  // The columns from `column` on, over a block of k.
  static GemmArgs<T> packed_block(const MatmulTileCall& call, int64_t p, int64_t depth,
                                  int64_t column, T* c, int64_t c_row) {
    return {.m = call.m,
            .n = call.n - column,
            .k = depth,
            .a = static_cast<const T*>(call.a) + p * call.a_col,
            .a_row = call.a_row,
            .a_col = call.a_col,
            .b = static_cast<const T*>(call.packed) + column * call.k + p * P,
            .b_row = P,
            .panel_stride = call.k * P,
            .c = c + column,
            .c_row = c_row};
  }

  static void run_block(const MatmulTileCall& call, int64_t p, int64_t depth, T* c, int64_t c_row,
                        bool add) {
    GemmArgs<T> g{.m = call.m,
                  .n = call.n,
                  .k = depth,
                  .a = nullptr,
                  .a_row = 0,
                  .a_col = 0,
                  .b = nullptr,
                  .b_row = P,
                  .panel_stride = 0,
                  .c = c,
                  .c_row = c_row};
    if (call.packed) {
      g.b = static_cast<const T*>(call.packed) + p * P;
      g.panel_stride = call.k * P;
      g.next = g.b + g.panel_stride;
      g.next_stride = g.panel_stride;
    } else if (packs_in_passing(call)) {
      return add ? run_packing<Into::Add>(call, p, depth, c, c_row)
                 : run_packing<Into::Overwrite>(call, p, depth, c, c_row);
    } else {
      T* const b = static_cast<T*>(call.scratch[0]);
      g.panel_stride = depth * P;
      pack_panels<S, W>(depth, call.n, static_cast<const S*>(call.b) + p * call.b_row, call.b_row,
                        call.b_col, b, g.panel_stride);
      g.b = b;
    }
    const S* const a = static_cast<const S*>(call.a) + p * call.a_col;
    T* const to = static_cast<T*>(call.scratch[1]);
    if (!packs_a(call)) {
      if constexpr (kSame) g.a = a;
      g.a_row = call.a_row;
      g.a_col = call.a_col;
    } else {
      pack_a(call, a, depth, to);
      g.a = to;
      g.a_row = call.a_col == 1 ? depth : 1;
      g.a_col = call.a_col == 1 ? 1 : call.m;
    }
    add ? gemm_panels<T, W, Into::Add>(g) : gemm_panels<T, W, Into::Overwrite>(g);
  }

  // Rows of B are contiguous, and need not be converted: the first block of A's rows leaves a panel for the others.
  static bool packs_in_passing(const MatmulTileCall& call) {
    return kSame && kRounds && call.b_col == 1 && call.m > kRows<W> / 2 && !packs_a(call);
  }

  template <Into into>
  static void run_packing(const MatmulTileCall& call, int64_t p, int64_t depth, T* c,
                          int64_t c_row) {
    if constexpr (kSame && kRounds) {
      const RowBlocks<W> blocks(call.m);
      const T* const a = static_cast<const T*>(call.a) + p * call.a_col;
      const T* const b = static_cast<const T*>(call.b) + p * call.b_row;
      T* const panel = static_cast<T*>(call.scratch[0]);
      int64_t j = 0;
      for (; j + P <= call.n; j += P) {
        kPacking<T, W, into>.fn[blocks.begin(1)](
            {depth, a, call.a_row, call.a_col, b + j, call.b_row, c + j, c_row}, panel);
        for (int64_t block = 1; block < blocks.count; ++block) {
          const int64_t i = blocks.begin(block);
          kMicro<T, W, into>.fn[blocks.begin(block + 1) - i]({depth, a + i * call.a_row, call.a_row,
                                                              call.a_col, panel, P,
                                                              c + i * c_row + j, c_row});
        }
      }
      if constexpr (__is_same(T, float)) {  // half a panel is read where it lies
        if (j + kLanes<T, W> <= call.n) {
          for (int64_t block = 0; block < blocks.count; ++block) {
            const int64_t i = blocks.begin(block);
            kMicro<T, W, into, 1>.fn[blocks.begin(block + 1) - i](
                {depth, a + i * call.a_row, call.a_row, call.a_col, b + j, call.b_row,
                 c + i * c_row + j, c_row});
          }
          j += kLanes<T, W>;
        }
      }
      if (j == call.n) return;
      pack_panels<S, W>(depth, call.n - j, b + j, call.b_row, 1, panel, depth * P);
      gemm_panels<T, W, into>({.m = call.m,
                               .n = call.n - j,
                               .k = depth,
                               .a = a,
                               .a_row = call.a_row,
                               .a_col = call.a_col,
                               .b = panel,
                               .b_row = P,
                               .panel_stride = depth * P,
                               .c = c + j,
                               .c_row = c_row});
    }
  }

  // Keeps the order in which A lies, so that both sides of the copy are contiguous.
  static void pack_a(const MatmulTileCall& call, const S* a, int64_t depth, T* to) {
    const bool rows = call.a_col == 1;
    const int64_t lines = rows ? call.m : depth, length = rows ? depth : call.m;
    const int64_t line_stride = rows ? call.a_row : call.a_col, stride = rows ? 1 : call.a_row;
    constexpr int L = kLanes<T, W>;
    for (int64_t i = 0; i < lines; ++i, to += length) {
      const S* const from = a + i * line_stride;
      int64_t j = 0;
      if (stride == 1) {
        for (; j + L <= length; j += L) store<T, W>(to + j, load_as<S, W>(from + j));
      }
      for (; j < length; ++j) to[j] = Element<S>::get(from[j * stride]);
    }
  }

  static bool few_rows(const MatmulTileCall& call) {
    if (!kSame || call.packed || call.m > kFewRows || call.m > kRows<W>) return false;
    return call.b_col == 1 || (call.b_row == 1 && call.a_col == 1);
  }

  static void run_few_rows(const MatmulTileCall& call, int64_t begin, int64_t count, T* c,
                           int64_t c_row, bool add) {
    if constexpr (kSame) {
      const T* const a = static_cast<const T*>(call.a) + begin * call.a_col;
      const T* const b = static_cast<const T*>(call.b) + begin * call.b_row;
      if (call.b_col != 1) {
        for (int64_t i = 0; i < call.m; ++i)
          dots(call, count, a + i * call.a_row, b, c + i * c_row, add);
        return;
      }
      // A few rows of B at a time, all columns: B is read along its rows, C stays in the first
      // cache.
      const int64_t whole = call.n / P * P;
      const int64_t step = 16 * call.m;
      for (int64_t p = 0; p < count; p += step) {
        const int64_t depth = count - p < step ? count - p : step;
        const MicroFn<T> micro = add || p > 0 ? kMicro<T, W, Into::Add>.fn[call.m]
                                              : kMicro<T, W, Into::Overwrite>.fn[call.m];
        for (int64_t j = 0; j < whole; j += P) {
          micro({depth, a + p * call.a_col, call.a_row, call.a_col, b + p * call.b_row + j,
                 call.b_row, c + j, c_row});
        }
      }
      if (whole < call.n) {
        MatmulTileCall rest = call;
        rest.n = call.n - whole;
        rest.b = static_cast<const T*>(call.b) + whole;
        run_blocks(rest, begin, count, c + whole, c_row, add);
      }
    }
  }

  // One row of C when both A's row and B's columns are contiguous.
  static void dots(const MatmulTileCall& call, int64_t k, const T* a, const T* b, T* c, bool add) {
    constexpr int L = kLanes<T, W>;
    constexpr int kColumns = 4;
    for (int64_t j = 0; j < call.n; j += kColumns) {
      const int64_t columns = call.n - j < kColumns ? call.n - j : kColumns;
      const T* column[kColumns];
      for (int q = 0; q < kColumns; ++q) column[q] = b + (j + (q < columns ? q : 0)) * call.b_col;
      Vec<T, W> sum[kColumns][2] = {};
      int64_t p = 0;
      for (; p + 2 * L <= k; p += 2 * L) {
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) {
          const Vec<T, W> x = load<T, W>(a + p + h * L);
#pragma GCC unroll 4
          for (int q = 0; q < kColumns; ++q) sum[q][h] += x * load<T, W>(column[q] + p + h * L);
        }
      }
      for (int64_t q = 0; q < columns; ++q) {
        const Vec<T, W> both = sum[q][0] + sum[q][1];
        T total{};
        for (int l = 0; l < L; ++l) total += both[l];
        for (int64_t r = p; r < k; ++r) total += a[r] * column[q][r];
        c[j + q] = add ? c[j + q] + total : total;
      }
    }
  }

  static void store_c(const MatmulTileCall& call, const T* from, int64_t from_row) {
    constexpr int L = kLanes<T, W>;
    for (int64_t i = 0; i < call.m; ++i) {
      O* const to = static_cast<O*>(call.c) + i * call.c_row;
      const T* const row = from + i * from_row;
      int64_t j = 0;
      if (call.c_col == 1) {
        for (; j + L <= call.n; j += L) {
          const Vec<T, W> sum = load<T, W>(row + j);
          store_as<O, W>(to + j, call.accumulate ? load_as<O, W>(to + j) + sum : sum);
        }
      }
      for (; j < call.n; ++j) {
        O& c = to[j * call.c_col];
        c = Element<O>::put(call.accumulate ? static_cast<T>(Element<O>::get(c) + row[j]) : row[j]);
      }
    }
  }
};

// Complex numbers as a real product of twice the depth: with rows (re, im) of B interleaved along
// k, Re C = [re, -im] B and Im C = [im, re] B.
template <int W>
struct TileImpl<c64_t, c64_t, W> {
  static constexpr int P = kPanel<float, W>;
  static int64_t round_up(int64_t n) { return (n + P - 1) / P * P; }

  static MatmulTileSizes sizes(const MatmulTileCall& call) {
    return {.scratch = {2 * call.k_block * round_up(call.n) * 4, 4 * call.k_block * call.m * 4,
                        2 * call.m * round_up(call.n) * 4,
                        in_runs(call) ? 4 * call.m * round_up(call.n) * 4 : 0},
            .packed_column_bytes = 2 * call.k * 4,
            .panel = P};
  }

  static void pack(int64_t k, int64_t n, const void* b, int64_t b_row, int64_t b_col,
                   void* packed) {
    const c64_t* const source = static_cast<const c64_t*>(b);
    float* out = static_cast<float*>(packed);
    for (int64_t j = 0; j < n; j += P, out += 2 * k * P) {
      for (int64_t p = 0; p < k; ++p) {
        for (int64_t q = 0; q < P; ++q) {
          const c64_t x = j + q < n ? source[p * b_row + (j + q) * b_col] : c64_t{0, 0};
          out[2 * p * P + q] = x.re;
          out[(2 * p + 1) * P + q] = x.im;
        }
      }
    }
  }

  static void run(const MatmulTileCall& call) {
    const int64_t c_row = round_up(call.n);
    const int64_t floats = 2 * call.m * c_row;
    float* const re = static_cast<float*>(call.scratch[2]);
    float* const im = re + call.m * c_row;
    run_range(call, 0, in_runs(call) ? run_depth(call) : call.k, re);
    if (in_runs(call)) {
      float* const part = static_cast<float*>(call.scratch[3]);
      float* const lost = part + floats;
      for (int64_t i = 0; i < floats; ++i) lost[i] = 0;
      for (int64_t p = run_depth(call); p < call.k; p += run_depth(call)) {
        const int64_t left = call.k - p;
        run_range(call, p, left < run_depth(call) ? left : run_depth(call), part);
        add_run_tile<float, W>(1, floats, re, floats, lost, part, floats);
      }
      for (int64_t i = 0; i < floats; ++i) re[i] += lost[i];
    }
    c64_t* const c = static_cast<c64_t*>(call.c);
    for (int64_t i = 0; i < call.m; ++i) {
      for (int64_t j = 0; j < call.n; ++j) {
        c64_t* const to = c + i * call.c_row + j * call.c_col;
        const c64_t old = call.accumulate ? *to : c64_t{0, 0};
        *to = {old.re + re[i * c_row + j], old.im + im[i * c_row + j]};
      }
    }
  }

 private:
  // Two terms per step of k.
  static int64_t run_depth(const MatmulTileCall& call) { return kRunBlocks / 2 * call.k_block; }
  static bool in_runs(const MatmulTileCall& call) { return call.k > run_depth(call); }

  // Real parts, then imaginary ones, of the product over [begin, begin + count) of k.
  static void run_range(const MatmulTileCall& call, int64_t begin, int64_t count, float* re) {
    const int64_t c_row = round_up(call.n);
    float* const im = re + call.m * c_row;
    for (int64_t i = 0; i < 2 * call.m * c_row; ++i) re[i] = 0;
    for (int64_t p = begin; p < begin + count; p += call.k_block) {
      const int64_t left = begin + count - p, depth = left < call.k_block ? left : call.k_block;
      GemmArgs<float> g{.m = call.m,
                        .n = call.n,
                        .k = 2 * depth,
                        .a = nullptr,
                        .a_row = 2 * depth,
                        .a_col = 1,
                        .b = nullptr,
                        .b_row = P,
                        .panel_stride = 0,
                        .c = re,
                        .c_row = c_row};
      if (call.packed) {
        g.b = static_cast<const float*>(call.packed) + 2 * p * P;
        g.panel_stride = 2 * call.k * P;
      } else {
        pack(depth, call.n, static_cast<const c64_t*>(call.b) + p * call.b_row, call.b_row,
             call.b_col, call.scratch[0]);
        g.b = static_cast<const float*>(call.scratch[0]);
        g.panel_stride = 2 * depth * P;
      }
      float* const a_re = static_cast<float*>(call.scratch[1]);
      float* const a_im = a_re + 2 * depth * call.m;
      pack_a(call, p, depth, a_re, a_im);
      g.a = a_re;
      gemm_panels<float, W, Into::Add>(g);
      g.a = a_im;
      g.c = im;
      gemm_panels<float, W, Into::Add>(g);
    }
  }

  static void pack_a(const MatmulTileCall& call, int64_t begin, int64_t depth, float* re,
                     float* im) {
    const c64_t* const a = static_cast<const c64_t*>(call.a) + begin * call.a_col;
    for (int64_t i = 0; i < call.m; ++i) {
      for (int64_t p = 0; p < depth; ++p) {
        const c64_t x = a[i * call.a_row + p * call.a_col];
        float* const r = re + (i * depth + p) * 2;
        float* const m = im + (i * depth + p) * 2;
        r[0] = x.re;
        r[1] = -x.im;
        m[0] = x.im;
        m[1] = x.re;
      }
    }
  }
};

template <class S, class O, int W>
MatmulTileFns matmul_tile_fns() {
  return {&TileImpl<S, O, W>::run, &TileImpl<S, O, W>::pack, &TileImpl<S, O, W>::sizes};
}

#define RLX_INSTANTIATE(S, O) template MatmulTileFns matmul_tile_fns<S, O, kVectorBytes>();
RLX_MATMUL_PAIRS(RLX_INSTANTIATE)
#undef RLX_INSTANTIATE

}  // namespace rlx::cpu
