// Convolutions of bytes against loops in 64-bit integers, cut to 32 bits: every instruction set of this machine, one to three
// axes, strides, dilation, padding on either side, groups, single channels, zero points.
#include <gtest/gtest.h>

#include <random>

#include "native_util.h"
#include "rlx/backend/cpu/kernels/image/byte_conv.h"
#include "rlx/base/parallel.h"

namespace rlx::cpu {
namespace {

using testing::Bytes;

int64_t byte_number(const Bytes& b, int64_t i, DType d) {
  const uint8_t byte = b.data()[i];
  return d == DType::I8 ? static_cast<int8_t>(byte) : byte;
}

// Random bytes, or the ends of their range.
Bytes some_bytes(int64_t count, bool ends, uint32_t seed) {
  static constexpr uint8_t kEnds[] = {0, 0xff, 0x7f, 0x80};
  Bytes out(static_cast<size_t>(count));
  std::mt19937 random(seed);
  for (int64_t i = 0; i < count; ++i)
    out.data()[i] = ends ? kEnds[random() % 4] : static_cast<uint8_t>(random());
  return out;
}

struct Convolution {
  ByteConvProblem p;
  Bytes x, w, x_zero, w_zero;

  Convolution(const ByteConvProblem& problem, bool ends)
      : p(problem),
        x(some_bytes(p.conv.images * p.conv.groups * p.conv.in * p.conv.pixels(), ends, 1)),
        w(some_bytes(p.conv.groups * p.conv.out * p.conv.depth(), ends, 2)),
        x_zero(some_bytes(p.x_zeros, ends, 3)),
        w_zero(some_bytes(p.w_zeros, ends, 4)) {}

  size_t results() const {
    return static_cast<size_t>(p.conv.images * p.conv.groups * p.conv.out * p.conv.positions());
  }

  std::vector<int32_t> expected() const {
    const ConvProblem& c = p.conv;
    std::vector<int32_t> out;
    const int64_t zx = p.x_zeros ? byte_number(x_zero, 0, p.x_dtype) : 0;
    for (int64_t n = 0; n < c.images; ++n)
      for (int64_t o = 0; o < c.groups * c.out; ++o)
        for (int64_t at = 0; at < c.positions(); ++at) {
          const int64_t pos[3] = {at / (c.y[1] * c.y[2]), at / c.y[2] % c.y[1], at % c.y[2]};
          const int64_t zw = p.w_zeros ? byte_number(w_zero, p.w_zeros == 1 ? 0 : o, p.w_dtype) : 0;
          int64_t sum = 0;
          for (int64_t i = 0; i < c.in; ++i)
            for (int64_t k = 0; k < c.taps(); ++k) {
              const int64_t tap[3] = {k / (c.kernel[1] * c.kernel[2]),
                                      k / c.kernel[2] % c.kernel[1], k % c.kernel[2]};
              int64_t pixel = 0;
              bool inside = true;
              for (size_t d = 0; d < 3; ++d) {
                const int64_t q = pos[d] * c.stride[d] + tap[d] * c.dilation[d] - c.low[d];
                inside = inside && q >= 0 && q < c.x[d];
                pixel = pixel * c.x[d] + q;
              }
              if (!inside) continue;
              const int64_t plane = (n * c.groups + o / c.out) * c.in + i;
              sum += (byte_number(x, plane * c.pixels() + pixel, p.x_dtype) - zx) *
                     (byte_number(w, (o * c.in + i) * c.taps() + k, p.w_dtype) - zw);
            }
          out.push_back(static_cast<int32_t>(sum));
        }
    return out;
  }

  std::vector<int32_t> run(DotIsa isa, bool packed, int threads) const {
    const ByteConv conv(p, isa);
    packed = packed && conv.packed_bytes();
    Bytes weights(packed ? conv.packed_bytes() : 0);
    if (packed) conv.pack_w(w.data(), weights.data());
    EXPECT_TRUE(weights.guard_intact());
    Bytes out(4 * results());
    std::vector<Bytes> scratch;
    for (int i = 0; i < threads; ++i) scratch.emplace_back(conv.scratch_bytes());
    parallel_for_worker(threads, conv.blocks(), [&](int worker, int64_t begin, int64_t end) {
      auto* own = reinterpret_cast<std::byte*>(scratch[static_cast<size_t>(worker)].data());
      for (int64_t b = begin; b < end; ++b)
        conv.run(b,
                 {x.data(), packed ? weights.data() : w.data(), x_zero.data(), w_zero.data(),
                  out.data()},
                 packed, own);
    });
    for (const Bytes& s : scratch) EXPECT_TRUE(s.guard_intact());
    EXPECT_TRUE(out.guard_intact());
    std::vector<int32_t> values(results());
    if (!values.empty()) std::memcpy(values.data(), out.data(), out.size());
    return values;
  }

  void check(const std::string& what) const {
    const auto want = expected();
    for (const DotIsa isa :
         {DotIsa::Baseline, DotIsa::Avx2, DotIsa::Avx512, DotIsa::AvxVnni, DotIsa::Avx512Vnni}) {
      if (!dot_isa_supported(isa)) continue;
      for (const bool packed : {false, true})
        ASSERT_EQ(run(isa, packed, 1), want)
            << what << " " << dot_isa_name(isa) << (packed ? " packed " : " ")
            << to_string(p.x_dtype) << " " << to_string(p.w_dtype) << " zeros " << p.x_zeros << ", "
            << p.w_zeros;
    }
  }
};

// Every kind of bytes and of zero points.
void check_kinds(const char* what, ByteConvProblem p) {
  int turn = 0;
  for (const DType x : {DType::U8, DType::I8})
    for (const DType w : {DType::U8, DType::I8})
      for (const int64_t zeros : {0, 1, 2}) {
        p.x_dtype = x, p.w_dtype = w;
        p.x_zeros = std::min<int64_t>(zeros, 1);
        p.w_zeros = zeros == 2 ? p.conv.groups * p.conv.out : zeros;
        Convolution(p, turn++ % 2 == 1).check(what);
        if (::testing::Test::HasFatalFailure()) return;
      }
}

// Sizes of y for these of x, `high` padding behind.
ConvProblem sized(ConvProblem c, Sizes3 high) {
  for (size_t d = 0; d < 3; ++d)
    c.y[d] =
        (c.x[d] + c.low[d] + high[d] - (c.kernel[d] - 1) * c.dilation[d] - 1) / c.stride[d] + 1;
  return c;
}

TEST(ByteConvs, Kinds) {
  check_kinds("3x3 padded", {.conv = sized({.images = 2,
                                            .in = 5,
                                            .out = 17,
                                            .x = {1, 9, 11},
                                            .kernel = {1, 3, 3},
                                            .low = {0, 1, 1}},
                                           {0, 1, 1})});
  check_kinds("pixels", {.conv = sized({.in = 9, .out = 15, .x = {1, 7, 10}}, {})});
  check_kinds("pixels, every second",
              {.conv = sized({.in = 8, .out = 5, .x = {1, 7, 11}, .stride = {1, 2, 2}}, {})});
  check_kinds("wide, dilated, on one side", {.conv = sized({.in = 3,
                                                            .out = 4,
                                                            .x = {1, 6, 70},
                                                            .kernel = {1, 2, 7},
                                                            .stride = {1, 1, 2},
                                                            .dilation = {1, 2, 1},
                                                            .low = {0, 1, 4}},
                                                           {0, 0, 1})});
  check_kinds("three axes", {.conv = sized({.in = 4,
                                            .out = 3,
                                            .x = {5, 4, 6},
                                            .kernel = {2, 3, 2},
                                            .stride = {2, 1, 1},
                                            .low = {1, 1, 0}},
                                           {0, 1, 1})});
  check_kinds(
      "one axis",
      {.conv = sized({.in = 6, .out = 20, .x = {1, 1, 200}, .kernel = {1, 1, 5}, .low = {0, 0, 4}},
                     {})});
  check_kinds("groups", {.conv = sized({.images = 2,
                                        .groups = 3,
                                        .in = 2,
                                        .out = 5,
                                        .x = {1, 6, 5},
                                        .kernel = {1, 3, 3},
                                        .low = {0, 1, 1}},
                                       {0, 1, 1})});
  check_kinds("single channels", {.conv = sized({.images = 2,
                                                 .groups = 5,
                                                 .in = 1,
                                                 .out = 2,
                                                 .x = {1, 9, 37},
                                                 .kernel = {1, 3, 3},
                                                 .stride = {1, 2, 2},
                                                 .low = {0, 1, 1}},
                                                {0, 1, 1})});
  check_kinds(
      "single channels, padding alone",
      {.conv = sized(
           {.groups = 2, .in = 1, .out = 1, .x = {1, 2, 3}, .kernel = {1, 5, 5}, .low = {0, 6, 7}},
           {0, 6, 7})});
}

TEST(ByteConvs, SizesAroundTheBlocks) {
  int turn = 0;
  for (const int64_t in : {2, 3, 4, 7, 8, 33})
    for (const int64_t out : {1, 13, 15, 64, 65})
      for (const int64_t width : {1, 15, 31, 32, 33, 64, 65, 130}) {
        ++turn;
        ByteConvProblem p{
            .conv = sized(
                {.in = in, .out = out, .x = {1, 2, width}, .kernel = {1, 1, 3}, .low = {0, 0, 1}},
                {0, 0, 1})};
        p.x_dtype = turn % 2 ? DType::U8 : DType::I8,
        p.w_dtype = turn / 2 % 2 ? DType::U8 : DType::I8;
        p.x_zeros = turn / 4 % 2, p.w_zeros = turn / 8 % 2 ? out : 0;
        Convolution(p, turn % 5 == 0).check("line");
        if (HasFatalFailure()) return;
      }
}

// What unfold keeps of an image: lines longer than it takes at once, blocks that end within a line, planes of several depths,
// rows and columns that lie too far apart to be kept.
TEST(ByteConvs, LinesAroundTheSlots) {
  const auto check = [](const char* what, ConvProblem c, Sizes3 high) {
    int turn = 0;
    for (const int64_t out : {3, 65})
      for (const bool zeros : {false, true}) {
        c.out = out;
        ByteConvProblem p{.conv = sized(c, high)};
        p.x_dtype = turn % 2 ? DType::U8 : DType::I8,
        p.w_dtype = turn++ / 2 ? DType::U8 : DType::I8;
        p.x_zeros = zeros, p.w_zeros = zeros ? out * c.groups : 0;
        Convolution(p, false).check(what);
        if (HasFatalFailure()) return;
      }
  };
  for (const int64_t width : {255, 256, 257, 300})
    check("long lines", {.in = 5, .x = {1, 3, width}, .kernel = {1, 3, 3}, .low = {0, 1, 1}},
          {0, 1, 1});
  check("long lines, every second",
        {.in = 3, .x = {1, 5, 1100}, .kernel = {1, 3, 5}, .stride = {1, 2, 2}, .low = {0, 2, 3}},
        {0, 1, 4});
  check(
      "long lines, dilated, padding alone at the end",
      {.in = 2, .x = {1, 2, 1500}, .kernel = {1, 2, 3}, .dilation = {1, 1, 40}, .low = {0, 0, 90}},
      {0, 0, 300});
  check("three axes in blocks",
        {.images = 2,
         .groups = 2,
         .in = 6,
         .x = {5, 13, 17},
         .kernel = {2, 3, 3},
         .stride = {1, 2, 1},
         .dilation = {2, 1, 2},
         .low = {1, 1, 2}},
        {2, 0, 1});
  check("three axes, every third",
        {.in = 5, .x = {7, 19, 46}, .kernel = {3, 3, 4}, .stride = {2, 1, 3}, .low = {1, 1, 1}},
        {1, 1, 2});
  check("rows far apart", {.in = 4, .x = {1, 40, 50}, .kernel = {1, 3, 3}, .stride = {1, 7, 1}},
        {});
  check("columns far apart", {.in = 4, .x = {1, 2, 9000}, .kernel = {1, 1, 3}, .stride = {1, 1, 5}},
        {});
}

// Lines that are not kept but read tap by tap, with padding, whose numbers are zero points.
TEST(ByteConvs, PaddingAroundWhatIsNotKept) {
  check_kinds("rows far apart", {.conv = sized({.in = 5,
                                                .out = 17,
                                                .x = {1, 20, 50},
                                                .kernel = {1, 3, 3},
                                                .stride = {1, 7, 1},
                                                .low = {0, 2, 1}},
                                               {0, 2, 3})});
  check_kinds("taps far apart", {.conv = sized({.in = 5,
                                                .out = 17,
                                                .x = {1, 40, 30},
                                                .kernel = {1, 3, 3},
                                                .dilation = {1, 9, 2},
                                                .low = {0, 4, 1}},
                                               {0, 5, 3})});
  check_kinds("columns far apart", {.conv = sized({.in = 3,
                                                   .out = 2,
                                                   .x = {1, 2, 4500},
                                                   .kernel = {1, 2, 3},
                                                   .stride = {1, 1, 9},
                                                   .dilation = {1, 1, 2000},
                                                   .low = {0, 1, 90}},
                                                  {0, 0, 90})});
  check_kinds("pixels",
              {.conv = sized({.in = 6, .out = 5, .x = {1, 3, 40}, .low = {0, 1, 2}}, {0, 0, 5})});
}

// Sums that need more than the 24 bits of a float.
TEST(ByteConvs, ManyTapsOfSingleChannels) {
  for (const int64_t taps : {255, 256, 257, 600}) {
    ByteConvProblem p{
        .conv =
            sized({.groups = 2, .in = 1, .out = 1, .x = {1, 2, 700}, .kernel = {1, 1, taps}}, {})};
    p.x_zeros = 1;
    Convolution c(p, false);
    std::memset(c.x.data(), 0xff, c.x.size());
    std::memset(c.w.data(), 0x80, c.w.size());
    std::memset(c.x_zero.data(), 0, 1);
    c.check("deep line");
  }
}

TEST(ByteConvs, EmptySizes) {
  check_kinds("no images", {.conv = sized({.images = 0, .in = 3, .out = 2, .x = {1, 4, 4}}, {})});
  check_kinds("no channels in", {.conv = sized({.in = 0, .out = 2, .x = {1, 4, 4}}, {})});
  check_kinds("no channels out", {.conv = sized({.in = 2, .out = 0, .x = {1, 4, 4}}, {})});
}

TEST(ByteConvs, AnyNumberOfThreads) {
  ByteConvProblem p{.conv = sized({.images = 1,
                                   .in = 40,
                                   .out = 70,
                                   .x = {1, 23, 21},
                                   .kernel = {1, 3, 3},
                                   .low = {0, 1, 1}},
                                  {0, 1, 1}),
                    .x_dtype = DType::I8,
                    .x_zeros = 1,
                    .w_zeros = 70};
  const Convolution c(p, false);
  const auto want = c.expected();
  for (const int threads : {1, 2, 3, 7})
    EXPECT_EQ(c.run(dot_isa(host_isa()), true, threads), want) << threads;
}

}  // namespace
}  // namespace rlx::cpu
