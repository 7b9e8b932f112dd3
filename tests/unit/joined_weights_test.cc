// Parameters that a program reads joined are joined once, and again when a part is set; not in every run.
#include <gtest/gtest.h>

#include "../support/hidden_checks.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {
namespace {

constexpr DType f32 = DType::F32;

Tensor ramp(Ints sizes, double first = 0) {
  Tensor t(f32, std::move(sizes));
  for (int64_t i = 0; i < t.elements(); ++i)
    t.set_float(i, first + 0.25 * static_cast<double>(i % 37));
  return t;
}

// x @ [wq | wk transposed | wv] with the sizes of an attention's projections, on both sides of a tile.
Graph projections(bool updated, int64_t width = 70) {
  Builder b("qkv");
  const Value x = b.input("x", {f32, {5, width}});
  const Value q = b.param("q", {f32, {width, width}}), k = b.param("k", {f32, {30, width}}),
              v = b.param("v", {f32, {width, 30}});
  const std::vector<Value> parts{q, op::transpose(b, k, {.perm = {1, 0}}), v};
  b.output(op::matmul(b, x, b.emit(op::concat.def, AxisAttrs{1}, parts)[0]));
  if (updated) b.update("k", op::add(b, k, b.constant(f32, 1)));
  return b.finish();
}

NamedTensors weights(int64_t width = 70) {
  return {{"q", ramp({width, width})}, {"k", ramp({30, width}, 1)}, {"v", ramp({width, 30}, 2)}};
}

int copies(const CompiledGraph& f) {
  int count = 0;
  for (const StepTime& t : f.times()) count += t.kernel == "copy";
  return count;
}

Tensor want(const Graph& g, NamedTensors leaves) {
  leaves["x"] = ramp({5, 70}, 0.5);
  return evaluate(g, leaves).outputs[0];
}

void expect_near(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.sizes(), want.sizes());
  for (int64_t i = 0; i < got.elements(); ++i)
    ASSERT_NEAR(got.get_float(i), want.get_float(i), 1e-5 * (1 + std::fabs(want.get_float(i))))
        << i;
}

class Joined : public ::testing::TestWithParam<const char*> {
 protected:
  Joined() { register_hidden_devices(); }
};
INSTANTIATE_TEST_SUITE_P(Joined, Joined, ::testing::Values("cpu", "hidden"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Joined, OnceAndAgainWhenAPartIsSet) {
  const Graph g = projections(false);
  CompiledGraph f = Session(GetParam()).compile(g, {.threads = 2, .poison = true});
  NamedTensors w = weights();
  f.set_params(w);
  const Tensor x = ramp({5, 70}, 0.5);
  expect_near(f.run({{"x", x}}, {.profile = true})[0], want(g, w));
  EXPECT_EQ(copies(f), 0) << "parameters are joined in every run";
  for (const char* part : {"k", "q", "v"}) {
    w[part] = ramp(w[part].sizes(), 7);
    f.set_param(part, w[part]);
    expect_near(f.run({})[0], want(g, w));
  }
  w["v"] = ramp({70, 30}, -3);
  f.set_param("v", DeviceTensor::on(GetParam(), w["v"]));
  f.prepare();
  CompiledGraph c = f.clone();  // shares what was joined
  expect_near(c.run({})[0], want(g, w));
  NamedTensors other = w;
  other["q"] = ramp({70, 70}, 11);
  c.set_param("q", other["q"]);
  expect_near(c.run({})[0], want(g, other));
  expect_near(f.run({})[0], want(g, w));
}

TEST_P(Joined, WhatAnUpdateWritesIsNot) {
  const Graph g = projections(true);
  CompiledGraph f = Session(GetParam()).compile(g, {.threads = 2});
  NamedTensors w = weights();
  f.set_params(w);
  for (int run = 0; run < 3; ++run) {
    expect_near(f.run({{"x", ramp({5, 70}, 0.5)}}, {.profile = true})[0], want(g, w));
    EXPECT_EQ(copies(f), 3);
    for (int64_t i = 0; i < w["k"].elements(); ++i) w["k"].set_float(i, w["k"].get_float(i) + 1);
  }
}

int casts(const CompiledGraph& f) {
  int count = 0;
  for (const StepTime& t : f.times()) count += t.kernel.find("cast") != t.kernel.npos;
  return count;
}

// Mixed precision reads weights in bf16, which they are cast to once, and again when they are set; those that a step
// changes in every run.
TEST_P(Joined, CastWeightsAreCastOnce) {
  for (const bool updated : {false, true}) {
    Builder b("cast");
    const Value x = b.input("x", {DType::BF16, {5, 70}}), w = b.param("w", {f32, {70, 30}});
    const Value narrow = op::cast(b, w, {DType::BF16});
    b.output(op::matmul(b, x, narrow));
    b.output(narrow);
    if (updated) b.update("w", op::add(b, w, b.constant(f32, 1)));
    const Graph g = b.finish();
    CompiledGraph f = Session(GetParam()).compile(g, {.threads = 2, .poison = true});
    NamedTensors leaves{{"x", cast_tensor(ramp({5, 70}, 0.5), DType::BF16)},
                        {"w", ramp({70, 30}, 1.03)}};
    for (int run = 0; run < 3; ++run) {
      f.set_param("w", leaves["w"]);
      const Tensors got = f.run({{"x", leaves["x"]}}, {.profile = true}),
                    expected = evaluate(g, leaves).outputs;
      EXPECT_EQ(casts(f), updated ? 1 : 0);
      EXPECT_TRUE(got[1].same_bits(expected[1])) << run;
      for (int64_t i = 0; i < got[0].elements(); ++i)
        ASSERT_NEAR(got[0].get_float(i), expected[0].get_float(i),
                    0x1p-7 * std::fabs(expected[0].get_float(i)));
      leaves["w"] = ramp({70, 30}, 3.07 + run);
    }
  }
}

// What is joined of joined weights, read as it is, sliced, returned, and by a body of a branch.
TEST_P(Joined, OfJoinedOnes) {
  Builder b("nested");
  const Value p = b.param("p", {f32, {3, 4}}), q = b.param("q", {f32, {2, 4}});
  const Value inner = b.emit(op::concat.def, AxisAttrs{0}, std::vector<Value>{p, q})[0],
              c = b.constant(ramp({5, 4}, 9)),
              outer = b.emit(op::concat.def, AxisAttrs{0}, std::vector<Value>{inner, c, p})[0];
  b.output(outer);
  b.output(op::tanh(b, inner));
  b.output(op::reduce_sum(
      b, op::slice(b, outer, {.start = Shape{2, 1}, .limit = Shape{9, 3}, .stride = {}}),
      {.axes = {0}}));
  const Graph g = b.finish();
  CompiledGraph f = Session(GetParam()).compile(g, {.poison = true});
  NamedTensors w{{"p", ramp({3, 4})}, {"q", ramp({2, 4}, 5)}};
  for (int run = 0; run < 2; ++run) {
    f.set_params(w);
    const Tensors got = f.run({}), expected = evaluate(g, w).outputs;
    for (size_t i = 0; i < got.size(); ++i) expect_near(got[i], expected[i]);
    w["q"] = ramp({2, 4}, -2);
  }
}

}  // namespace
}  // namespace rlx::testing
