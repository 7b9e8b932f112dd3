// Attention forward and backward in tiles. Included only by the attention_<isa>.cc files.
//
// Scores are kept in units of log2: q is multiplied by scale * log2(e) when it is copied, so a
// weight is exp2 of a difference. T is the type of the computation (float or double), S that of the
// operands. What only general problems need is compiled for them alone (General).
#pragma once

#include "rlx/backend/cpu/kernels/attention/attention.h"
#include "rlx/backend/cpu/kernels/attention/attention_scores.h"
#include "rlx/backend/cpu/kernels/attention/attention_tile.h"
#include "rlx/backend/cpu/kernels/compensated.h"
#include "rlx/backend/cpu/kernels/matmul/gemm_micro.h"
#include "rlx/backend/cpu/kernels/simd_math.h"

namespace rlx::cpu {

// How many of the keys [begin, begin + count) query row i may see; they are the first ones.
[[gnu::always_inline]] inline int64_t visible_keys(const AttentionProblem& p, int64_t i,
                                                   int64_t begin, int64_t count) {
  if (p.mask == AttentionMask::None) return count;
  const int64_t offset = p.kv_len > p.q_len ? p.kv_len - p.q_len : 0;
  const int64_t visible = offset + i + 1 - begin;
  return visible < 0 ? 0 : visible < count ? visible : count;
}

// How many of the keys [begin, begin + count) lie before the window of query row i.
[[gnu::always_inline]] inline int64_t keys_before_window(const AttentionProblem& p, int64_t i,
                                                         int64_t begin, int64_t count) {
  if (p.mask != AttentionMask::Window) return 0;
  const int64_t offset = p.kv_len > p.q_len ? p.kv_len - p.q_len : 0;
  const int64_t before = offset + i - p.window - begin;
  return before < 0 ? 0 : before < count ? before : count;
}

// The end of the query rows that see key j.
[[gnu::always_inline]] inline int64_t end_query(const AttentionProblem& p, int64_t j) {
  if (p.mask != AttentionMask::Window) return p.q_len;
  const int64_t offset = p.kv_len > p.q_len ? p.kv_len - p.q_len : 0;
  const int64_t last = j + p.window - offset;
  return last < 0 ? 0 : last < p.q_len ? last + 1 : p.q_len;
}

// The first query row that sees key j.
[[gnu::always_inline]] inline int64_t first_query(const AttentionProblem& p, int64_t j) {
  if (p.mask == AttentionMask::None) return 0;
  const int64_t offset = p.kv_len > p.q_len ? p.kv_len - p.q_len : 0;
  return j > offset ? j - offset : 0;
}

// Copies rows x d elements into rows of `width` compute values, times `scale`; the rest of a row is
// zero.
template <class S, int W>
void copy_rows(int64_t rows, int64_t d, const S* from, int64_t stride, Compute<S> scale,
               Compute<S>* to, int64_t width) {
  using T = Compute<S>;
  constexpr int L = kLanes<T, W>;
  for (int64_t i = 0; i < rows; ++i, from += stride, to += width) {
    int64_t j = 0;
    for (; j + L <= d; j += L) store<T, W>(to + j, load_as<S, W>(from + j) * scale);
    for (; j < d; ++j) to[j] = Element<S>::get(from[j]) * scale;
    for (; j < width; ++j) to[j] = T{};
  }
}

// The reverse: rows of `width` values, times `scale`, into the operand.
template <class S, int W>
void write_row(int64_t d, const Compute<S>* from, Compute<S> scale, S* to) {
  using T = Compute<S>;
  constexpr int L = kLanes<T, W>;
  int64_t j = 0;
  for (; j + L <= d; j += L) store_as<S, W>(to + j, load<T, W>(from + j) * scale);
  for (; j < d; ++j) to[j] = Element<S>::put(from[j] * scale);
}

// Adds n sums of a run to whole and lost and clears them; `last`: they become the whole sum. n is a
// multiple of a vector's lanes.
template <class T, int W>
void end_run(int64_t n, T* run, T* whole, T* lost, bool last) {
  for (int64_t i = 0; i < n; i += kLanes<T, W>) {
    Vec<T, W> sum = load<T, W>(whole + i), rest = load<T, W>(lost + i);
    add_run(sum, rest, load<T, W>(run + i));
    store<T, W>(whole + i, sum);
    store<T, W>(lost + i, rest);
    store<T, W>(run + i, last ? sum + rest : Vec<T, W>{});
  }
}

template <class S, int W, bool General>
struct AttentionImpl {
  using T = Compute<S>;
  static constexpr int L = kLanes<T, W>;
  static constexpr int P = kPanel<T, W>;
  static constexpr T kLog2e = 1.4426950408889634074, kLn2 = 0.69314718055994530942;
  static constexpr T kInfinity = __builtin_inf();
  static constexpr T kMasked = -1e9 * 1.4426950408889634074;  // in log2
  static constexpr T kNoVisibleKey = -5e8;                    // of a row's lse: at most this
  using Operands = HeadOperands<S>;

  // What q is multiplied by, and what turns dscore^T q into dk.
  static T q_scale(const AttentionProblem& p) {
    const T scale = static_cast<T>(p.scale) * kLog2e;
    return General && p.softcap > 0 ? scale * 2 / static_cast<T>(p.softcap) : scale;
  }
  static T dk_scale(const AttentionProblem& p) {
    return General && p.softcap > 0 ? kLn2 / 2 * static_cast<T>(p.softcap) : kLn2;
  }

  static int64_t round_up(int64_t n) { return (n + P - 1) / P * P; }

  // Hands out 64-byte-aligned arrays of T from scratch memory; with base 0 it only counts.
  struct Arena {
    uintptr_t base;
    int64_t used = 0;
    T* take(int64_t count) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): counting has no memory to point into
      T* const at = reinterpret_cast<T*>(base + static_cast<uintptr_t>(used));
      used += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
      return at;
    }
  };

  // scores[rows x round_up(keys)] = q[rows x d] kt, where kt are the panels of k^T.
  static void scores_of(int64_t rows, int64_t keys, int64_t d, const T* q, int64_t width,
                        const T* kt, T* scores, int64_t scores_row) {
    gemm_panels<T, W, Into::Overwrite>({.m = rows,
                                        .n = round_up(keys),
                                        .k = d,
                                        .a = q,
                                        .a_row = width,
                                        .a_col = 1,
                                        .b = kt,
                                        .b_row = P,
                                        .panel_stride = d * P,
                                        .c = scores,
                                        .c_row = scores_row});
  }

  // ---- forward

  struct Forward {
    T *kt, *v, *q, *sum, *scores, *top, *total;
    T *whole, *lost;      // sum and, behind it, total: of earlier runs, and what was lost
    int64_t in_runs = 0;  // elements of whole; 0: there is one run
    explicit Forward(const AttentionProblem& p, Arena& arena) {
      const int64_t width = round_up(p.head_dim),
                    keys = round_up(p.kv_len < kForwardKeys ? p.kv_len : kForwardKeys);
      kt = arena.take(p.head_dim * keys);
      v = arena.take(keys * width);
      q = arena.take(kForwardRows * width);
      sum = arena.take(kForwardRows * (width + 1));  // of weight times v
      total = sum + kForwardRows * width;            // the sum of weights so far
      scores = arena.take(kRows<W> * keys);
      top = arena.take(kForwardRows);  // at most 1 less than the largest score so far
      if (p.kv_len > kRunTiles * kForwardKeys) in_runs = kForwardRows * (width + 1);
      whole = arena.take(in_runs);
      lost = arena.take(in_runs);
    }
    // Scales what earlier runs left of row i.
    void shrink(int64_t i, int64_t width, T factor) const {
      for (int64_t c = i * width; c < (i + 1) * width; c += L) {
        store<T, W>(whole + c, load<T, W>(whole + c) * factor);
        store<T, W>(lost + c, load<T, W>(lost + c) * factor);
      }
      whole[kForwardRows * width + i] *= factor;
      lost[kForwardRows * width + i] *= factor;
    }
  };

  static int64_t forward_scratch(const AttentionProblem& p) {
    Arena arena{0};
    Forward counted(p, arena);
    return arena.used;
  }

  static void forward(const AttentionProblem& p, const AttentionForwardBuffers& buffers,
                      int64_t begin, int64_t end, void* scratch) {
    Arena arena{reinterpret_cast<uintptr_t>(scratch)};
    const Forward f(p, arena);
    const int64_t chunks = (p.q_len + kForwardRows - 1) / kForwardRows;
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block % chunks * kForwardRows;
      const int64_t rows = p.q_len - first < kForwardRows ? p.q_len - first : kForwardRows;
      forward_chunk(p, buffers, f, block / chunks / p.heads, block / chunks % p.heads, first, rows);
    }
  }

  static void forward_chunk(const AttentionProblem& p, const AttentionForwardBuffers& buffers,
                            const Forward& f, int64_t b, int64_t h, int64_t first, int64_t rows) {
    const int64_t d = p.head_dim, width = round_up(d), kv_head = h / (p.heads / p.kv_heads);
    const S* const k = static_cast<const S*>(buffers.k) + b * p.k.batch + kv_head * p.k.head;
    const S* const v = static_cast<const S*>(buffers.v) + b * p.v.batch + kv_head * p.v.head;
    const S* const q =
        static_cast<const S*>(buffers.q) + b * p.q.batch + h * p.q.head + first * p.q.seq;
    copy_rows<S, W>(rows, d, q, p.q.seq, q_scale(p), f.q, width);
    const T sink = General ? sink_of(p, buffers.sinks, b, h) : -kInfinity;
    for (int64_t i = 0; i < rows; ++i) {
      f.top[i] = General && !(sink > kMasked) ? kMasked : sink;
      f.total[i] = General ? exp2<T>(sink - f.top[i]) : T{0};
    }
    for (int64_t i = 0; i < rows * width; ++i) f.sum[i] = 0;
    for (int64_t i = rows * width; f.in_runs && i < kForwardRows * width; ++i) f.sum[i] = 0;
    for (int64_t i = rows; f.in_runs && i < kForwardRows; ++i) f.total[i] = 0;
    for (int64_t i = 0; i < f.in_runs; ++i) f.whole[i] = f.lost[i] = 0;
    Operands o;
    if constexpr (General) o = head_operands<S>(p, buffers.mask, buffers.bias, b, h);
    const int64_t all = visible_keys(p, first + rows - 1, 0, p.kv_len);
    const int64_t start = General ? keys_before_window(p, first, 0, p.kv_len) : 0;
    for (int64_t j = start; j < all; j += kForwardKeys) {
      if (f.in_runs && j > start && (j - start) / kForwardKeys % kRunTiles == 0)
        end_run<T, W>(f.in_runs, f.sum, f.whole, f.lost, false);
      const int64_t keys = all - j < kForwardKeys ? all - j : kForwardKeys;
      if (rows <= kFewQueries && d > 0 && d % L == 0) {
        forward_rows(p, f, o, first, 0, rows, j, keys, k + j * p.k.seq, v + j * p.v.seq);
        continue;
      }
      pack_panels<S, W>(d, keys, k + j * p.k.seq, 1, p.k.seq, f.kt, d * P);
      copy_rows<S, W>(keys, d, v + j * p.v.seq, p.v.seq, 1, f.v, width);
      const RowBlocks<W> blocks(rows);
      for (int64_t block = 0; block < blocks.count; ++block) {
        forward_rows(p, f, o, first, blocks.begin(block), blocks.begin(block + 1), j, keys, nullptr,
                     nullptr);
      }
    }
    if (f.in_runs) end_run<T, W>(f.in_runs, f.sum, f.whole, f.lost, true);
    if constexpr (General) average_unseeing_rows(p, f, v, rows);
    S* const out =
        static_cast<S*>(buffers.out) + b * p.out.batch + h * p.out.head + first * p.out.seq;
    for (int64_t i = 0; i < rows; ++i) {
      write_row<S, W>(d, f.sum + i * width, f.total[i] == 0 ? T{0} : 1 / f.total[i],
                      out + i * p.out.seq);
    }
    if (buffers.lse) {
      T* const lse = static_cast<T*>(buffers.lse) + (b * p.heads + h) * p.q_len + first;
      for (int64_t i = 0; i < rows; ++i) lse[i] = f.top[i] * kLn2 + log_of(f.total[i]);
    }
  }

  static T log_of(T x) {
    if constexpr (sizeof(T) == 4) {
      return __builtin_logf(x);
    } else {
      return __builtin_log(x);
    }
  }

  // The logit of a head's sink in log2; -inf: none.
  static T sink_of(const AttentionProblem& p, const void* sinks, int64_t b, int64_t h) {
    if (!p.has_sinks) return -kInfinity;
    const int64_t at = b * p.sinks_batch + h;
    return kLog2e * (p.wide_sinks ? static_cast<const T*>(sinks)[at]
                                  : Element<S>::get(static_cast<const S*>(sinks)[at]));
  }

  // Rows that saw masked keys alone weigh all keys alike.
  static void average_unseeing_rows(const AttentionProblem& p, const Forward& f, const S* v,
                                    int64_t rows) {
    const int64_t d = p.head_dim, width = round_up(d);
    for (int64_t i = 0; i < rows; ++i) {
      const bool unseeing = f.top[i] == kMasked && f.total[i] == f.total[i];  // and no NaN
      if (!unseeing || p.kv_len == 0) continue;
      // The sum of a run, of all runs, and what that lost: the queries are not needed any more.
      T *const run = f.sum + i * width, *const whole = f.q, *const lost = f.q + width;
      for (int64_t c = 0; c < width; ++c) run[c] = whole[c] = lost[c] = 0;
      for (int64_t j = 0; j < p.kv_len; ++j) {
        for (int64_t c = 0; c < d; ++c) run[c] += Element<S>::get(v[j * p.v.seq + c]);
        if (j % kPlainTerms == kPlainTerms - 1) end_run<T, W>(width, run, whole, lost, false);
      }
      end_run<T, W>(width, run, whole, lost, true);
      f.total[i] = static_cast<T>(p.kv_len);
    }
  }

  // Completes the scores of query i with the first `count` of the keys from j on.
  static void finish_row(const AttentionProblem& p, const Operands& o, int64_t i, int64_t j,
                         int64_t count, T* s) {
    const int64_t before = keys_before_window(p, i, j, count);
    for (int64_t c = 0; c < count; c += L) {
      const Vec<T, W> x = finish_scores<S, W>(o, i, j + c, count - c, load<T, W>(s + c)).s;
      store<T, W>(s + c, first_lanes<T, W>(splat<T, W>(kMasked), before - c, x));
    }
  }

  // scores[0, keys) = q k^T of one query, where the keys lie; whole vectors are written.
  static void dot_scores(int64_t keys, int64_t d, const T* q, const S* k, int64_t k_row,
                         T* scores) {
    for (int64_t j = 0; j < keys; j += L) {
      Vec<T, W> sums[L];
#pragma GCC unroll 16
      for (int64_t l = 0; l < L; ++l) {
        const S* const key = k + (j + l < keys ? j + l : keys - 1) * k_row;
        sums[l] = load<T, W>(q) * load_as<S, W>(key);
        for (int64_t c = L; c < d; c += L) sums[l] += load<T, W>(q + c) * load_as<S, W>(key + c);
      }
      transpose<T, W>(sums);
#pragma GCC unroll 4
      for (int step = L / 2; step > 0; step /= 2)
#pragma GCC unroll 8
        for (int l = 0; l < step; ++l) sums[l] += sums[l + step];
      store<T, W>(scores + j, sums[0]);
    }
  }

  // sum[0, N vectors) += weights[0, keys) v of one query, where the values lie.
  template <int N>
  static void add_weighted_columns(int64_t keys, const T* weights, const S* v, int64_t v_row,
                                   T* sum) {
    Vec<T, W> part[N] = {};
    for (int64_t j = 0; j < keys; ++j) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) part[n] += weights[j] * load_as<S, W>(v + j * v_row + n * L);
    }
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) store<T, W>(sum + n * L, load<T, W>(sum + n * L) + part[n]);
  }

  // sum[0, d) likewise; d is a multiple of a vector's lanes.
  static void add_weighted(int64_t keys, int64_t d, const T* weights, const S* v, int64_t v_row,
                           T* sum) {
    constexpr int V = 4;
    int64_t c = 0;
    for (; c + V * L <= d; c += V * L)
      add_weighted_columns<V>(keys, weights, v + c, v_row, sum + c);
    for (; c < d; c += L) add_weighted_columns<1>(keys, weights, v + c, v_row, sum + c);
  }

  // Rows [begin, end) of the chunk against keys [j, j + keys): scores, weights, weights times v. Where k and v are given
  // they are read where they lie, else f.kt and f.v.
  static void forward_rows(const AttentionProblem& p, const Forward& f, const Operands& o,
                           int64_t first, int64_t begin, int64_t end, int64_t j, int64_t keys,
                           const S* k, const S* v) {
    const int64_t width = round_up(p.head_dim);
    const int64_t seen = visible_keys(p, first + end - 1, j, keys);
    if (seen == 0) return;
    const int64_t row = round_up(keys);
    if (!k)
      scores_of(end - begin, seen, p.head_dim, f.q + begin * width, width, f.kt, f.scores, row);
    for (int64_t i = begin; k && i < end; ++i)
      dot_scores(seen, p.head_dim, f.q + i * width, k, p.k.seq, f.scores + (i - begin) * row);
    if constexpr (General) {
      for (int64_t i = begin; i < end; ++i)
        finish_row(p, o, first + i, j, visible_keys(p, first + i, j, keys),
                   f.scores + (i - begin) * row);
    }
    // One loop per step: the rows of a step do not wait for each other.
    T shrink[kRows<W>];
    for (int64_t i = begin; i < end; ++i) {
      const T before = f.top[i], top = row_max(f.scores + (i - begin) * row,
                                               visible_keys(p, first + i, j, keys), before);
      // It moves by more than 1 at a time, so that what moving it rounds does not add up.
      f.top[i] = top > before + 1 || !(before > kMasked) ? top : before;
      shrink[i - begin] = before - f.top[i];
    }
    for (int64_t i = begin; i < end; ++i) {
      T* const s = f.scores + (i - begin) * row;
      const T sum = weights(s, visible_keys(p, first + i, j, keys), seen, f.top[i]);
      f.total[i] = !General && j == 0 ? sum : f.total[i] * exp2<T>(shrink[i - begin]) + sum;
    }
    for (int64_t i = begin; i < end && (General || j > 0); ++i) {
      const T factor = exp2<T>(shrink[i - begin]);
      for (int64_t c = 0; c < width; c += L) {
        store<T, W>(f.sum + i * width + c, load<T, W>(f.sum + i * width + c) * factor);
      }
      if (f.in_runs && factor != 1) f.shrink(i, width, factor);
    }
    if (v) {
      for (int64_t i = begin; i < end; ++i)
        add_weighted(seen, p.head_dim, f.scores + (i - begin) * row, v, p.v.seq, f.sum + i * width);
      return;
    }
    gemm_panels<T, W, Into::Add>({.m = end - begin,
                                  .n = width,
                                  .k = seen,
                                  .a = f.scores,
                                  .a_row = row,
                                  .a_col = 1,
                                  .b = f.v,
                                  .b_row = width,
                                  .panel_stride = P,
                                  .c = f.sum + begin * width,
                                  .c_row = width});
  }

  static T row_max(const T* s, int64_t count, T before) {
    Vec<T, W> top = splat<T, W>(before);
    int64_t j = 0;
    for (; j + L <= count; j += L) top = larger<T, W>(load<T, W>(s + j), top);
    if (j < count) top = larger<T, W>(first_lanes<T, W>(load<T, W>(s + j), count - j, top), top);
    return reduce<Max, T, W>(top);
  }

  // s[0, count) = exp2(s - top), zero from there to `width`; returns the sum.
  static T weights(T* s, int64_t count, int64_t width, T top) {
    Vec<T, W> sum{};
    int64_t j = 0;
    for (; j + L <= count; j += L) {
      const Vec<T, W> w = exp2<T, W>(load<T, W>(s + j) - top);
      store<T, W>(s + j, w);
      sum += w;
    }
    if (j < count) {
      const Vec<T, W> w =
          first_lanes<T, W>(exp2<T, W>(load<T, W>(s + j) - top), count - j, Vec<T, W>{});
      store<T, W>(s + j, w);
      sum += w;
      j += L;
    }
    for (; j < width; j += L) store<T, W>(s + j, Vec<T, W>{});
    return reduce<Sum, T, W>(sum);
  }

  // ---- backward

  struct Backward {
    int64_t width, q_rows, k_rows, key_tile;
    T *q, *dout, *dq, *lse, *delta;  // of one query head, all rows
    T *dk, *dv;                      // of the kv head, all rows
    T *kt, *vt, *k;                  // of one key tile
    T *weight, *dscore;              // of one tile: [kBackwardRows x key_tile]
    bool dq_in_runs, dk_in_runs;     // there is more than one run of key tiles, of query tiles
    T *dq_whole, *dq_lost;           // of dq
    T *dk_whole, *dk_lost, *dv_whole, *dv_lost;  // of one key tile
    T* row;                                      // three rows
    explicit Backward(const AttentionProblem& p, Arena& arena) {
      width = round_up(p.head_dim);
      key_tile = round_up(p.kv_len < kBackwardKeys ? p.kv_len : kBackwardKeys);
      q = arena.take(p.q_len * width);
      dout = arena.take(p.q_len * width);
      dq = arena.take(p.q_len * width);
      lse = arena.take(p.q_len);
      delta = arena.take(p.q_len);
      dk = arena.take(p.kv_len * width);
      dv = arena.take(p.kv_len * width);
      kt = arena.take(p.head_dim * key_tile);
      vt = arena.take(p.head_dim * key_tile);
      k = arena.take(key_tile * width);
      weight = arena.take(kBackwardRows * key_tile);
      dscore = arena.take(kBackwardRows * key_tile);
      dq_in_runs = p.kv_len > kRunTiles * kBackwardKeys;
      dk_in_runs = p.q_len > kRunTiles * kBackwardRows;
      dq_whole = arena.take(dq_in_runs ? p.q_len * width : 0);
      dq_lost = arena.take(dq_in_runs ? p.q_len * width : 0);
      const int64_t tile = dk_in_runs ? key_tile * width : 0;
      dk_whole = arena.take(tile), dk_lost = arena.take(tile);
      dv_whole = arena.take(tile), dv_lost = arena.take(tile);
      row = arena.take(General ? 3 * width : 0);
    }
    // Before, during and after the sums of keys [j, j + keys) over the queries. dk and dv hold what
    // earlier heads left there.
    void begin_keys(int64_t j, int64_t keys) const {
      for (int64_t i = 0, at = j * width; i < keys * width; ++i, ++at) {
        dk_whole[i] = dk[at], dv_whole[i] = dv[at];
        dk[at] = dv[at] = dk_lost[i] = dv_lost[i] = 0;
      }
    }
    void end_keys(int64_t j, int64_t keys, bool last) const {
      end_run<T, W>(keys * width, dk + j * width, dk_whole, dk_lost, last);
      end_run<T, W>(keys * width, dv + j * width, dv_whole, dv_lost, last);
    }
  };

  static int64_t backward_scratch(const AttentionProblem& p) {
    Arena arena{0};
    Backward counted(p, arena);
    return arena.used;
  }

  static void backward(const AttentionProblem& p, const AttentionBackwardBuffers& buffers,
                       int64_t begin, int64_t end, void* scratch) {
    Arena arena{reinterpret_cast<uintptr_t>(scratch)};
    const Backward g(p, arena);
    for (int64_t block = begin; block < end; ++block) {
      backward_group(p, buffers, g, block / p.kv_heads, block % p.kv_heads);
    }
  }

  static void backward_group(const AttentionProblem& p, const AttentionBackwardBuffers& buffers,
                             const Backward& g, int64_t b, int64_t kv_head) {
    const int64_t d = p.head_dim, group = p.heads / p.kv_heads;
    for (int64_t i = 0; i < p.kv_len * g.width; ++i) g.dk[i] = g.dv[i] = 0;
    const S* const k = static_cast<const S*>(buffers.k) + b * p.k.batch + kv_head * p.k.head;
    const S* const v = static_cast<const S*>(buffers.v) + b * p.v.batch + kv_head * p.v.head;
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      load_head(p, buffers, g, b, h);
      Operands o;
      T* dbias = nullptr;  // of this head
      if constexpr (General) {
        o = head_operands<S>(p, buffers.mask, buffers.bias, b, h);
        const int64_t size = p.q_len * p.kv_len;
        if (buffers.dbias) dbias = static_cast<T*>(buffers.dbias) + (b * p.heads + h) * size;
        for (int64_t i = 0; dbias && i < size; ++i) dbias[i] = 0;
        spread_unseeing_rows(p, g);
      }
      for (int64_t j = 0; j < p.kv_len; j += kBackwardKeys) {
        if (buffers.stop()) return;
        const int64_t keys = p.kv_len - j < kBackwardKeys ? p.kv_len - j : kBackwardKeys;
        pack_panels<S, W>(d, keys, k + j * p.k.seq, 1, p.k.seq, g.kt, d * P);
        pack_panels<S, W>(d, keys, v + j * p.v.seq, 1, p.v.seq, g.vt, d * P);
        copy_rows<S, W>(keys, d, k + j * p.k.seq, p.k.seq, 1, g.k, g.width);
        if (g.dq_in_runs && j > 0 && j / kBackwardKeys % kRunTiles == 0)
          end_run<T, W>(p.q_len * g.width, g.dq, g.dq_whole, g.dq_lost, false);
        if (g.dk_in_runs) g.begin_keys(j, keys);
        const int64_t end = General ? end_query(p, j + keys - 1) : p.q_len;
        for (int64_t i = first_query(p, j) / kBackwardRows * kBackwardRows; i < end;
             i += kBackwardRows) {
          const int64_t rows = p.q_len - i < kBackwardRows ? p.q_len - i : kBackwardRows;
          backward_tile(p, g, o, dbias, i, rows, j, keys);
          if (g.dk_in_runs && i / kBackwardRows % kRunTiles == kRunTiles - 1)
            g.end_keys(j, keys, false);
        }
        if (g.dk_in_runs) g.end_keys(j, keys, true);
      }
      if (g.dq_in_runs) end_run<T, W>(p.q_len * g.width, g.dq, g.dq_whole, g.dq_lost, true);
      S* const dq = static_cast<S*>(buffers.dq) + b * p.dq.batch + h * p.dq.head;
      for (int64_t i = 0; i < p.q_len; ++i) {
        write_row<S, W>(d, g.dq + i * g.width, static_cast<T>(p.scale), dq + i * p.dq.seq);
      }
    }
    S* const dk = static_cast<S*>(buffers.dk) + b * p.dk.batch + kv_head * p.dk.head;
    S* const dv = static_cast<S*>(buffers.dv) + b * p.dv.batch + kv_head * p.dv.head;
    for (int64_t j = 0; j < p.kv_len; ++j) {
      write_row<S, W>(d, g.dk + j * g.width, dk_scale(p), dk + j * p.dk.seq);
      write_row<S, W>(d, g.dv + j * g.width, 1, dv + j * p.dv.seq);
    }
  }

  // Copies q and dout of a head, clears dq, and sets lse (in log2) and delta_i = dout_i . out_i.
  static void load_head(const AttentionProblem& p, const AttentionBackwardBuffers& buffers,
                        const Backward& g, int64_t b, int64_t h) {
    const int64_t d = p.head_dim;
    const S* const q = static_cast<const S*>(buffers.q) + b * p.q.batch + h * p.q.head;
    const S* const out = static_cast<const S*>(buffers.out) + b * p.out.batch + h * p.out.head;
    const S* const dout = static_cast<const S*>(buffers.dout) + b * p.dout.batch + h * p.dout.head;
    const T* const lse = static_cast<const T*>(buffers.lse) + (b * p.heads + h) * p.q_len;
    copy_rows<S, W>(p.q_len, d, q, p.q.seq, q_scale(p), g.q, g.width);
    copy_rows<S, W>(p.q_len, d, dout, p.dout.seq, 1, g.dout, g.width);
    for (int64_t i = 0; i < p.q_len * g.width; ++i) g.dq[i] = 0;
    for (int64_t i = 0; g.dq_in_runs && i < p.q_len * g.width; ++i)
      g.dq_whole[i] = g.dq_lost[i] = 0;
    for (int64_t i = 0; i < p.q_len; ++i) {
      g.lse[i] = lse[i] * kLog2e;
      const T* const x = g.dout + i * g.width;
      const S* const y = out + i * p.out.seq;
      Vec<T, W> sum{};
      int64_t c = 0;
      for (; c + L <= d; c += L) sum += load<T, W>(x + c) * load_as<S, W>(y + c);
      T total = reduce<Sum, T, W>(sum);
      for (; c < d; ++c) total += x[c] * Element<S>::get(y[c]);
      g.delta[i] = total;
    }
  }

  // Rows without visible keys weigh all values alike.
  static void spread_unseeing_rows(const AttentionProblem& p, const Backward& g) {
    T *const sum = g.row, *const whole = g.row + g.width, *const lost = g.row + 2 * g.width;
    for (int64_t c = 0; c < 3 * g.width; ++c) g.row[c] = 0;
    int64_t found = 0;
    for (int64_t i = 0; i < p.q_len; ++i) {
      if (!(g.lse[i] <= kNoVisibleKey * kLog2e)) continue;
      for (int64_t c = 0; c < g.width; ++c) sum[c] += g.dout[i * g.width + c];
      if (++found % kPlainTerms == 0) end_run<T, W>(g.width, sum, whole, lost, false);
    }
    if (found == 0) return;
    end_run<T, W>(g.width, sum, whole, lost, true);
    const T weight = T{1} / static_cast<T>(p.kv_len);
    for (int64_t j = 0; j < p.kv_len; ++j)
      for (int64_t c = 0; c < g.width; ++c) g.dv[j * g.width + c] += weight * sum[c];
  }

  // Query rows [i, i + rows) against keys [j, j + keys).
  static void backward_tile(const AttentionProblem& p, const Backward& g, const Operands& o,
                            T* dbias, int64_t i, int64_t rows, int64_t j, int64_t keys) {
    const RowBlocks<W> blocks(rows);
    for (int64_t block = 0; block < blocks.count; ++block) {
      backward_rows(p, g, o, dbias, i, blocks.begin(block), blocks.begin(block + 1), j, keys);
    }
    const RowBlocks<W> key_blocks(keys);
    for (int64_t block = 0; block < key_blocks.count; ++block) {
      const int64_t key = key_blocks.begin(block), count = key_blocks.begin(block + 1) - key;
      const int64_t seen = first_query(p, j + key) - i;  // earlier rows have weight zero here
      const int64_t skip = seen < 0 ? 0 : seen;
      if (skip >= rows) continue;
      GemmArgs<T> args{.m = count,
                       .n = g.width,
                       .k = rows - skip,
                       .a = g.weight + skip * g.key_tile + key,
                       .a_row = 1,
                       .a_col = g.key_tile,
                       .b = g.dout + (i + skip) * g.width,
                       .b_row = g.width,
                       .panel_stride = P,
                       .c = g.dv + (j + key) * g.width,
                       .c_row = g.width};
      gemm_panels<T, W, Into::Add>(args);
      args.a = g.dscore + skip * g.key_tile + key;
      args.b = g.q + (i + skip) * g.width;
      args.c = g.dk + (j + key) * g.width;
      gemm_panels<T, W, Into::Add>(args);
    }
  }

  // Rows [begin, end) of the tile that starts at query i: weights, gradients of the scores, and dq.
  static void backward_rows(const AttentionProblem& p, const Backward& g, const Operands& o,
                            T* dbias, int64_t i, int64_t begin, int64_t end, int64_t j,
                            int64_t keys) {
    T* const weight = g.weight + begin * g.key_tile;
    T* const dscore = g.dscore + begin * g.key_tile;
    const int64_t seen = visible_keys(p, i + end - 1, j, keys);
    if (seen > 0) {
      scores_of(end - begin, seen, p.head_dim, g.q + (i + begin) * g.width, g.width, g.kt, weight,
                g.key_tile);
      scores_of(end - begin, seen, p.head_dim, g.dout + (i + begin) * g.width, g.width, g.vt,
                dscore, g.key_tile);
    }
    for (int64_t r = 0; r < end - begin; ++r) {
      const int64_t row = i + begin + r;
      T *const w = weight + r * g.key_tile, *const ds = dscore + r * g.key_tile;
      const int64_t count = visible_keys(p, row, j, keys);
      if constexpr (General)
        general_gradient_row(w, ds, {p, o, row, j}, count, round_up(keys), g.lse[row], g.delta[row],
                             dbias ? dbias + row * p.kv_len + j : nullptr);
      else
        gradient_row(w, ds, count, round_up(keys), g.lse[row], g.delta[row]);
    }
    if (seen == 0) return;
    gemm_panels<T, W, Into::Add>({.m = end - begin,
                                  .n = g.width,
                                  .k = seen,
                                  .a = dscore,
                                  .a_row = g.key_tile,
                                  .a_col = 1,
                                  .b = g.k,
                                  .b_row = g.width,
                                  .panel_stride = P,
                                  .c = g.dq + (i + begin) * g.width,
                                  .c_row = g.width});
  }

  // w = exp2(w - lse), ds = w * (ds - delta) for the first `count`, zero up to `width`.
  static void gradient_row(T* w, T* ds, int64_t count, int64_t width, T lse, T delta) {
    int64_t j = 0;
    for (; j + L <= count; j += L) {
      const Vec<T, W> x = exp2<T, W>(load<T, W>(w + j) - lse);
      store<T, W>(w + j, x);
      store<T, W>(ds + j, x * (load<T, W>(ds + j) - delta));
    }
    if (j < count) {
      const Vec<T, W> x =
          first_lanes<T, W>(exp2<T, W>(load<T, W>(w + j) - lse), count - j, Vec<T, W>{});
      const Vec<T, W> y =
          first_lanes<T, W>(x * (load<T, W>(ds + j) - delta), count - j, Vec<T, W>{});
      store<T, W>(w + j, x);
      store<T, W>(ds + j, y);
      j += L;
    }
    for (; j < width; j += L) {
      store<T, W>(w + j, Vec<T, W>{});
      store<T, W>(ds + j, Vec<T, W>{});
    }
  }

  struct Row {
    const AttentionProblem& p;
    const Operands& o;
    int64_t query, first_key;
  };
  // The same with the scores completed, into dbias and through the soft cap's slope. Masked keys
  // have neither weight nor gradient here.
  static void general_gradient_row(T* w, T* ds, const Row& row, int64_t count, int64_t width, T lse,
                                   T delta, T* dbias) {
    const int64_t before = keys_before_window(row.p, row.query, row.first_key, count);
    const Vec<T, W> zero{};
    int64_t j = 0;
    for (; j < count; j += L) {
      const Score<T, W> score =
          finish_scores<S, W>(row.o, row.query, row.first_key + j, count - j, load<T, W>(w + j));
      const auto visible = [&](Vec<T, W> v) __attribute__((always_inline)) {
        v = first_lanes<T, W>(score.hidden ? zero : v, count - j, zero);
        return first_lanes<T, W>(zero, before - j, v);
      };
      const Vec<T, W> x = visible(exp2<T, W>(score.s - lse));
      const Vec<T, W> y = visible(x * (load<T, W>(ds + j) - delta));
      store<T, W>(w + j, x);
      store<T, W>(ds + j, y * score.slope);
      for (int64_t lane = 0; dbias && lane < (count - j < L ? count - j : L); ++lane)
        dbias[j + lane] = y[lane];
    }
    for (; j < width; j += L) {
      store<T, W>(w + j, zero);
      store<T, W>(ds + j, zero);
    }
  }
};

template <class S, int W>
AttentionFns attention_fns(bool general) {
  using Plain = AttentionImpl<S, W, false>;
  using Any = AttentionImpl<S, W, true>;
  if (general)
    return {&Any::forward, &Any::backward, &Any::forward_scratch, &Any::backward_scratch};
  return {&Plain::forward, &Plain::backward, &Plain::forward_scratch, &Plain::backward_scratch};
}

template AttentionFns attention_fns<float, kVectorBytes>(bool);
template AttentionFns attention_fns<double, kVectorBytes>(bool);
template AttentionFns attention_fns<f16_t, kVectorBytes>(bool);
template AttentionFns attention_fns<bf16_t, kVectorBytes>(bool);

}  // namespace rlx::cpu
