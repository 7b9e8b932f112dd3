// Convolutions and pools with channels last: the interface between the plans and the code compiled per instruction set.
#pragma once

#include <cstdint>

namespace rlx::cpu {

// Three spatial axes, missing ones in front with size 1; strides in elements. A pixel's channels lie together.
// (All inlined, always: this is compiled for several instruction sets.)
struct LastWindows {
  int64_t x[3], y[3], kernel[3], stride[3], dilation[3], low[3];
  int64_t x_image, x_axis[3];  // strides of x
};

// Rows of results are pixels of all images, in their order.
struct LastConvShape {
  LastWindows at;
  int64_t in, out;  // channels of a group
  int64_t y_row;    // channels of a result
  // The sum over taps and channels in blocks: `taps` whole taps, or of one tap `channels` of its channels.
  int64_t taps, channels;
  int64_t w_axis[3], w_in, w_out;  // strides of the weights

  [[gnu::always_inline]] int64_t all_taps() const {
    return at.kernel[0] * at.kernel[1] * at.kernel[2];
  }
  [[gnu::always_inline]] int64_t depth() const { return all_taps() * in; }
  [[gnu::always_inline]] int64_t block_depth() const { return taps * channels; }
  [[gnu::always_inline]] int64_t blocks() const {
    return (all_taps() + taps - 1) / taps * ((in + channels - 1) / channels);
  }
};

struct LastConvTile {
  const float* x;       // of the group's first channel
  const float* packed;  // the group's panels; nullptr: read w
  const float* w;       // of the group's first channels in and the tile's first column
  float* y;             // of row 0, the tile's first column
  int64_t begin, end;   // rows
  int64_t column, columns;
  void* scratch[4];  // where rows begin; a block of A; of B; a run beside what y lost
};

struct LastConvFns {
  void (*run)(const LastConvShape& shape, const LastConvTile& tile);
  // Packs panel `panel` of the weights of a group: the panels of a block of the sum lie after those of the one before, as
  // they are read.
  void (*pack)(const LastConvShape& shape, const float* w, float* packed, int64_t panel);
  int64_t panel;  // columns
  void (*scratch)(const LastConvShape& shape, int64_t rows, int64_t columns, int64_t* bytes);
};
template <int W>
LastConvFns last_conv_fns();

// One channel in and out per group: rows [begin, end); `w` is [taps, channels].
struct LastDepthwise {
  LastWindows at;
  int64_t channels;
};
enum class LastFold : uint8_t { Max, Mean, Sum, Min };
struct LastPool {
  LastWindows at;
  int64_t high[3];
  int64_t channels;
  LastFold fold;
  bool count_padding;
};
struct LastWindowFns {
  void (*depthwise)(const LastDepthwise& p, const float* x, const float* w, float* y, int64_t begin,
                    int64_t end);
  void (*pool)(const LastPool& p, const float* x, float* y, int64_t begin, int64_t end);
};
template <int W>
LastWindowFns last_window_fns();

}  // namespace rlx::cpu
