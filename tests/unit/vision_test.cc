// Convolutions, pools, resizing and norms beyond the sample table: the messages of their errors,
// symbolic sizes, problems of many tiles on the CPU, and results that do not depend on threads.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "rlx/ops/evaluate.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/image/pool.h"
#include "rlx/ops/image/resize.h"
#include "rlx/ops/nn/norms.h"
#include "rlx/ops/reduce/reduce.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/reverse.h"

namespace rlx {
namespace {

constexpr DType f32 = DType::F32;

template <class A>
Graph graph_of(const Op<A>& op, const Types& types, A attrs = {}) {
  Builder b("f");
  Values in;
  for (const Type& t : types) in.push_back(b.input(std::to_string(in.size()), t));
  for (Value v : b.emit(op.def, std::move(attrs), in)) b.output(v);
  return b.finish();
}

template <class F>
std::string code_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code();
  }
  return {};
}
template <class A>
std::string build_error(const Op<A>& op, const Types& types, A attrs = {}) {
  return code_of([&] { graph_of(op, types, attrs); });
}
Type f(Shape shape) { return {f32, std::move(shape)}; }

Tensor noise(DType d, const Ints& sizes, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<double> value(-1, 1);
  Tensor t(d, sizes);
  for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, value(rng));
  return t;
}

Tensors run(const Graph& g, const Tensors& in, int threads) {
  NamedTensors named;
  for (size_t i = 0; i < in.size(); ++i) named[std::to_string(i)] = in[i];
  return Session("cpu").compile(g, {.threads = threads, .poison = true}).run(named);
}

TEST(Vision, ConvErrors) {
  const Type x = f({1, 4, 6}), w = f({2, 4, 3});
  EXPECT_EQ(build_error(op::conv, {x, w}), "");
  EXPECT_EQ(build_error(op::conv, {x, f({2, 3, 3})}), "conv-shape");
  EXPECT_EQ(build_error(op::conv, {f({4, 6}), f({2, 4})}), "conv-shape");
  EXPECT_EQ(build_error(op::conv, {x, f({2, 4, 3, 3})}), "conv-shape");
  EXPECT_EQ(build_error(op::conv, {x, w}, ConvAttrs{.groups = 3}), "conv-groups");
  EXPECT_EQ(build_error(op::conv, {x, w}, ConvAttrs{.groups = 0}), "conv-groups");
  EXPECT_EQ(build_error(op::conv, {x, f({3, 2, 3})}, ConvAttrs{.groups = 2}), "conv-groups");
  EXPECT_EQ(build_error(op::conv, {x, f({2, 4, 7})}), "window");
  EXPECT_EQ(build_error(op::conv, {x, w}, ConvAttrs{.stride = {0}}), "window");
  EXPECT_EQ(build_error(op::conv, {x, w}, ConvAttrs{.low = {1, 1}}), "window");
  EXPECT_EQ(build_error(op::conv, {x, f({2, 4, Dim::symbol("k")})}), "conv-kernel");
  EXPECT_EQ(build_error(op::conv, {x, {DType::F64, w.shape}}), "dtype-mixed");
  EXPECT_EQ(
      build_error(op::conv_backward_input, {f({1, 2, 4}), w}, ConvBackwardInputAttrs{{}, {9}}),
      "conv-shape");
  EXPECT_EQ(
      build_error(op::conv_backward_weight, {x, f({2, 2, 4})}, ConvBackwardWeightAttrs{{}, {3}}),
      "conv-shape");
  EXPECT_EQ(
      build_error(op::conv_transpose, {x, f({4, 2, 3})}, ConvTransposeAttrs{{.low = {9}}, {}}),
      "conv-shape");
}

TEST(Vision, PoolAndResizeErrors) {
  const Type x = f({2, 6});
  EXPECT_EQ(build_error(op::pool, {x}, PoolAttrs{}), "window");
  EXPECT_EQ(build_error(op::pool, {x}, PoolAttrs{.kernel = {7}}), "window");
  EXPECT_EQ(build_error(op::pool, {x}, PoolAttrs{.kernel = {1, 1, 1}}), "pool-shape");
  EXPECT_EQ(
      build_error(op::max_pool_with_indices, {x}, PoolAttrs{.kind = PoolKind::mean, .kernel = {2}}),
      "pool-kind");
  EXPECT_EQ(build_error(op::max_pool_backward, {x, x}, PoolAttrs{.kernel = {2}}), "pool-shape");
  EXPECT_EQ(build_error(op::lp_pool, {x}, LpPoolAttrs{.p = 0.5, .kernel = {2}}), "pool-p");
  EXPECT_EQ(build_error(op::adaptive_avg_pool, {x}, AdaptivePoolAttrs{{0}}), "pool-size");
  EXPECT_EQ(build_error(op::max_unpool, {x, x}, UnpoolAttrs{{9}}), "pool-shape");
  EXPECT_EQ(build_error(op::resize, {x}, ResizeAttrs{.axes = {1}}), "resize-size");
  EXPECT_EQ(build_error(op::resize, {x}, ResizeAttrs{.axes = {1}, .sizes = {0}}), "resize-size");
  EXPECT_EQ(build_error(op::resize, {x}, ResizeAttrs{.axes = {1, 1}, .sizes = {2, 2}}),
            "resize-size");
  EXPECT_EQ(
      build_error(op::resize, {f({Dim::symbol("n")})}, ResizeAttrs{.axes = {0}, .scales = {0.3}}),
      "resize-symbolic");
  EXPECT_EQ(build_error(op::grid_sample, {f({1, 2, 3, 3}), f({1, 2, 2, 3})}), "sample-shape");
  EXPECT_EQ(build_error(op::pixel_shuffle, {f({3, 2, 2})}), "sample-shape");
}

TEST(Vision, NormErrors) {
  const Type x = f({2, 4, 3}), c = f({4});
  EXPECT_EQ(build_error(op::group_norm, {x, c, c}, GroupNormAttrs{.num_groups = 3}), "norm-groups");
  EXPECT_EQ(build_error(op::group_norm, {x, c, f({3})}), "norm-shape");
  EXPECT_EQ(build_error(op::instance_norm, {x, c, c}, ChannelNormAttrs{-1.0}), "norm-eps");
  EXPECT_EQ(build_error(op::normalize, {x}, NormaliseAttrs{.p = 0.5}), "norm-p");
  EXPECT_EQ(build_error(op::local_response_norm, {x}, LrnAttrs{.size = 0}), "norm-size");
}

TEST(Vision, UnpoolChecksPositions) {
  const Graph g = graph_of(op::max_unpool, {f({1, 2}), {DType::I64, {1, 2}}}, UnpoolAttrs{{4}});
  for (int64_t bad : {4, -2}) {
    const Tensors in{noise(f32, {1, 2}, 1), Tensor::from<int64_t>({1, 2}, {0, bad})};
    EXPECT_EQ(code_of([&] { evaluate(g, in); }), "index-range");
    EXPECT_EQ(code_of([&] { run(g, in, 1); }), "index-range");
  }
}

TEST(Vision, SymbolicSizes) {
  const Dim n = Dim::symbol("n"), h = Dim::symbol("h");
  const Graph same =
      graph_of(op::conv, {f({n, 2, h}), f({3, 2, 3})}, ConvAttrs{.low = {1}, .high = {1}});
  EXPECT_EQ(same.type(same.outputs[0]).shape, (Shape{n, 3, h}));
  const Graph half = graph_of(op::conv, {f({n, 2, h * 2}), f({3, 2, 3})},
                              ConvAttrs{.stride = {2}, .low = {1}, .high = {1}});
  EXPECT_EQ(half.type(half.outputs[0]).shape, (Shape{n, 3, h}));
  const Graph odd = graph_of(op::conv, {f({1, 2, h}), f({3, 2, 3})}, ConvAttrs{.stride = {2}});
  EXPECT_EQ(odd.type(odd.outputs[0]).shape, (Shape{1, 3, floor_div(h - 1, 2)}));
  const Graph pooled = graph_of(op::pool, {f({n, h * 2})},
                                PoolAttrs{.kind = PoolKind::mean, .kernel = {2}, .stride = {2}});
  EXPECT_EQ(pooled.type(pooled.outputs[0]).shape, (Shape{n, h}));
}

// Problems that are cut into several parts along every axis, with shorter last ones.
template <class A>
void check_large(const Op<A>& op, const Ints& first, const Ints& second, const A& attrs) {
  for (DType d : {f32, DType::BF16}) {
    const Tensors in{noise(d, first, 1), noise(d, second, 2)};
    const Graph g = graph_of(op, {in[0].type(), in[1].type()}, attrs);
    const Tensor want = evaluate(g, in)[0], got = run(g, in, 1)[0];
    const double bound = d == f32 ? 2e-5 : 0.05;
    for (int64_t i = 0; i < want.elements(); ++i) {
      const double w = want.get_float(i);
      ASSERT_NEAR(got.get_float(i), w, bound * std::max(1.0, std::abs(w)))
          << op.def.name << " " << i;
    }
    EXPECT_TRUE(got.same_bits(run(g, in, 2)[0])) << op.def.name << ": threads change the result";
  }
}

TEST(Vision, ManyTiles) {
  const ConvAttrs c{.stride = {1, 1}, .low = {1, 1}, .high = {1, 1}};
  check_large(op::conv, {1, 6, 25, 50}, {70, 6, 3, 3}, c);
  check_large(op::conv, {2, 70, 7, 9}, {67, 70, 1, 1}, ConvAttrs{});
  check_large(op::conv, {2, 9, 30, 40}, {9, 1, 3, 3}, ConvAttrs{.stride = {2, 2}, .groups = 9});
  check_large(op::conv_backward_input, {1, 5, 25, 50}, {5, 33, 3, 3},
              ConvBackwardInputAttrs{c, {25, 50}});
  check_large(op::conv_backward_weight, {3, 20, 12, 17}, {3, 35, 12, 17},
              ConvBackwardWeightAttrs{c, {3, 3}});
}

// More positions than a tile has, the last tile shorter.
TEST(Vision, ManyTilesOfPositions) {
  const ConvAttrs c{.stride = {1, 1}, .low = {1, 1}, .high = {1, 1}};
  check_large(op::conv_backward_weight, {2, 3, 40, 27}, {2, 4, 40, 27},
              ConvBackwardWeightAttrs{c, {3, 3}});
}

template <class A>
Tensor value_of(const Op<A>& op, const Tensors& in, const A& attrs) {
  Types types;
  for (const Tensor& t : in) types.push_back(t.type());
  return evaluate(graph_of(op, types, attrs), in)[0];
}

// All places of an image of one pixel hold that pixel, but those that are zeros; of a line of pixels each its own.
TEST(Vision, ImagesOfOnePixel) {
  const Tensor pixel = Tensor::from<double>({1, 2, 1, 1}, {3, -5});
  const Tensor grid =
      Tensor::from<double>({1, 1, 5, 2}, {0, 0, -1, 1, 0.25, -0.75, 7, -3.5, -2.5, 1.5});
  for (ResizeMode mode : {ResizeMode::nearest, ResizeMode::linear, ResizeMode::cubic})
    for (bool corners : {false, true}) {
      for (OutsideMode outside : {OutsideMode::border, OutsideMode::reflection}) {
        const Tensor y = value_of(op::grid_sample, {pixel, grid}, {mode, outside, corners});
        for (int64_t i = 0; i < 10; ++i)
          EXPECT_NEAR(y.get_float(i), i < 5 ? 3 : -5, 1e-12) << corners << " " << i;
      }
      const Tensor line = Tensor::from<double>({1, 1, 1, 3}, {2, 4, 8});
      const double end = corners ? 1 : 2.0 / 3;
      const Tensor places = Tensor::from<double>({1, 1, 3, 2}, {-end, 0, 0, 0, end, 0});
      const Tensor same =
          value_of(op::grid_sample, {line, places}, {mode, OutsideMode::reflection, corners});
      for (int64_t i = 0; i < 3; ++i)
        EXPECT_NEAR(same.get_float(i), line.get_float(i), 1e-12) << corners << " " << i;
    }
}

// theta = (x, y) -> (x + 10, y + 20): the places of the pixels, the middle where an axis has one.
TEST(Vision, GridsOfOnePixel) {
  const Tensor theta = Tensor::from<double>({1, 2, 3}, {1, 0, 10, 0, 1, 20});
  const auto places = [&](Ints size, bool corners) {
    const Tensor y = value_of(op::affine_grid, {theta}, {std::move(size), corners});
    std::vector<double> out;
    for (int64_t i = 0; i < y.elements(); ++i) out.push_back(y.get_float(i));
    return out;
  };
  using List = std::vector<double>;
  EXPECT_EQ(places({1, 1}, true), (List{10, 20}));
  EXPECT_EQ(places({1, 1}, false), (List{10, 20}));
  EXPECT_EQ(places({1, 3}, true), (List{9, 20, 10, 20, 11, 20}));
  EXPECT_EQ(places({2, 1}, true), (List{10, 19, 10, 21}));
  EXPECT_EQ(places({2, 1}, false), (List{10, 19.5, 10, 20.5}));
}

// The last window may reach behind padding that takes pixels away: it is the mean of the pixels that it reads.
TEST(Vision, MeansOfWindowsBehindTheEnd) {
  struct Case {
    int64_t size;
    PoolAttrs pool;
    std::vector<double> want;
  };
  const auto mean = [](int64_t kernel, int64_t stride, int64_t low, int64_t high) {
    return PoolAttrs{.kind = PoolKind::mean,
                     .kernel = {kernel},
                     .stride = {stride},
                     .low = {low},
                     .high = {high},
                     .ceil_mode = true};
  };
  const Case cases[] = {{9, mean(3, 2, 1, -2), {1, 3, 5, 7}},
                        {6, mean(2, 3, 0, -3), {1.5, 4.5}},
                        {9, mean(3, 2, 1, 2), {1, 3, 5, 7, 17.0 / 3}},
                        {5, mean(3, 2, -1, -1), {3}}};
  for (const Case& c : cases)
    for (const int64_t lines : {1, 40}) {  // 40: lines side by side
      Tensor x(f32, {lines, c.size});
      for (int64_t i = 0; i < x.elements(); ++i)
        x.set_float(i, static_cast<double>(1 + i % c.size));
      const Graph g = graph_of(op::pool, {x.type()}, c.pool);
      const auto count = static_cast<int64_t>(c.want.size());
      for (const Tensor& y : {evaluate(g, Tensors{x})[0], run(g, {x}, 1)[0]}) {
        ASSERT_EQ(y.sizes(), (Ints{lines, count}));
        for (int64_t i = 0; i < y.elements(); ++i)
          EXPECT_NEAR(y.get_float(i), c.want[static_cast<size_t>(i % count)], 1e-6)
              << c.size << " pixels, window " << i;
      }
      const Tensor last = [&] {  // the same lines as channels
        Tensor t(f32, {1, c.size, lines});
        for (int64_t i = 0; i < x.elements(); ++i)
          t.set_float(i % c.size * lines + i / c.size, x.get_float(i));
        return t;
      }();
      const Graph behind = graph_of(op::pool_channels_last, {last.type()}, c.pool);
      for (const Tensor& y : {evaluate(behind, Tensors{last})[0], run(behind, {last}, 1)[0]}) {
        ASSERT_EQ(y.sizes(), (Ints{1, count, lines}));
        for (int64_t i = 0; i < y.elements(); ++i)
          EXPECT_NEAR(y.get_float(i), c.want[static_cast<size_t>(i / lines)], 1e-6)
              << c.size << " pixels, channels last, " << i;
      }
      // Each pixel's slope is the sum of what windows divide by.
      Builder b("sum");
      b.output(op::reduce_sum(b, op::pool(b, b.input("0", x.type()), c.pool), {{0, 1}}));
      const Graph slopes = grad(b.finish(), {"0"});
      const Tensor dx = evaluate(slopes, Tensors{x}).back(), on_cpu = run(slopes, {x}, 1).back();
      for (int64_t i = 0; i < c.size; ++i) {
        Tensor more = Tensor::from_bytes(f32, x.sizes(), x.raw(), x.bytes()),
               less = Tensor::from_bytes(f32, x.sizes(), x.raw(), x.bytes());
        more.set_float(i, x.get_float(i) + 0.5), less.set_float(i, x.get_float(i) - 0.5);
        double difference = 0;
        const Tensor up = evaluate(g, Tensors{more})[0], down = evaluate(g, Tensors{less})[0];
        for (int64_t k = 0; k < up.elements(); ++k)
          difference += up.get_float(k) - down.get_float(k);
        EXPECT_NEAR(dx.get_float(i), difference, 1e-5) << c.size << " pixels, " << i;
        EXPECT_NEAR(on_cpu.get_float(i), difference, 1e-5) << c.size << " pixels, " << i;
      }
    }
}

// Of the integers of no pixel the mean is 0, the sum too; of numbers it is NaN.
TEST(Vision, PoolsOfNothing) {
  for (DType d : {DType::I8, DType::I32, DType::I64, DType::U8, DType::F32, DType::F64}) {
    const Tensor x = Tensor::full(d, {3, 4}, 6);
    for (PoolKind kind : {PoolKind::mean, PoolKind::sum}) {
      const Graph g = graph_of(op::pool, {x.type()},
                               PoolAttrs{.kind = kind,
                                         .kernel = {2},
                                         .stride = {1},
                                         .low = {3},
                                         .high = {3},
                                         .count_include_pad = false});
      const Tensor want = evaluate(g, Tensors{x})[0], got = run(g, {x}, 1)[0];
      ASSERT_EQ(got.sizes(), (Ints{3, 9}));
      for (const Tensor& y : {want, got})
        for (int64_t i = 0; i < 27; ++i) {
          const int64_t pixels = std::array<int64_t, 9>{0, 0, 1, 2, 2, 2, 1, 0, 0}[i % 9];
          if (kind == PoolKind::mean && pixels == 0 && is_float(d))
            EXPECT_TRUE(std::isnan(y.get_float(i))) << to_string(d) << " " << i;
          else
            EXPECT_EQ(y.get_float(i), kind == PoolKind::sum ? 6 * pixels
                                      : pixels              ? 6
                                                            : 0)
                << to_string(d) << " " << i;
        }
    }
  }
}

}  // namespace
}  // namespace rlx
