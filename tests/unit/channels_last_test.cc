// Convolutional networks with channels last: the values that the program says, whatever is around the convolutions, for any
// number of threads, for sizes that are symbols, on a device whose memory the host cannot touch; weights permuted once.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "../support/hidden_checks.h"
#include "../support/lowered.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/image/pool.h"
#include "rlx/ops/image/resize.h"
#include "rlx/ops/rules.h"
#include "rlx/passes/fuse_regions.h"
#include "rlx/passes/passes.h"
#include "rlx/runtime/runtime.h"
#include "written_out.h"

namespace rlx::testing {
namespace {

constexpr DType f32 = DType::F32;

// Draws networks: convolutions of every kind with what stands around them, over 1 to 3 axes.
class Net {
 public:
  explicit Net(uint64_t seed) : random_(seed), b_("net") {}

  Graph graph(int steps, const Shape& spatial) {
    axes_ = spatial.size();
    Shape shape{upto(2) + 1, 1 + upto(20)};
    shape.insert(shape.end(), spatial.begin(), spatial.end());
    x_ = b_.input("x", {f32, shape});
    x_ = conv(x_, 8 + upto(20), 3);
    for (int i = 0; i < steps; ++i) step();
    b_.output(x_);
    if (upto(2)) b_.output(op::global_avg_pool(b_, x_));
    return b_.finish();
  }

 private:
  int64_t upto(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  int64_t channels() const { return b_.shape(x_)[1].value(); }
  Ints all(int64_t v) const { return Ints(axes_, v); }

  Value weight(const Shape& shape) { return b_.param(fmt::format("w{}", next_++), {f32, shape}); }

  Value conv(Value x, int64_t out, int64_t kernel, int64_t stride = 1, int64_t groups = 1) {
    const int64_t in = b_.shape(x)[1].value();
    Shape w{out, in / groups};
    w.insert(w.end(), axes_, Dim(kernel));
    ConvAttrs a{.stride = all(stride), .low = all(kernel / 2), .high = all(kernel / 2)};
    if (kernel > 1 && upto(4) == 0) a.dilation = all(2), a.low = a.high = all(kernel - 1);
    a.groups = groups;
    return op::conv(b_, x, weight(w), a);
  }

  Value by_channel(Value x) {
    Shape shape(axes_ + 1, Dim(1));
    shape[0] = b_.shape(x)[1];
    if (upto(2)) shape.insert(shape.begin(), Dim(1));
    return weight(shape);
  }

  void step() {
    const Value was = x_;
    switch (upto(12)) {
      case 0:
        x_ = conv(x_, 8 + upto(30), 1);
        x_ = op::relu(b_, op::add(b_, x_, by_channel(x_)));
        break;
      case 1:
        x_ = op::add(b_, x_, op::tanh(b_, conv(x_, channels(), 3)));
        break;
      case 2:
        x_ = conv(x_, 9 + upto(30), 3, 2);
        break;
      case 3:
        x_ = op::sigmoid(b_, conv(x_, channels(), upto(2) ? 3 : 5, 1 + upto(2), channels()));
        break;
      case 4: {
        const auto kind = static_cast<PoolKind>(upto(4));
        x_ = op::pool(b_, x_,
                      {kind, all(2 + upto(2)), all(1 + upto(2)), all(1), all(1), all(upto(2))});
        break;
      }
      case 5:
        x_ = op::concat(b_, {x_, op::tanh(b_, x_)}, {1});
        break;
      case 6: {
        const Value gate = op::sigmoid(b_, conv(op::global_avg_pool(b_, x_), channels(), 1));
        x_ = op::mul(b_, x_, gate);
        break;
      }
      case 7: {
        PadAttrs pad{Shape(axes_ + 2, Dim(0)), Shape(axes_ + 2, Dim(1))};
        pad.high[0] = 0;
        x_ = op::pad(b_, x_, b_.constant(f32, 0.25), pad);
        break;
      }
      case 8: {
        ResizeAttrs r{.mode = upto(2) ? ResizeMode::nearest : ResizeMode::linear};
        for (size_t a = 0; a < axes_; ++a)
          r.axes.push_back(static_cast<int64_t>(a) + 2), r.scales.push_back(2);
        x_ = op::resize(b_, x_, r);
        break;
      }
      case 9: {
        Shape w{channels(), 8 + upto(9)};
        const int64_t kernel = 1 + upto(3);
        w.insert(w.end(), axes_, Dim(kernel));
        ConvTransposeAttrs t;
        t.stride = all(1 + upto(2) * (kernel - 1));
        x_ = op::conv_transpose(b_, x_, weight(w), t);
        break;
      }
      case 10:
        x_ = op::reverse(b_, op::mul(b_, x_, by_channel(x_)), {{2}});
        break;
      default: {  // half of the channels
        Shape start(axes_ + 2, Dim(0)), limit = b_.shape(x_);
        start[1] = channels() / 2;
        x_ = op::relu(b_, op::slice(b_, x_, {start, limit, {}}));
        x_ = conv(x_, 8 + upto(16), 3);
      }
    }
    if (b_.shape(x_).elements().static_value().value_or(0) > 60000) x_ = was;
  }

  std::mt19937_64 random_;
  Builder b_;
  Value x_;
  size_t axes_ = 2;
  int next_ = 0;
};

NamedTensors leaves_of(const Graph& g) {
  NamedTensors out = random_leaves(g, 3);
  for (auto& [name, t] : out)
    if (name != "x")
      for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, 0.3 * t.get_float(i));
  return out;
}

CompiledGraph compiled(const Graph& g, const NamedTensors& leaves, const CompileOptions& options,
                       const std::string& device = "cpu") {
  CompiledGraph f = Session(device).compile(g, options);
  for (const auto& [name, t] : leaves)
    if (name != "x") f.set_param(name, t);
  return f;
}

int count(const Graph& g, const OpDef* op) {
  int n = 0;
  for (const Node& node : g.nodes) n += node.op == op;
  return n;
}

void expect_close(const Tensors& got, const Tensors& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(got[k].sizes(), want[k].sizes());
    double largest = 0;
    for (int64_t i = 0; i < want[k].elements(); ++i)
      largest = std::max(largest, std::fabs(want[k].get_float(i)));
    for (int64_t i = 0; i < want[k].elements(); ++i)
      ASSERT_NEAR(got[k].get_float(i), want[k].get_float(i), 1e-4 * largest) << k << ": " << i;
  }
}

void expect_same_bits(const Tensors& got, const Tensors& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t k = 0; k < got.size(); ++k)
    for (int64_t i = 0; i < want[k].elements(); ++i)
      ASSERT_EQ(got[k].get_float(i), want[k].get_float(i)) << k << ": " << i;
}

Shape some_spatial(uint64_t seed) {
  if (seed % 4 == 0) return {Dim(40)};
  if (seed % 4 == 1) return {Dim(5), Dim(6), Dim(7)};
  return {Dim(13), Dim(10)};
}

TEST(ChannelsLast, RandomNetworks) {
  int converted = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const Graph g = Net(seed).graph(6, some_spatial(seed));
    const NamedTensors leaves = leaves_of(g);
    const Graph fused = lower_for_cpu(g).fused;
    converted += count(fused, &op::conv_channels_last) + count(fused, &op::pool_channels_last);
    CompiledGraph f = compiled(g, leaves, {.threads = 2, .poison = true});
    const Tensors got = f.run({{"x", leaves.at("x")}});
    expect_close(got, evaluate(g, leaves).outputs);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(converted, 70);
}

TEST(ChannelsLast, BitsForAnyNumberOfThreads) {
  for (uint64_t seed = 100; seed < 106; ++seed) {
    SCOPED_TRACE(seed);
    const Graph g = Net(seed).graph(6, some_spatial(seed));
    const NamedTensors leaves = leaves_of(g);
    const Tensors one = compiled(g, leaves, {.threads = 1}).run({{"x", leaves.at("x")}});
    for (int threads : {2, 3, 7})
      expect_same_bits(compiled(g, leaves, {.threads = threads}).run({{"x", leaves.at("x")}}), one);
  }
}

TEST(ChannelsLast, HiddenMemory) {
  register_hidden_devices();
  for (uint64_t seed = 200; seed < 206; ++seed) {
    SCOPED_TRACE(seed);
    const Graph g = Net(seed).graph(6, some_spatial(seed));
    EXPECT_EQ(differs_on_hidden(g, leaves_of(g)), "");
  }
}

// Weights that may change are packed by a step of their own: the bits of those that are packed once.
TEST(ChannelsLast, WeightsThatMayChange) {
  const auto net = [](bool may_change) {
    Builder b("net");
    const Value x = b.input("x", {f32, {2, 8, 9, 7}});
    const Type w{f32, {40, 8, 3, 3}};
    b.output(op::conv(b, x, may_change ? b.input("w", w) : b.param("w", w),
                      {.low = {1, 1}, .high = {1, 1}}));
    return b.finish();
  };
  const auto packing_steps = [](const Graph& g) {
    int64_t steps = 0;
    for (const Step& s : lower_for_cpu(g).program.steps)
      steps += s.kernel && s.kernel->name() == "conv_channels_last (packing)";
    return steps;
  };
  const Graph changing = net(true), fixed = net(false);
  EXPECT_EQ(packing_steps(fixed), 0);
  EXPECT_EQ(packing_steps(changing), 1);
  for (int threads : {1, 3}) {
    CompiledGraph f = compiled(changing, {}, {.threads = threads, .poison = true});
    for (uint64_t seed : {1, 2}) {
      const NamedTensors leaves = random_leaves(changing, seed);
      const Tensors got = f.run(leaves);
      expect_same_bits(got, compiled(fixed, leaves, {}).run({{"x", leaves.at("x")}}));
      expect_close(got, evaluate(changing, leaves).outputs);
    }
  }
}

// Resizing between convolutions moves no channels.
TEST(ChannelsLast, ResizingFollows) {
  for (const ResizeMode mode : {ResizeMode::nearest, ResizeMode::linear, ResizeMode::cubic}) {
    Builder b("net");
    const auto conv = [&](Value x, const std::string& name) {
      const int64_t in = b.shape(x)[1].value();
      return op::conv(b, x, b.param(name, {f32, {16, in, 3, 3}}), {.low = {1, 1}, .high = {1, 1}});
    };
    Value y = conv(b.input("x", {f32, {2, 16, 9, 7}}), "w0");
    y = op::resize(b, y, {.mode = mode, .axes = {3, 2}, .sizes = {15, 20}});
    b.output(conv(y, "w1"));
    const Graph g = b.finish();
    int64_t copies = 0;
    for (const Step& s : lower_for_cpu(g).program.steps)
      copies += s.kernel && s.kernel->name() == "copy";
    EXPECT_EQ(copies, 2);  // the edges
    const NamedTensors leaves = leaves_of(g);
    expect_close(compiled(g, leaves, {.threads = 2, .poison = true}).run({{"x", leaves.at("x")}}),
                 evaluate(g, leaves).outputs);
  }
}

// What stands between two convolutions, with other numbers for every axis, so that one in another's place shows.
TEST(ChannelsLast, WhatFollowsHasItsOwnAxes) {
  using Step = std::function<Value(Builder&, Value)>;
  const auto weight = [](Builder& b, const char* name, Ints sizes) {
    return b.param(name, {f32, Shape(sizes.begin(), sizes.end())});
  };
  const std::pair<const char*, Step> steps[] = {
      {"padded",
       [](Builder& b, Value x) {
         return op::pad(b, x, b.constant(f32, 0.5), {{1, 3, 0, 2}, {0, 2, 1, 4}});
       }},
      {"cropped",
       [](Builder& b, Value x) {
         return op::pad(b, x, b.constant(f32, 0.5), {{0, -2, 1, -1}, {1, 1, -2, 0}});
       }},
      {"sliced",
       [](Builder& b, Value x) {
         return op::slice(b, x, {{1, 2, 3, 0}, {2, 12, 9, 6}, {1, 2, 1, 3}});
       }},
      {"reversed", [](Builder& b, Value x) { return op::reverse(b, x, {{1, 3}}); }},
      {"gathered",
       [](Builder& b, Value x) {
         return op::gather(b, x, b.constant(Tensor::from<int64_t>({4}, {6, 0, 3, 3})), {.axis = 3});
       }},
      {"concatenated", [](Builder& b, Value x) { return op::concat(b, {x, x}, {.axis = 2}); }},
      {"reduced",
       [](Builder& b, Value x) { return op::reduce_max(b, x, {.axes = {3}, .keepdims = true}); }},
      {"reduced over channels",
       [](Builder& b, Value x) {
         return op::mul(b, x, op::reduce_mean(b, x, {.axes = {1}, .keepdims = true}));
       }},
      {"pooled",
       [](Builder& b, Value x) {
         return op::pool(b, x,
                         {.kind = PoolKind::mean,
                          .kernel = {3, 2},
                          .stride = {1, 2},
                          .low = {2, 0},
                          .high = {0, 1}});
       }},
      {"by channels and by rows",
       [](Builder& b, Value x) {
         Tensor rows(f32, {9, 1});
         for (int64_t i = 0; i < 9; ++i) rows.set_float(i, 0.25 * static_cast<double>(i));
         return op::add(b, x, b.constant(rows));
       }},
      {"every second pixel of one tap",
       [&](Builder& b, Value x) {
         return op::conv(b, x, weight(b, "v", {24, 16, 1, 1}), {.stride = {1, 2}});
       }},
      {"one tap, padded",
       [&](Builder& b, Value x) {
         return op::conv(b, x, weight(b, "v", {24, 16, 1, 1}), {.low = {0, 2}, .high = {1, 0}});
       }},
      {"one tap in groups",
       [&](Builder& b, Value x) {
         return op::conv(b, x, weight(b, "v", {32, 8, 1, 1}), {.groups = 2});
       }},
  };
  for (const auto& [what, step] : steps) {
    SCOPED_TRACE(what);
    Builder b("net");
    Value y = op::conv(b, b.input("x", {f32, {2, 16, 9, 7}}), weight(b, "w0", {16, 16, 3, 3}),
                       {.low = {1, 1}, .high = {1, 1}});
    y = step(b, y);
    const int64_t channels = b.shape(y)[1].value();
    b.output(op::conv(b, y, weight(b, "w1", {16, channels, 1, 1}), {}));
    const Graph g = b.finish();
    const Graph fused = lower_for_cpu(g).fused;
    EXPECT_EQ(count(fused, &op::conv), 0);
    const NamedTensors leaves = leaves_of(g);
    expect_close(compiled(g, leaves, {.threads = 2, .poison = true}).run({{"x", leaves.at("x")}}),
                 evaluate(g, leaves).outputs);
    if (HasFatalFailure()) return;
  }
}

// One program for all heights and widths.
TEST(ChannelsLast, SizesThatAreSymbols) {
  Builder b("net");
  const Value x = b.input("x", {f32, {Dim::symbol("n"), 3, Dim::symbol("h"), Dim::symbol("w")}});
  const auto weight = [&](const std::string& name, const Shape& shape) {
    return b.param(name, {f32, shape});
  };
  Value y = op::relu(b, op::conv(b, x, weight("w0", {16, 3, 3, 3}),
                                 {.stride = {2, 2}, .low = {1, 1}, .high = {1, 1}}));
  y = op::add(b, op::conv(b, y, weight("w1", {40, 16, 1, 1})), weight("b1", {40, 1, 1}));
  const Value z = op::relu(b, op::conv(b, y, weight("w2", {40, 1, 3, 3}),
                                       {.low = {1, 1}, .high = {1, 1}, .groups = 40}));
  y = op::add(b, y, z);
  y = op::pool(b, y, {.kernel = {2, 2}, .stride = {2, 2}});
  b.output(op::conv_transpose(b, y, weight("w3", {40, 9, 2, 2}), {{.stride = {2, 2}}, {}}));
  b.output(op::global_avg_pool(b, y));
  const Graph g = b.finish();
  NamedTensors leaves = random_leaves(bind(g, {{"n", 1}, {"h", 8}, {"w", 8}}), 4);
  CompiledGraph any = compiled(g, leaves, {.threads = 2, .poison = true});
  for (const auto& [n, h, w] : {std::array<int64_t, 3>{1, 8, 8}, {2, 30, 17}, {1, 64, 5}}) {
    SCOPED_TRACE(fmt::format("{} of {}x{}", n, h, w));
    const Graph at = bind(g, {{"n", n}, {"h", h}, {"w", w}});
    leaves["x"] = random_leaves(at, 5).at("x");
    const Tensors got = any.run({{"x", leaves["x"]}});
    expect_same_bits(got, compiled(at, leaves, {.threads = 2}).run({{"x", leaves["x"]}}));
    expect_close(got, evaluate(at, leaves).outputs);
  }
}

// A residual block of a network: no step moves channels but at its edges, and the sums, biases and activations run with the
// products tile by tile.
TEST(ChannelsLast, StepsOfAResidualBlock) {
  Builder b("block");
  const Value x = b.input("x", {f32, {1, 64, 56, 56}});
  const auto layer = [&](Value v, const std::string& name, int64_t out, int64_t k) {
    const int64_t in = b.shape(v)[1].value();
    const Value y = op::conv(b, v, b.param(name, {f32, {out, in, k, k}}),
                             {.low = {k / 2, k / 2}, .high = {k / 2, k / 2}});
    return op::add(b, y, b.param(name + ".b", {f32, {out, 1, 1}}));
  };
  Value y = op::relu(b, layer(x, "w1", 64, 1));
  y = op::relu(b, layer(y, "w2", 64, 3));
  y = op::relu(b, op::add(b, layer(y, "w3", 256, 1), layer(x, "w4", 256, 1)));
  y = op::relu(b, layer(y, "w5", 64, 1));
  b.output(op::reduce_sum(b, y, {{2, 3}}));
  const Program p = lower_for_cpu(b.finish()).program;
  int copies = 0, chained = 0;
  for (const Step& s : p.steps) copies += s.kernel->name() == "copy";
  for (const Chain& c : p.chains) chained += c.end - c.begin > 1;
  EXPECT_LE(copies, 1) << to_string(p);  // of x
  EXPECT_GE(chained, 3) << to_string(p);
  EXPECT_EQ(p.packed.size(), 5U);
  for (const JoinedWeight& j : p.joined)
    EXPECT_TRUE(j.label.empty()) << j.label;  // views are packed as they lie
}

// What is copied of a weight is copied once, and again when it is set.
TEST(ChannelsLast, WeightsThatAreSetAgain) {
  Builder b("net");
  const Value x = b.input("x", {f32, {1, 16, 6, 6}});
  Value y = op::conv(b, x, b.param("w", {f32, {24, 16, 3, 3}}), {.low = {1, 1}, .high = {1, 1}});
  y = op::conv_transpose(b, y, b.param("u", {f32, {24, 12, 2, 2}}), {{.stride = {2, 2}}, {}});
  b.output(y);
  const Graph g = b.finish();
  const Program p = lower_for_cpu(g).program;
  EXPECT_EQ(p.joined.size(), 1U) << to_string(p);
  NamedTensors leaves = leaves_of(g);
  CompiledGraph f = compiled(g, leaves, {.threads = 2});
  expect_close(f.run({{"x", leaves["x"]}}), evaluate(g, leaves).outputs);
  leaves["u"] = random_leaves(g, 77).at("u");
  f.set_param("u", leaves["u"]);
  expect_close(f.run({{"x", leaves["x"]}}), evaluate(g, leaves).outputs);
  leaves["w"] = random_leaves(g, 78).at("w");
  f.set_param("w", leaves["w"]);
  expect_close(f.run({{"x", leaves["x"]}}), evaluate(g, leaves).outputs);
}

// The report says why a convolution stays as it is.
TEST(ChannelsLast, Refusals) {
  Builder b("net");
  const Value x = b.input("x", {f32, {1, 4, 6, 6}});
  b.output(op::conv(b, x, b.param("w", {f32, {4, 4, 3, 3}})));
  FusionReport report;
  run_passes(b.finish(), {pass::channels_last}, {.fusion = &report});
  ASSERT_EQ(report.refusals.size(), 1U);
  EXPECT_EQ(report.refusals[0].producer, "conv by w");
  EXPECT_EQ(report.refusals[0].why,
            "channels stay first: a group has 4 results a pixel, fewer than 8");
}

}  // namespace
}  // namespace rlx::testing
