// Batch norms with given statistics go into the weights of the convolution before them, and what is made of weights alone is
// computed once, and again when one of them is set; not in every run.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "../support/hidden_checks.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/nn/norms.h"
#include "rlx/ops/rules.h"
#include "rlx/runtime/runtime.h"
#include "written_out.h"

namespace rlx::testing {
namespace {

constexpr DType f32 = DType::F32;

enum class Norm { op, product, quotient };

struct Options {
  Norm norm = Norm::op;
  int64_t size = 9, channels = 5;
  Dim groups = 1;
  bool bias = false, trained = false, constants = false;
};

// Two convolutions with batch norms, as in a residual block.
Graph block(const Options& o) {
  Builder b("block");
  const int64_t c = o.channels;
  std::mt19937 random(5);
  const auto weight = [&](const std::string& name, const Shape& shape, double least) {
    if (!o.constants) return b.param(name, {f32, shape});
    Tensor t(f32, shape.sizes());
    std::uniform_real_distribution<double> uniform(least, least + 1);
    for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, uniform(random));
    return b.constant(t);
  };
  const auto norm = [&](Value v, const std::string& name) {
    const Value g = weight(name + ".g", {c}, 0.5), t = weight(name + ".t", {c}, -0.5),
                mean = weight(name + ".mean", {c}, -0.5), var = weight(name + ".var", {c}, 0.5);
    if (o.norm == Norm::op) return op::batch_norm(b, {v, g, t, mean, var}, {1e-3});
    const auto beside = [&](Value w) { return op::reshape(b, w, {{1, c, 1, 1}}); };
    const Value d = op::sub(b, v, beside(mean)),
                power = op::add(b, beside(var), b.constant(f32, 1e-3));
    const Value y = o.norm == Norm::product ? op::mul(b, d, op::rsqrt(b, power))
                                            : op::div(b, d, op::sqrt(b, power));
    return op::add(b, op::mul(b, beside(g), y), beside(t));
  };
  const auto conv = [&](Value v, const std::string& name) {
    const Dim in = *b.shape(v)[1].divide(o.groups);
    Value y = op::conv(b, v, weight(name, {c, in, 3, 3}, -0.5),
                       {.low = {1, 1}, .high = {1, 1}, .groups = o.groups});
    if (o.bias) y = op::add(b, y, op::reshape(b, weight(name + ".b", {c}, -0.5), {{c, 1, 1}}));
    return y;
  };
  const Value x = b.input("x", {f32, {2, c, o.size, o.size}});
  Value h = op::relu(b, norm(conv(x, "w1"), "n1"));
  h = op::add(b, norm(conv(h, "w2"), "n2"), x);
  b.output(op::relu(b, h));
  if (o.trained) b.update("n1.g", op::add(b, b.find_leaf("n1.g"), b.constant(f32, 1)));
  return b.finish();
}

NamedTensors leaves_of(const Graph& g) {
  NamedTensors out = random_leaves(g, 3);
  for (auto& [name, t] : out)  // variances are positive
    if (name.ends_with(".var"))
      for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, 0.5 + std::fabs(t.get_float(i)));
  return out;
}

void expect_close(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.sizes(), want.sizes());
  double largest = 0;
  for (int64_t i = 0; i < want.elements(); ++i)
    largest = std::max(largest, std::fabs(want.get_float(i)));
  for (int64_t i = 0; i < got.elements(); ++i)
    ASSERT_NEAR(got.get_float(i), want.get_float(i), 5e-6 * largest) << i;
}

// How many kernels a run has besides the convolutions, copies apart.
int others(const CompiledGraph& f) {
  int count = 0;
  for (const StepTime& t : f.times())
    count += t.kernel.find("conv") == t.kernel.npos && t.kernel != "copy";
  return count;
}
int copies(const CompiledGraph& f) {
  int count = 0;
  for (const StepTime& t : f.times()) count += t.kernel == "copy";
  return count;
}

class Folded : public ::testing::TestWithParam<const char*> {
 protected:
  Folded() { register_hidden_devices(); }
};
INSTANTIATE_TEST_SUITE_P(Folded, Folded, ::testing::Values("cpu", "hidden"),
                         [](const auto& info) { return std::string(info.param); });

void expect_folded(const std::string& device, const Options& o) {
  SCOPED_TRACE(fmt::format("norm {}, size {}, channels {}, groups {}, bias {}, constants {}",
                           static_cast<int>(o.norm), o.size, o.channels, o.groups, o.bias,
                           o.constants));
  const Graph g = block(o);
  CompiledGraph f = Session(device).compile(g, {.threads = 2, .poison = true});
  NamedTensors w = leaves_of(g);
  const auto check = [&] {
    NamedTensors params = w;
    params.erase("x");
    f.set_params(params);
    expect_close(f.run({{"x", w["x"]}}, {.profile = true})[0], evaluate(g, w).outputs[0]);
    EXPECT_EQ(others(f), 2) << "only the two regions behind the convolutions are left";
    EXPECT_LE(copies(f), 2)
        << "channels are moved in front of the first convolution and behind all";
  };
  check();
  for (const char* part : {"w1", "n1.g", "n2.mean", "n2.var", "n1.t"})
    if (o.channels == 5 && w.contains(part)) {
      for (int64_t i = 0; i < w[part].elements(); ++i)
        w[part].set_float(i, 0.25 + 0.5 * w[part].get_float(i));
      f.set_param(part, w[part]);
      expect_close(f.run({{"x", w["x"]}})[0], evaluate(g, w).outputs[0]);
    }
}

TEST_P(Folded, BatchNormsGoIntoWeights) {
  for (Norm norm : {Norm::op, Norm::product, Norm::quotient})
    expect_folded(GetParam(), {.norm = norm, .size = 9});
  expect_folded(GetParam(), {.size = 35, .channels = 2});
  expect_folded(GetParam(), {.size = 5, .channels = 34});
  expect_folded(GetParam(), {.size = 9, .channels = 8, .groups = 4});
  expect_folded(GetParam(), {.norm = Norm::product, .size = 9, .bias = true});
  expect_folded(GetParam(), {.norm = Norm::op, .size = 9, .constants = true});
}

TEST_P(Folded, ClonesHaveTheirOwn) {
  const Graph g = block({});
  CompiledGraph f = Session(GetParam()).compile(g);
  NamedTensors w = leaves_of(g), other;
  NamedTensors params = w;
  params.erase("x");
  f.set_params(params);
  f.prepare();
  CompiledGraph c = f.clone();
  other = w;
  other["n1.var"] = Tensor::full(f32, {5}, 3);
  c.set_param("n1.var", other["n1.var"]);
  expect_close(c.run({{"x", w["x"]}})[0], evaluate(g, other).outputs[0]);
  expect_close(f.run({{"x", w["x"]}})[0], evaluate(g, w).outputs[0]);
}

// A norm whose scale an update writes is computed in every run, with what the last one wrote.
TEST_P(Folded, WhatAnUpdateWritesIsNot) {
  const Graph g = block({.trained = true});
  CompiledGraph f = Session(GetParam()).compile(g);
  NamedTensors w = leaves_of(g);
  NamedTensors params = w;
  params.erase("x");
  f.set_params(params);
  for (int run = 0; run < 3; ++run) {
    expect_close(f.run({{"x", w["x"]}})[0], evaluate(g, w).outputs[0]);
    for (int64_t i = 0; i < 5; ++i) w["n1.g"].set_float(i, w["n1.g"].get_float(i) + 1);
  }
}

// Of weights alone: with a reduction, of several results, of constants, of a transposed view; also where sizes are symbols.
TEST_P(Folded, SmallExpressionsOfWeights) {
  Builder b("small");
  const Dim n = Dim::symbol("n");
  const Value x = b.input("x", {f32, {n, 70}}), w = b.param("w", {f32, {130, 70}}),
              g = b.param("g", {f32, {130, 1}});
  const Value norm = op::sqrt(b, op::reduce_sum(b, op::square(b, w), {{1}, true}));
  const Value scale = op::div(b, g, norm), scaled = op::mul(b, w, scale);
  const Value y = op::matmul(b, x, scaled, {.transpose_b = true});
  b.output(op::add(b, y, op::reshape(b, op::exp(b, scale), {{130}})));
  const Graph graph = b.finish();
  CompiledGraph f = Session(GetParam()).compile(graph);
  for (int64_t size : {9, 3, 130}) {
    const Graph bound = rlx::bind(graph, {{"n", size}});
    NamedTensors leaves = random_leaves(bound, static_cast<unsigned>(size));
    f.set_param("w", leaves["w"]);
    f.set_param("g", leaves["g"]);
    const Tensor got = f.run({{"x", leaves["x"]}}, {.profile = true})[0];
    expect_close(got, evaluate(bound, leaves).outputs[0]);
    EXPECT_EQ(f.times().size(), 2u) << "a product and the region behind it";
  }
}

// What sizes decide about is not made once for all of them.
TEST_P(Folded, WhatDependsOnSizesIsNot) {
  Builder b("sized");
  const Dim n = Dim::symbol("n");
  const Value x = b.input("x", {f32, {n, 4}}), p = b.param("p", {f32, {1, 4}}),
              q = b.param("q", {f32, {1, 4}});
  const Value all = b.emit(op::concat.def, AxisAttrs{0},
                           Values{broadcast_to(b, p, {n, 4}), broadcast_to(b, q, {n, 4})})[0];
  b.output(op::matmul(b, x, all, {.transpose_b = true}));
  b.output(op::mul(b, x, op::mul(b, p, dim_value(b, n, f32))));
  const Graph graph = b.finish();
  CompiledGraph f = Session(GetParam()).compile(graph);
  NamedTensors leaves = random_leaves(rlx::bind(graph, {{"n", 1}}), 1);
  f.set_param("p", leaves["p"]);
  f.set_param("q", leaves["q"]);
  for (int64_t size : {2, 130, 9}) {
    const Graph bound = rlx::bind(graph, {{"n", size}});
    leaves["x"] = random_leaves(bound, 2)["x"];
    const Tensors got = f.run({{"x", leaves["x"]}}, {.profile = true}),
                  want = evaluate(bound, leaves).outputs;
    for (size_t i = 0; i < want.size(); ++i) expect_close(got[i], want[i]);
    EXPECT_EQ(copies(f), 2) << "the parts of a weight of ?n rows are copied in the run";
  }
}

}  // namespace
}  // namespace rlx::testing
