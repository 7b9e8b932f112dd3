// Where lowering puts new values of parameters: in place, in place for one and copied for another,
// swapped.
#include <gtest/gtest.h>

#include <cmath>

#include "../support/error_bound.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/passes/fuse_regions.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/vmap.h"

namespace rlx {
namespace {

// ---- updates: where lowering puts new values of parameters

void expect_like_reference(const Graph& g, const NamedTensors& leaves) {
  const Evaluated expected = evaluate(g, leaves);
  CompiledGraph f = Session("cpu").compile(g, {.threads = 1, .poison = true});
  NamedTensors inputs;
  for (const auto& [name, t] : leaves)
    if (g.node(g.find_leaf(name)).op == &op::param)
      f.set_param(name, t);
    else
      inputs[name] = t;
  const Tensors outputs = f.run(inputs);
  for (size_t i = 0; i < outputs.size(); ++i)
    EXPECT_TRUE(outputs[i].same_bits(expected.outputs[i])) << "output " << i;
  for (const auto& [name, t] : expected.updates) EXPECT_TRUE(f.param(name).same_bits(t)) << name;
}

const Tensor kX = Tensor::from<float>({2, 3}, {1, 2, 3, 4, 5, 6});
const Tensor kA = Tensor::from<float>({2, 3}, {9, 8, 7, 6, 5, 4});
const Tensor kB = Tensor::from<float>({3}, {-1, -2, -3});

TEST(Updates, PartOfAValueThatIsWrittenInPlace) {
  Builder b("part");
  const Value x = b.input("x", {DType::F32, {2, 3}}), a = b.param("a", {DType::F32, {2, 3}});
  b.param("b", {DType::F32, {3}});
  const Value sum = op::add(b, x, a);
  b.update("a", sum);
  b.update("b", op::reshape(b, op::slice(b, sum, {{1, 0}, {2, 3}, {}}), {{3}}));
  expect_like_reference(b.finish(), {{"x", kX}, {"a", kA}, {"b", kB}});
}

TEST(Updates, OneValueForTwoParametersAndAnOutput) {
  Builder b("twice");
  const Value x = b.input("x", {DType::F32, {2, 3}}), a = b.param("a", {DType::F32, {2, 3}});
  b.param("c", {DType::F32, {2, 3}});
  const Value sum = op::add(b, x, a);
  b.update("c", sum);
  b.update("a", sum);
  b.output(sum);
  b.output(a);
  expect_like_reference(b.finish(), {{"x", kX}, {"a", kA}, {"c", kX}});
}

TEST(Updates, Swap) {
  Builder b("swap");
  const Value a = b.param("a", {DType::F32, {2, 3}}), c = b.param("c", {DType::F32, {2, 3}});
  b.update("a", c);
  b.update("c", a);
  b.output(op::sub(b, a, c));
  expect_like_reference(b.finish(), {{"a", kA}, {"c", kX}});
}

// ---- fusion

TEST(Fusion, LeavesDeadNodesOut) {
  Builder b("dead");
  const Value x = b.input("x", {DType::F32, {4}});
  op::exp(b, x);
  b.output(op::neg(b, x));
  const Graph g = fuse_regions(b.finish());
  EXPECT_EQ(g.size(), 2);
}

// ---- values

// Where exp(-x) overflows, the result is still a number.
TEST(Sigmoid, KeepsSmallResults) {
  Builder b("small");
  const Value x = b.input("x", {DType::F32, {4}});
  b.output(op::sigmoid(b, x));
  b.output(op::silu(b, x));
  CompiledGraph f = Session("cpu").compile(b.finish(), {.threads = 1});
  const Tensors out = f.run({{"x", Tensor::from<float>({4}, {-87, -89, -95, 89})}});
  for (int64_t i = 0; i < 3; ++i) {
    const double v = i == 0 ? -87 : i == 1 ? -89 : -95;
    EXPECT_NEAR(out[0].get_float(i), std::exp(v), 1e-6 * std::exp(v) + 2e-45);
    EXPECT_NEAR(out[1].get_float(i), v * std::exp(v), 1e-6 * -v * std::exp(v) + 2e-43);
  }
  EXPECT_EQ(out[0].get_float(3), 1);
}

TEST(Bounds, SumThatHappensToBeOneOfItsTerms) {
  // 0.41 + 0.18 - 0.41: an order of additions loses a unit of the second, so that no result may be called exact.
  Builder b("sum");
  const Value x = b.input("x", {DType::F32, {3, 2}});
  b.output(op::reduce_sum(b, x, {{0}}));
  b.output(op::reduce_max(b, x, {{0}}));
  const NamedTensors leaves{
      {"x", Tensor::from<float>({3, 2}, {0.41184467f, 1, 0.17938402f, 0, -0.41184467f, 0})}};
  const testing::BoundedRun run = testing::evaluate_bounded(b.finish(), leaves, 1);
  EXPECT_FALSE(run.outputs[0].exact());
  EXPECT_TRUE(run.outputs[1].exact());
  EXPECT_EQ(run.outputs[0].mismatch(Tensor::from<float>({2}, {0.17938405f, 1})), "");
  EXPECT_NE(run.outputs[0].mismatch(Tensor::from<float>({2}, {0.1795f, 1})), "");
  EXPECT_NE(run.outputs[0].mismatch(Tensor::from<float>({2}, {0.17938402f, 1.001f})), "");
}

// Per-sample scales: computed in f32 and rounded once, as without vmap.
// silu and product stay in f32 on the CPU; each rounded to f16, the sum, which cancels, is three units elsewhere.
TEST(Bounds, ChainsThatStayWide) {
  Builder b("chain");
  const Value x = b.input("x", {DType::F16, {1, 9}});
  const auto weights = Tensor::from<float>(
      {1, 9}, {0.5732421875F, 0.900390625F, 1.6845703125F, 1.4033203125F, 0.43701171875F,
               -0.54150390625F, 0.3916015625F, -0.93994140625F, -1.259765625F});
  const Value y = op::mul(b, op::silu(b, x), b.constant(cast_tensor(weights, DType::F16)));
  b.output(op::reduce_mean(b, y, {{0, 1}}));
  const Graph g = b.finish();
  bool differs = false;
  for (double v : {3.056640625, 2.71875, 1.443359375, 0.7431640625, 5.3125}) {
    const NamedTensors leaves{{"x", Tensor::full(DType::F16, {1, 9}, v)}};
    const Tensor got = Session("cpu").compile(g).run(leaves)[0];
    EXPECT_EQ(testing::evaluate_bounded(g, leaves, 1, 100, true).outputs[0].mismatch(got), "") << v;
    differs |= !got.same_bits(evaluate(g, leaves).outputs[0]);
    Tensor wrong = Tensor::full(DType::F16, {}, got.get_float(0) * 1.05);
    EXPECT_NE(testing::evaluate_bounded(g, leaves, 1, 100, true).outputs[0].mismatch(wrong), "");
  }
  EXPECT_TRUE(differs) << "nothing stayed wide: the bound needs it no more";
}

TEST(Vmap, NormsRoundOnce) {
  Builder b("norm");
  const Value x = b.input("x", {DType::F16, {2, 4}}), gamma = b.input("gamma", {DType::F16, {4}}),
              beta = b.input("beta", {DType::F16, {4}});
  b.output(op::layer_norm(b, x, gamma, beta));
  const Graph one = b.finish(), many = vmap(one, {{"gamma", 0}, {"beta", 0}}, 1);
  Tensor xs(DType::F16, {2, 4}), scale(DType::F16, {4}), shift(DType::F16, {4});
  for (int64_t i = 0; i < 8; ++i) xs.set_float(i, 0.37 * static_cast<double>(i * i % 7) - 0.9);
  for (int64_t i = 0; i < 4; ++i) scale.set_float(i, 1.71), shift.set_float(i, 1.71);
  const Tensor expected = evaluate(one, {{"x", xs}, {"gamma", scale}, {"beta", shift}}).outputs[0];
  const Tensor got =
      evaluate(many,
               {{"x", xs}, {"gamma", scale.reshaped({1, 4})}, {"beta", shift.reshaped({1, 4})}})
          .outputs[0];
  EXPECT_TRUE(got.reshaped({2, 4}).same_bits(expected));
}

}  // namespace
}  // namespace rlx
