// A tile of a convolution with channels last on top of gemm_micro.h: rows are pixels of the result, the sum runs over
// the taps of the kernel and the channels of each. For every block of the sum and every block of rows that stays in
// registers, what the rows read is copied into the first cache, zeros for padding, and multiplied with all panels of
// the weights. Included only by the channels_last_conv_<isa>.cc files.
#pragma once

#include "rlx/backend/cpu/kernels/image/channels_last_tile.h"
#include "rlx/backend/cpu/kernels/matmul/gemm_runs.h"

namespace rlx::cpu {

// Blocks of the sum that are added plainly.
inline constexpr int64_t kLastRunBlocks = 32;

// Where the parts of a row of A lie, of args.k elements each: `count` offsets, `step` apart.
struct Segments {
  const int64_t* offsets;
  int64_t count, step;
};

// C[R x V vectors] (+)= the sum over the segments of A[R x k] B[k x V vectors].
template <int W, int R, Into into, int V>
[[gnu::noinline]] void micro_segments(const MicroArgs<float>& args, const Segments& s) {
  constexpr int L = 16;  // of a line
  Vec<float, W> sum[R][V];
  clear_block<float, W, R, V>(sum);
  const float *b = args.b, *const ahead = args.ahead ? args.ahead : args.b;
  for (int64_t i = 0; i < s.count; ++i)
    b = add_products<float, W, R, V>(sum, args.k, args.a + s.offsets[i * s.step], args.a_row, 1, b,
                                     args.b_row, ahead + i * args.k * L);
  finish_block<float, W, R, V, into>(sum, args);
}

template <int W, Into into, int V>
struct SegmentTable {
  void (*fn[kRows<W> + 1])(const MicroArgs<float>&, const Segments&) = {};  // by number of rows
  template <int R>
  constexpr void fill() {
    if constexpr (R > 0) {
      fn[R] = &micro_segments<W, R, into, V>;
      fill<R - 1>();
    }
  }
  constexpr SegmentTable() { fill<kRows<W>>(); }
};
template <int W, Into into, int V = kPanelVectors>
inline constexpr SegmentTable<W, into, V> kMicroSegments{};

template <int W>
struct LastConvImpl {
  static constexpr int L = kLanes<float, W>;
  static constexpr int P = kPanel<float, W>;

  static int64_t round_up(int64_t n) { return (n + P - 1) / P * P; }

  // Where a row's window begins in x.
  struct Row {
    int64_t at;  // of the first tap, perhaps outside
    int64_t first[3];
    bool inside;  // all taps are
  };
  // Where a tap lies in a window.
  struct Tap {
    int64_t at;
    int64_t place[3];
  };

  // A block of the sum: taps [tap, tap + taps), of each the channels [channel, channel + channels).
  struct Part {
    int64_t tap, taps, channel, channels;
    int64_t depth() const { return taps * channels; }
    int64_t at(const LastConvShape& s) const { return tap * s.in + channel; }
  };
  static Part part(const LastConvShape& s, int64_t block) {
    const int64_t per_tap = (s.in + s.channels - 1) / s.channels;
    const int64_t tap = block / per_tap * s.taps, channel = block % per_tap * s.channels;
    const int64_t taps = s.all_taps() - tap, channels = s.in - channel;
    return {tap, taps < s.taps ? taps : s.taps, channel,
            channels < s.channels ? channels : s.channels};
  }

  static void scratch(const LastConvShape& s, int64_t rows, int64_t columns, int64_t* bytes) {
    bytes[0] =
        rows * static_cast<int64_t>(sizeof(Row)) + s.taps * static_cast<int64_t>(sizeof(Tap));
    bytes[1] = (kRows<W> * s.block_depth() + L) * 4;
    bytes[2] = s.block_depth() * round_up(columns) * 4;
    bytes[3] = s.blocks() > kLastRunBlocks ? 2 * rows * round_up(columns) * 4 : 0;
  }

  static void pack(const LastConvShape& s, const float* w, float* packed, int64_t panel) {
    const int64_t column = panel * P, columns = s.out - column < P ? s.out - column : P;
    w += column * s.w_out;
    if (taps_together(s)) return pack_together(s, w, columns, packed, panel);
    for (int64_t k = 0; k < s.blocks(); ++k) {
      const Part p = part(s, k);
      pack_part(s, p, w, columns, packed + panel_at(s, p, panel));
    }
  }

  static void run(const LastConvShape& s, const LastConvTile& t) {
    find_rows(s, t);
    const int64_t blocks = s.blocks();
    float* const y = t.y + t.begin * s.y_row;
    if (blocks == 0) {
      for (int64_t i = 0; i < t.end - t.begin; ++i)
        for (int64_t j = 0; j < t.columns; ++j) y[i * s.y_row + j] = 0;
    } else if (blocks <= kLastRunBlocks) {
      add_blocks(s, t, 0, blocks, y, s.y_row);
    } else {
      add_runs(s, t, blocks, y);
    }
  }

 private:
  static int64_t tap_offset(const LastConvShape& s, int64_t tap, const int64_t* strides) {
    const int64_t* const k = s.at.kernel;
    return tap / (k[1] * k[2]) * strides[0] + tap / k[2] % k[1] * strides[1] +
           tap % k[2] * strides[2];
  }

  static Row* rows_of(const LastConvTile& t) { return static_cast<Row*>(t.scratch[0]); }
  static Tap* taps_of(const LastConvTile& t) {
    return reinterpret_cast<Tap*>(rows_of(t) + (t.end - t.begin));
  }

  static void find_rows(const LastConvShape& s, const LastConvTile& t) {
    const LastWindows& w = s.at;
    int64_t i[4];  // image, then axes
    int64_t rest = t.begin;
    for (int a = 2; a >= 0; --a) i[a + 1] = rest % w.y[a], rest /= w.y[a];
    i[0] = rest;
    Row* const rows = rows_of(t);
    for (int64_t r = 0; r < t.end - t.begin; ++r) {
      Row& row = rows[r];
      row.at = i[0] * w.x_image;
      row.inside = true;
      for (int a = 0; a < 3; ++a) {
        const int64_t first = i[a + 1] * w.stride[a] - w.low[a];
        row.first[a] = first;
        row.at += first * w.x_axis[a];
        row.inside = row.inside && first >= 0 && first + (w.kernel[a] - 1) * w.dilation[a] < w.x[a];
      }
      for (int a = 3; a > 0 && ++i[a] == w.y[a - 1]; --a) {
        i[a] = 0;
        if (a == 1) ++i[0];
      }
    }
  }

  static void find_taps(const LastConvShape& s, const LastConvTile& t, const Part& p) {
    const LastWindows& w = s.at;
    Tap* const taps = taps_of(t);
    for (int64_t i = 0; i < p.taps; ++i) {
      const int64_t tap = p.tap + i;
      const int64_t at[3] = {tap / (w.kernel[1] * w.kernel[2]), tap / w.kernel[2] % w.kernel[1],
                             tap % w.kernel[2]};
      taps[i].at = p.channel;
      for (int a = 0; a < 3; ++a) {
        taps[i].place[a] = at[a] * w.dilation[a];
        taps[i].at += taps[i].place[a] * w.x_axis[a];
      }
    }
  }

  static void add_runs(const LastConvShape& s, const LastConvTile& t, int64_t blocks, float* y) {
    const int64_t rows = t.end - t.begin, row = round_up(t.columns);
    float* const run = static_cast<float*>(t.scratch[3]);
    float* const lost = run + rows * row;
    for (int64_t i = 0; i < rows * row; ++i) lost[i] = 0;
    add_blocks(s, t, 0, kLastRunBlocks, y, s.y_row);
    for (int64_t k = kLastRunBlocks; k < blocks; k += kLastRunBlocks) {
      add_blocks(s, t, k, k + kLastRunBlocks < blocks ? k + kLastRunBlocks : blocks, run, row);
      add_run_tile<float, W>(rows, t.columns, y, s.y_row, lost, run, row);
    }
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < t.columns; ++j) y[i * s.y_row + j] += lost[i * row + j];
  }

  // c = the sum over these blocks; its rows are the tile's.
  static void add_blocks(const LastConvShape& s, const LastConvTile& t, int64_t begin, int64_t end,
                         float* c, int64_t c_row) {
    const RowBlocks<W> rows(t.end - t.begin);
    float* const a = static_cast<float*>(t.scratch[1]);
    for (int64_t k = begin; k < end; ++k) {
      const Part p = part(s, k);
      GemmArgs<float> g{.m = 0,
                        .n = t.columns,
                        .k = p.depth(),
                        .a = a,
                        .a_row = p.depth(),
                        .a_col = 1,
                        .b = nullptr,
                        .b_row = P,
                        .panel_stride = p.depth() * P,
                        .c = nullptr,
                        .c_row = c_row};
      if (t.packed) {
        g.b = panels(s, t, p);
        if (k + 1 < end) {
          const Part next = part(s, k + 1);
          g.next = panels(s, t, next), g.next_stride = next.depth() * P;
        }
      } else {
        float* const b = static_cast<float*>(t.scratch[2]);
        pack_part(s, p, t.w, t.columns, b);
        g.b = b;
      }
      find_taps(s, t, p);
      for (int64_t i = 0; i < rows.count; ++i) {
        const int64_t first = rows.begin(i);
        g.m = rows.begin(i + 1) - first;
        g.c = c + first * c_row;
        if (lies_evenly(s, t, first, g.m)) {
          k > begin ? multiply_in_place<Into::Add>(s, t, p, first, i, g)
                    : multiply_in_place<Into::Overwrite>(s, t, p, first, i, g);
          continue;
        }
        unfold(s, t, p, first, g.m, a);
        k > begin ? gemm_panels<float, W, Into::Add>(g, i)
                  : gemm_panels<float, W, Into::Overwrite>(g, i);
      }
    }
  }

  // Where the tile's panels of a part begin.
  static const float* panels(const LastConvShape& s, const LastConvTile& t, const Part& p) {
    return t.packed + p.at(s) * round_up(s.out) + t.column * p.depth();
  }

  // Whether the windows of these rows are whole and follow each other at one distance: they are read where they lie.
  static bool lies_evenly(const LastConvShape& s, const LastConvTile& t, int64_t row,
                          int64_t rows) {
    const Row* const r = rows_of(t) + row;
    const int64_t step = s.at.stride[2] * s.at.x_axis[2];
    for (int64_t i = 0; i < rows; ++i)
      if (!r[i].inside || r[i].at != r->at + i * step) return false;
    return true;
  }

  template <Into into>
  static void multiply_in_place(const LastConvShape& s, const LastConvTile& t, const Part& p,
                                int64_t row, int64_t block, const GemmArgs<float>& g) {
    const bool lines = reads_lines(s, p);
    const int64_t taps = lines ? s.at.kernel[2] : 1;
    const Segments segments{&taps_of(t)->at, p.taps / taps,
                            taps * static_cast<int64_t>(sizeof(Tap) / sizeof(int64_t))};
    MicroArgs<float> args{taps * p.channels,
                          t.x + rows_of(t)[row].at,
                          s.at.stride[2] * s.at.x_axis[2],
                          1,
                          g.b,
                          P,
                          g.c,
                          g.c_row};
    args.ahead = ahead_of<float, W>(g, block);
    const auto micro = kMicroSegments<W, into>.fn[g.m];
    int64_t j = 0;
    for (; j + P <= g.n; j += P, args.b += g.panel_stride, args.c += P) {
      micro(args, segments);
      if (args.ahead) args.ahead += g.next_stride;
    }
    if (j == g.n) return;
    through_buffer<float, W, into>(args, g.m, g.n - j, [&](const MicroArgs<float>& edge) {
      (g.n - j <= L ? kMicroSegments<W, Into::Overwrite, 1>.fn[g.m]
                    : kMicroSegments<W, Into::Overwrite>.fn[g.m])(edge, segments);
    });
  }

  // Whether whole lines of the kernel lie together in x.
  static bool reads_lines(const LastConvShape& s, const Part& p) {
    const int64_t width = s.at.kernel[2];
    return width > 1 && p.channels == s.in && s.at.dilation[2] == 1 && s.at.x_axis[2] == s.in &&
           p.tap % width == 0 && p.taps % width == 0;
  }

  static void pack_part(const LastConvShape& s, const Part& p, const float* w, int64_t columns,
                        float* to) {
    for (int64_t i = 0; i < p.taps; ++i)
      pack_panels<float, W>(p.channels, columns,
                            w + tap_offset(s, p.tap + i, s.w_axis) + p.channel * s.w_in, s.w_in,
                            s.w_out, to + i * p.channels * P, p.depth() * P);
  }

  static int64_t panel_at(const LastConvShape& s, const Part& p, int64_t panel) {
    return p.at(s) * round_up(s.out) + panel * p.depth() * P;
  }

  // Whether the taps of a channel lie together, and the channels of a result.
  static bool taps_together(const LastConvShape& s) {
    const int64_t* const k = s.at.kernel;
    return s.all_taps() > 1 && s.w_in == s.all_taps() && (k[2] == 1 || s.w_axis[2] == 1) &&
           (k[1] == 1 || s.w_axis[1] == k[2]) && (k[0] == 1 || s.w_axis[0] == k[1] * k[2]);
  }

  // All blocks of a panel in the order in which the weights lie, L of L results at a time.
  static void pack_together(const LastConvShape& s, const float* w, int64_t columns, float* packed,
                            int64_t panel) {
    for (int64_t channel = 0; channel < s.in; channel += s.channels) {
      const int64_t channels = s.in - channel < s.channels ? s.in - channel : s.channels;
      for (int v = 0; v < kPanelVectors; ++v) {
        const int64_t rest = columns - v * L, results = rest < 0 ? 0 : rest < L ? rest : L;
        Place to(s, channel, channels, panel);
        const float* from = w + v * L * s.w_out + channel * s.w_in;
        const int64_t n = channels * s.all_taps();
        for (int64_t i = 0; i < n; i += L, from += L) {
          const int64_t count = n - i < L ? n - i : L;
          Vec<float, W> turned[L];
          if (results == L && count == L) {
#pragma GCC unroll 16
            for (int r = 0; r < L; ++r) turned[r] = load<float, W>(from + r * s.w_out);
          } else {
            for (int r = 0; r < L; ++r)
              turned[r] =
                  r < results ? load_first<float, W>(from + r * s.w_out, count) : Vec<float, W>{};
          }
          transpose<float, W>(turned);
          for (int64_t r = 0; r < count; ++r, to.advance())
            store<float, W>(packed + to.at + v * L, turned[r]);
        }
      }
    }
  }

  // Where a weight's row of a panel is, tap by tap of one channel after the other.
  struct Place {
    const LastConvShape& s;
    Part p;
    int64_t panel, inner = 0, left, at;  // the channel of the part; taps of it still to come

    [[gnu::always_inline]] Place(const LastConvShape& shape, int64_t channel, int64_t channels,
                                 int64_t which)
        : s(shape), p{0, 0, channel, channels}, panel(which) {
      begin(0);
    }
    [[gnu::always_inline]] void begin(int64_t tap) {
      const int64_t all = s.all_taps() - tap;
      p.tap = tap, p.taps = left = all < s.taps ? all : s.taps;
      at = panel_at(s, p, panel) + inner * P;
    }
    [[gnu::always_inline]] void advance() {
      at += p.channels * P;
      if (--left > 0) return;
      const bool last = p.tap + p.taps == s.all_taps();
      inner += last;
      begin(last ? 0 : p.tap + p.taps);
    }
  };

  // Copies n elements; what lies up to a vector behind `to` may be overwritten.
  [[gnu::always_inline]] static void copy(float* to, const float* from, int64_t n) {
    int64_t i = 0;
    for (; i + L <= n; i += L) store<float, W>(to + i, load<float, W>(from + i));
    if (i == n) return;
#if defined(__AVX512F__)
    if constexpr (W == 64) {
      const auto mask = static_cast<__mmask16>((1u << (n - i)) - 1);
      return _mm512_storeu_ps(to + i, _mm512_maskz_loadu_ps(mask, from + i));
    }
#endif
    if (n >= L) return store<float, W>(to + n - L, load<float, W>(from + n - L));
    for (; i < n; ++i) to[i] = from[i];
  }
  [[gnu::always_inline]] static void clear(float* to, int64_t n) {
    for (int64_t i = 0; i < n; i += L) store<float, W>(to + i, Vec<float, W>{});
  }

  // The windows of rows [row, row + rows) of the tile as a dense matrix [rows, depth of the part]. Rows are written in
  // order, so a vector that runs over the end of one does no harm.
  static void unfold(const LastConvShape& s, const LastConvTile& t, const Part& p, int64_t row,
                     int64_t rows, float* to) {
    const bool lines = reads_lines(s, p);
    for (int64_t i = row; i < row + rows; ++i)
      to = lines ? unfold_lines(s, t, p, rows_of(t)[i], to)
                 : unfold_taps(s, t, p, rows_of(t)[i], to);
  }

  static float* unfold_lines(const LastConvShape& s, const LastConvTile& t, const Part& p,
                             const Row& row, float* to) {
    const int64_t width = s.at.kernel[2], n = width * s.in;
    // The taps [first, last) of a line are inside.
    const int64_t left = row.first[2] < 0 ? -row.first[2] : 0, right = s.at.x[2] - row.first[2];
    const int64_t first = left < width ? left : width, last = right < first   ? first
                                                              : right < width ? right
                                                                              : width;
    const Tap* const taps = taps_of(t);
    for (int64_t i = 0; i < p.taps; i += width, to += n) {
      const float* const from = t.x + row.at + taps[i].at;
      if (row.inside) {
        copy(to, from, n);
      } else if (first == last || !is_inside(s, row, taps[i], 2)) {
        clear(to, n);
      } else {
        clear(to, first * s.in);
        copy(to + first * s.in, from + first * s.in, (last - first) * s.in);
        clear(to + last * s.in, n - last * s.in);
      }
    }
    return to;
  }

  static float* unfold_taps(const LastConvShape& s, const LastConvTile& t, const Part& p,
                            const Row& row, float* to) {
    const Tap* const taps = taps_of(t);
    for (int64_t i = 0; i < p.taps; ++i, to += p.channels) {
      if (row.inside || is_inside(s, row, taps[i], 3))
        copy(to, t.x + row.at + taps[i].at, p.channels);
      else
        clear(to, p.channels);
    }
    return to;
  }

  // Whether the tap of this row lies inside x along the first `axes` axes.
  static bool is_inside(const LastConvShape& s, const Row& row, const Tap& tap, int axes) {
    for (int a = 0; a < axes; ++a) {
      const int64_t i = row.first[a] + tap.place[a];
      if (i < 0 || i >= s.at.x[a]) return false;
    }
    return true;
  }
};

template <int W>
LastConvFns last_conv_fns() {
  using Impl = LastConvImpl<W>;
  return {&Impl::run, &Impl::pack, Impl::P, &Impl::scratch};
}

template LastConvFns last_conv_fns<kVectorBytes>();

}  // namespace rlx::cpu
