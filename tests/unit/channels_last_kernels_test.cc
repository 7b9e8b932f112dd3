// The kernels with channels last against sums in f64 over every tap, on every instruction set of the machine: sizes on both
// sides of vectors, panels, register blocks and tiles, strides, dilation, padding on each side, groups, 1 to 3 axes.
#include <gtest/gtest.h>

#include <array>

#include "native_util.h"
#include "rlx/backend/cpu/kernels/image/channels_last.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

using testing::Bytes;

struct ConvCase {
  int64_t images, groups, in, out;
  std::array<int64_t, 3> x, kernel, stride{1, 1, 1}, dilation{1, 1, 1}, low{}, high{};

  std::array<int64_t, 3> y() const {
    std::array<int64_t, 3> size{};
    for (size_t a = 0; a < 3; ++a)
      size[a] = (x[a] + low[a] + high[a] - dilation[a] * (kernel[a] - 1) - 1) / stride[a] + 1;
    return size;
  }
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  std::string text() const {
    return fmt::format(
        "{} images, {} groups of {} to {}, x {} kernel {} stride {} dilation {} low {} high {}",
        images, groups, in, out, fmt::join(x, "x"), fmt::join(kernel, "x"), fmt::join(stride, "x"),
        fmt::join(dilation, "x"), fmt::join(low, ","), fmt::join(high, ","));
  }
};

int64_t product(const std::array<int64_t, 3>& s) { return s[0] * s[1] * s[2]; }

LastWindows windows_of(const ConvCase& c, int64_t pixel) {
  LastWindows w{};
  const auto y = c.y();
  int64_t stride = pixel;
  for (size_t a = 3; a-- > 0;) {
    w.x[a] = c.x[a], w.y[a] = y[a], w.kernel[a] = c.kernel[a], w.stride[a] = c.stride[a];
    w.dilation[a] = c.dilation[a], w.low[a] = c.low[a];
    w.x_axis[a] = stride;
    stride *= c.x[a];
  }
  w.x_image = stride;
  return w;
}

class Floats {
 public:
  explicit Floats(int64_t n) : bytes_(static_cast<size_t>(4 * n)) {}
  float* data() { return reinterpret_cast<float*>(bytes_.data()); }
  float& operator[](int64_t i) { return data()[i]; }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()) / 4; }
  bool intact() const { return bytes_.guard_intact(); }
  void draw(std::mt19937& random) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < size(); ++i) (*this)[i] = normal(random);
  }

 private:
  Bytes bytes_;
};

// Calls f(pixel of x, tap) for the taps of pixel `row` that lie inside.
template <class F>
void for_taps(const ConvCase& c, int64_t row, F f) {
  const auto y = c.y();
  const int64_t at[3] = {row / (y[1] * y[2]) % y[0], row / y[2] % y[1], row % y[2]};
  const int64_t image = row / product(y);
  for (int64_t tap = 0; tap < c.taps(); ++tap) {
    const int64_t k[3] = {tap / (c.kernel[1] * c.kernel[2]), tap / c.kernel[2] % c.kernel[1],
                          tap % c.kernel[2]};
    int64_t pixel = image;
    bool inside = true;
    for (size_t a = 0; a < 3; ++a) {
      const int64_t i = at[a] * c.stride[a] + k[a] * c.dilation[a] - c.low[a];
      inside = inside && i >= 0 && i < c.x[a];
      pixel = pixel * c.x[a] + i;
    }
    if (inside) f(pixel, tap);
  }
}

void expect_close(float got, double want, double size, const std::string& what, int64_t i) {
  ASSERT_LE(std::fabs(got - want), 2e-6 * size + 1e-30)
      << what << ", element " << i << ": " << got << ", not " << want;
}

// Weights lie as [groups * out, in, taps], as a conv's do, when `turned`; else as [taps, in, groups * out].
void check_conv(const ConvCase& c, Isa isa, bool turned) {
  std::mt19937 random(7);
  const int64_t channels = c.groups * c.in, outs = c.groups * c.out,
                rows = c.images * product(c.y());
  const int64_t spare = turned ? 3 : 0;  // between pixels
  Floats x(c.images * product(c.x) * (channels + spare)), w(outs * c.in * c.taps()), y(rows * outs);
  x.draw(random), w.draw(random);
  LastConvProblem p;
  p.windows = windows_of(c, channels + spare);
  p.images = c.images, p.groups = c.groups, p.in = c.in, p.out = c.out;
  p.w_in = turned ? c.taps() : outs, p.w_out = turned ? c.in * c.taps() : 1;
  const int64_t tap = turned ? 1 : c.in * outs;
  p.w_axis = {c.kernel[1] * c.kernel[2] * tap, c.kernel[2] * tap, tap};
  const LastConvPlan plan(p, isa);
  Floats packed(static_cast<int64_t>(plan.packed_bytes()) / 4), again(rows * outs);
  Bytes scratch(plan.scratch_bytes());
  plan.pack(w.data(), packed.data());
  for (int64_t t = plan.tiles(); t-- > 0;)
    plan.run(t, x.data(), packed.data(), true, y.data(),
             reinterpret_cast<std::byte*>(scratch.data()));
  for (int64_t t = 0; t < plan.tiles(); ++t)
    plan.run(t, x.data(), w.data(), false, again.data(),
             reinterpret_cast<std::byte*>(scratch.data()));
  const std::string what = fmt::format("{}: {}", isa_name(isa), c.text());
  EXPECT_TRUE(y.intact() && packed.intact() && scratch.guard_intact()) << what;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t o = 0; o < outs; ++o) {
      double sum = 0, size = 0;
      for_taps(c, row, [&](int64_t pixel, int64_t k) {
        for (int64_t i = 0; i < c.in; ++i) {
          const double v =
              static_cast<double>(x[pixel * (channels + spare) + o / c.out * c.in + i]) *
              w[k * tap + i * p.w_in + o * p.w_out];
          sum += v, size += std::fabs(v);
        }
      });
      expect_close(y[row * outs + o], sum, size, what, row * outs + o);
      ASSERT_EQ(y[row * outs + o], again[row * outs + o]) << what << ": packed weights change bits";
      if (::testing::Test::HasFatalFailure()) return;
    }
}

std::vector<Isa> isas() {
  std::vector<Isa> out;
  for (Isa isa : {Isa::Baseline, Isa::Avx2, Isa::Avx512})
    if (isa_supported(isa)) out.push_back(isa);
  return out;
}

TEST(ChannelsLastConv, ChannelsOnBothSidesOfVectorsAndPanels) {
  for (Isa isa : isas())
    for (int64_t in : {1, 3, 15, 16, 17, 64, 65})
      for (int64_t out : {1, 3, 15, 16, 17, 31, 32, 33, 64, 65})
        for (bool turned : {false, true})
          check_conv(
              {1, 1, in, out, {1, 5, 6}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
              isa, turned);
}

TEST(ChannelsLastConv, RowsOnBothSidesOfBlocksAndTiles) {
  for (Isa isa : isas())
    for (int64_t rows : {1, 2, 5, 6, 7, 13, 14, 15, 28, 29, 127, 128, 129, 257})
      for (int64_t out : {16, 48})
        check_conv(
            {1, 1, 5, out, {1, 1, rows}, {1, 1, 3}, {1, 1, 1}, {1, 1, 1}, {0, 0, 1}, {0, 0, 1}},
            isa, false);
}

// Blocks of the sum: whole lines, whole taps, parts of a tap, and so many that they are summed in runs.
TEST(ChannelsLastConv, DepthOnBothSidesOfBlocks) {
  for (Isa isa : isas()) {
    for (int64_t in : {35, 36, 106, 107, 160, 161, 319, 320, 321, 640, 641})
      check_conv({1, 1, in, 9, {1, 4, 5}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
                 isa, false);
    for (int64_t in : {320, 330, 400})  // 33 blocks and more
      check_conv({1, 1, in, 17, {1, 7, 8}, {1, 5, 7}, {1, 1, 1}, {1, 1, 1}, {0, 2, 3}, {0, 2, 3}},
                 isa, true);
  }
}

ConvCase drawn(std::mt19937& random, bool depthwise) {
  const auto upto = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  for (;;) {
    ConvCase c{1 + upto(2),
               1 + (depthwise ? upto(70) : upto(2) * upto(4)),
               depthwise ? 1 : 1 + upto(20),
               depthwise ? 1 : 1 + upto(40),
               {1, 1, 1},
               {1, 1, 1}};
    const auto axes = static_cast<size_t>(1 + upto(3));
    for (size_t a = 3 - axes; a < 3; ++a) {
      c.x[a] = 1 + upto(9), c.kernel[a] = 1 + upto(4), c.stride[a] = 1 + upto(3);
      c.dilation[a] = 1 + upto(3) * upto(2);
      c.low[a] = upto(5) - 1, c.high[a] = upto(5) - 1;
    }
    bool fits = true;
    for (size_t a = 0; a < 3; ++a)
      fits = fits && c.x[a] + c.low[a] + c.high[a] >= c.dilation[a] * (c.kernel[a] - 1) + 1;
    if (fits) return c;
  }
}

TEST(ChannelsLastConv, RandomWindows) {
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    const ConvCase c = drawn(random, false);
    for (Isa isa : isas()) check_conv(c, isa, i % 2 == 1);
    if (HasFatalFailure()) return;
  }
}

TEST(ChannelsLastConv, Depthwise) {
  std::mt19937 random(12);
  for (int i = 0; i < 300; ++i) {
    const ConvCase c = drawn(random, true);
    const int64_t channels = c.groups, rows = c.images * product(c.y());
    for (Isa isa : isas()) {
      Floats x(c.images * product(c.x) * channels), w(channels * c.taps()), y(rows * channels);
      x.draw(random), w.draw(random);
      const LastDepthwise p{windows_of(c, channels), channels};
      const int64_t half = rows / 2;
      last_window_fns(isa).depthwise(p, x.data(), w.data(), y.data(), half, rows);
      last_window_fns(isa).depthwise(p, x.data(), w.data(), y.data(), 0, half);
      EXPECT_TRUE(y.intact());
      for (int64_t e = 0; e < rows * channels; ++e) {
        double sum = 0, size = 0;
        for_taps(c, e / channels, [&](int64_t pixel, int64_t k) {
          const double v = static_cast<double>(x[pixel * channels + e % channels]) *
                           w[k * channels + e % channels];
          sum += v, size += std::fabs(v);
        });
        expect_close(y[e], sum, size, fmt::format("{}: depthwise, {}", isa_name(isa), c.text()), e);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(ChannelsLastPool, EveryFold) {
  std::mt19937 random(13);
  for (int i = 0; i < 400; ++i) {
    const ConvCase c = drawn(random, true);
    const int64_t channels = c.groups, rows = c.images * product(c.y());
    const auto fold = static_cast<LastFold>(i % 4);
    const bool count_padding = i / 4 % 2 == 1;
    for (Isa isa : isas()) {
      Floats x(c.images * product(c.x) * channels), y(rows * channels);
      x.draw(random);
      if (i % 5 == 0) x[x.size() / 2] = NAN;
      const LastPool p{windows_of(c, channels),
                       {c.high[0], c.high[1], c.high[2]},
                       channels,
                       fold,
                       count_padding};
      last_window_fns(isa).pool(p, x.data(), y.data(), 0, rows / 3);
      last_window_fns(isa).pool(p, x.data(), y.data(), rows / 3, rows);
      EXPECT_TRUE(y.intact());
      for (int64_t e = 0; e < rows * channels; ++e) {
        double value = fold == LastFold::Max   ? -INFINITY
                       : fold == LastFold::Min ? INFINITY
                                               : 0,
               size = 0;
        double count = 0;
        for_taps(c, e / channels, [&](int64_t pixel, int64_t) {
          const double v = x[pixel * channels + e % channels];
          if (fold == LastFold::Max)
            value = std::isnan(value) || v > value || std::isnan(v)
                        ? (std::isnan(value) ? value : v)
                        : value;
          if (fold == LastFold::Min)
            value = std::isnan(value) || v < value || std::isnan(v)
                        ? (std::isnan(value) ? value : v)
                        : value;
          if (fold == LastFold::Sum || fold == LastFold::Mean) value += v;
          size += std::fabs(v), ++count;
        });
        if (fold == LastFold::Mean) {
          if (count_padding) {  // padded positions count, those behind the padding do not (there are none)
            count = static_cast<double>(c.taps());
          }
          value /= count, size /= count;
        }
        if (std::isnan(value)) {
          ASSERT_TRUE(std::isnan(y[e])) << c.text();
        } else if (std::isinf(value)) {
          ASSERT_EQ(y[e], value) << c.text();
        } else {
          expect_close(y[e], value, size,
                       fmt::format("{}: pool {}, {}", isa_name(isa), i % 4, c.text()), e);
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace rlx::cpu
