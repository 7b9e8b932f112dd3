// Depthwise convolutions and pools with channels last: a vector is some channels of one pixel. Included only by the
// channels_last_window_<isa>.cc files.
#pragma once

#include "rlx/backend/cpu/kernels/image/channels_last_tile.h"
#include "rlx/backend/cpu/kernels/simd.h"

namespace rlx::cpu {

// Pixels that are summed together, so that a weight is read once for all.
inline constexpr int kLastPixels = 4;

template <int W>
struct LastWindowImpl {
  // Calls f.template operator()<bytes>(channel) for vectors that cover all channels, narrower ones at the end; f of one
  // element has vectors of 4 bytes.
  template <class F>
  [[gnu::always_inline]] static void for_channels(int64_t channels, F f) {
    int64_t c = 0;
    for (; c + 2 * kLanes<float, W> <= channels; c += 2 * kLanes<float, W>)
      f.template operator()<W, 2>(c);
    if (c + kLanes<float, W> <= channels) {
      f.template operator()<W, 1>(c);
      c += kLanes<float, W>;
    }
    if constexpr (W > 32)
      if (c + 8 <= channels) {
        f.template operator()<32, 1>(c);
        c += 8;
      }
    if constexpr (W > 16)
      if (c + 4 <= channels) {
        f.template operator()<16, 1>(c);
        c += 4;
      }
    for (; c < channels; ++c) f.template operator()<4, 1>(c);
  }

  // The place of a row: image and position along the axes.
  struct Place {
    int64_t image, i[3];
    [[gnu::always_inline]] Place(const LastWindows& w, int64_t row) {
      for (int a = 2; a >= 0; --a) i[a] = row % w.y[a], row /= w.y[a];
      image = row;
    }
    [[gnu::always_inline]] void advance(const LastWindows& w, int64_t pixels) {  // within a line
      i[2] += pixels;
      for (int a = 2; a >= 0 && i[a] == w.y[a]; --a) {
        i[a] = 0;
        ++(a ? i[a - 1] : image);
      }
    }
  };

  // The taps of one axis that lie in [first, limit) of x.
  struct Range {
    int64_t start, begin, end;  // position of tap 0; taps
    [[gnu::always_inline]] Range(const LastWindows& w, int a, int64_t i, int64_t first,
                                 int64_t limit)
        : start(i * w.stride[a] - w.low[a]) {
      const int64_t step = w.dilation[a], kernel = w.kernel[a];
      begin = start < first ? (first - start + step - 1) / step : 0;
      end = start < limit ? (limit - 1 - start) / step + 1 : 0;
      begin = begin < kernel ? begin : kernel;
      end = end < begin ? begin : end < kernel ? end : kernel;
    }
    [[gnu::always_inline]] int64_t count() const { return end - begin; }
  };

  // The ranges of a window, and where its position (0, 0, 0) lies in x.
  struct Window {
    Range d, h, w;
    int64_t at;
    [[gnu::always_inline]] Window(const LastWindows& l, const Place& p)
        : d(l, 0, p.i[0], 0, l.x[0]), h(l, 1, p.i[1], 0, l.x[1]), w(l, 2, p.i[2], 0, l.x[2]) {
      at = p.image * l.x_image + d.start * l.x_axis[0] + h.start * l.x_axis[1] +
           w.start * l.x_axis[2];
    }
  };

  static void depthwise(const LastDepthwise& p, const float* x, const float* w, float* y,
                        int64_t begin, int64_t end) {
    const LastWindows& l = p.at;
    Place place(l, begin);
    for (int64_t row = begin; row < end;) {
      const Window window(l, place);
      // As many pixels of the line as have all their taps along it.
      int64_t pixels = 1;
      if (window.w.begin == 0 && window.w.end == l.kernel[2]) {
        const int64_t reach = window.w.start + (l.kernel[2] - 1) * l.dilation[2];
        while (pixels < kLastPixels && row + pixels < end && place.i[2] + pixels < l.y[2] &&
               reach + pixels * l.stride[2] < l.x[2])
          ++pixels;
      }
      float* const to = y + row * p.channels;
      switch (pixels) {
        case 4:
          sum_pixels<4>(p, window, x, w, to);
          break;
        case 3:
          sum_pixels<3>(p, window, x, w, to);
          break;
        case 2:
          sum_pixels<2>(p, window, x, w, to);
          break;
        default:
          sum_pixels<1>(p, window, x, w, to);
      }
      row += pixels;
      place.advance(l, pixels);
    }
  }

  template <int N>
  static void sum_pixels(const LastDepthwise& p, const Window& win, const float* x, const float* w,
                         float* y) {
    const LastWindows& l = p.at;
    const int64_t next = l.stride[2] * l.x_axis[2];
    for_channels(p.channels, [&]<int B, int V>(int64_t c) __attribute__((always_inline)) {
      constexpr int lanes = kLanes<float, B>;
      Vec<float, B> sum[N][V] = {};
      for (int64_t d = win.d.begin; d < win.d.end; ++d)
        for (int64_t h = win.h.begin; h < win.h.end; ++h) {
          const float* from = x + win.at + c + d * l.dilation[0] * l.x_axis[0] +
                              h * l.dilation[1] * l.x_axis[1] +
                              win.w.begin * l.dilation[2] * l.x_axis[2];
          const float* weight =
              w + ((d * l.kernel[1] + h) * l.kernel[2] + win.w.begin) * p.channels + c;
          for (int64_t k = win.w.begin; k < win.w.end; ++k) {
#pragma GCC unroll 2
            for (int v = 0; v < V; ++v) {
              const Vec<float, B> s = load<float, B>(weight + v * lanes);
#pragma GCC unroll 4
              for (int i = 0; i < N; ++i)
                sum[i][v] += load<float, B>(from + i * next + v * lanes) * s;
            }
            from += l.dilation[2] * l.x_axis[2];
            weight += p.channels;
          }
        }
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i)
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) store<float, B>(y + i * p.channels + c + v * lanes, sum[i][v]);
    });
  }

  static void pool(const LastPool& p, const float* x, float* y, int64_t begin, int64_t end) {
    switch (p.fold) {
      case LastFold::Max:
        return fold<LastFold::Max>(p, x, y, begin, end);
      case LastFold::Min:
        return fold<LastFold::Min>(p, x, y, begin, end);
      default:
        return fold<LastFold::Sum>(p, x, y, begin, end);
    }
  }

  template <LastFold kind, class V>
  [[gnu::always_inline]] static V combine(V best, V v) {
    if constexpr (kind == LastFold::Sum) return best + v;
    const auto better = kind == LastFold::Max ? v > best : v < best;
    return best != best ? best : (better | (v != v)) ? v : best;  // NaN wins
  }

  template <LastFold kind>
  static void fold(const LastPool& p, const float* x, float* y, int64_t begin, int64_t end) {
    const LastWindows& l = p.at;
    constexpr float init = kind == LastFold::Max   ? -__builtin_inff()
                           : kind == LastFold::Min ? __builtin_inff()
                                                   : 0.0f;
    Place place(l, begin);
    y += begin * p.channels;
    for (int64_t row = begin; row < end; ++row, y += p.channels) {
      const Window win(l, place);
      const float divisor = p.fold == LastFold::Mean ? counted(p, place, win) : 1.0f;
      for_channels(p.channels, [&]<int B, int V>(int64_t c) __attribute__((always_inline)) {
        constexpr int lanes = kLanes<float, B>;
        Vec<float, B> all[V];
        for (int v = 0; v < V; ++v) all[v] = splat<float, B>(init);
        for (int64_t d = win.d.begin; d < win.d.end; ++d)
          for (int64_t h = win.h.begin; h < win.h.end; ++h) {
            const float* from = x + win.at + c + d * l.dilation[0] * l.x_axis[0] +
                                h * l.dilation[1] * l.x_axis[1] +
                                win.w.begin * l.dilation[2] * l.x_axis[2];
            Vec<float, B> line[V];  // sums are formed line by line
            for (int v = 0; v < V; ++v) line[v] = splat<float, B>(init);
            for (int64_t k = win.w.begin; k < win.w.end; ++k) {
#pragma GCC unroll 2
              for (int v = 0; v < V; ++v)
                line[v] = combine<kind>(line[v], load<float, B>(from + v * lanes));
              from += l.dilation[2] * l.x_axis[2];
            }
            for (int v = 0; v < V; ++v) all[v] = combine<kind>(all[v], line[v]);
          }
        for (int v = 0; v < V; ++v)
          store<float, B>(y + c + v * lanes, kind == LastFold::Sum ? all[v] / divisor : all[v]);
      });
      place.advance(l, 1);
    }
  }

  static float counted(const LastPool& p, const Place& place, const Window& win) {
    if (!p.count_padding) return static_cast<float>(win.d.count() * win.h.count() * win.w.count());
    int64_t count = 1;
    for (int a = 0; a < 3; ++a)
      count *= Range(p.at, a, place.i[a], -p.at.low[a], p.at.x[a] + (p.high[a] > 0 ? p.high[a] : 0))
                   .count();
    return static_cast<float>(count);
  }
};

template <int W>
LastWindowFns last_window_fns() {
  return {&LastWindowImpl<W>::depthwise, &LastWindowImpl<W>::pool};
}

template LastWindowFns last_window_fns<kVectorBytes>();

}  // namespace rlx::cpu
