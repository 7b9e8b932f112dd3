// What is written out is recognised before it is differentiated: the training step of a layer in primitives is that of the layer
// with the ops that they mean, and its gradients are those of the primitives.
#include <gtest/gtest.h>

#include <cmath>

#include "rlx/passes/passes.h"
#include "rlx/runtime/runtime.h"
#include "rlx/train/train_step.h"
#include "rlx/transform/transform.h"
#include "written_out.h"

namespace rlx::testing {
namespace {

std::vector<std::string> param_names(const Graph& g) {
  std::vector<std::string> out;
  for (Value v : g.params()) out.push_back(g.node(v).get<LeafAttrs>().name);
  return out;
}

NamedTensors params_of(const Graph& g, const NamedTensors& leaves) {
  NamedTensors out;
  for (const std::string& name : param_names(g)) out[name] = leaves.at(name);
  return out;
}

Tensors run_on_cpu(const Graph& g, const NamedTensors& leaves) {
  CompiledGraph f = Session("cpu").compile(g);
  NamedTensors inputs;
  for (Value v : g.inputs()) {
    const std::string& name = g.node(v).get<LeafAttrs>().name;
    inputs[name] = leaves.at(name);
  }
  f.set_params(params_of(g, leaves));
  return f.run(inputs);
}

void expect_near(const Tensor& got, const Tensor& want, double tolerance) {
  ASSERT_EQ(got.sizes(), want.sizes());
  double largest = 0;
  for (int64_t i = 0; i < want.elements(); ++i)
    largest = std::max(largest, std::fabs(want.get_float(i)));
  for (int64_t i = 0; i < want.elements(); ++i)
    ASSERT_NEAR(got.get_float(i), want.get_float(i), tolerance * (1e-2 + largest)) << i;
}

TEST(RecogniseTraining, StepsAreThoseOfTheOps) {
  for (int64_t length : {9, 70}) {
    SCOPED_TRACE(fmt::format("length {}", length));
    const Graph plain = Writer(true, length).language_loss(),
                named = Writer(false, length).language_loss();
    const NamedTensors params = params_of(plain, random_leaves(plain, 7));
    const TrainOptions options{.clip_norm = 1, .params = {}};
    const Graph a = train_step(plain, params, options).graph,
                b = train_step(named, params, options).graph;
    for (Stage stage : {Stage::lower, Stage::kernel})
      EXPECT_EQ(stage_of(a, stage), stage_of(b, stage));
    EXPECT_NE(stage_text(a, Stage::lower).find("attention_backward"), std::string::npos);
  }
}

TEST(RecogniseTraining, GradientsAreThoseOfThePrimitives) {
  for (int64_t length : {9, 70, 130}) {
    SCOPED_TRACE(fmt::format("length {}", length));
    const Graph plain = Writer(true, length).language_loss();
    const NamedTensors leaves = random_leaves(plain, 11);
    const std::vector<std::string> wrt = param_names(plain);
    const Tensors want = run_on_cpu(value_and_grad(plain, wrt), leaves),
                  got = run_on_cpu(value_and_grad(recognised(plain), wrt), leaves);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      SCOPED_TRACE(i == 0 ? "loss" : wrt[i - 1]);
      expect_near(got[i], want[i], 2e-5);
    }
  }
}

// Forward mode and second derivatives of the ops that were recognised.
TEST(RecogniseTraining, OtherDerivativesAreThoseOfThePrimitives) {
  const Graph plain = Writer(true, 9).language_loss(), found = recognised(plain);
  const std::vector<std::string> wrt{"q.w", "up.w", "n1.g"};
  const auto both = [&](auto transform) {
    const Graph a = transform(plain), b = transform(found);
    const NamedTensors leaves = random_leaves(a, 3);  // and directions
    const Tensors want = evaluate(a, leaves).outputs, got = evaluate(b, leaves).outputs;
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) expect_near(got[i], want[i], 5e-5);
  };
  both([&](const Graph& g) { return jvp(g, wrt); });
  both([&](const Graph& g) { return hvp(g, wrt); });
}

// Leaves, outputs and updates stay, and a program in which nothing is written out is not touched.
TEST(RecogniseTraining, NothingElseChanges) {
  const Graph named = Writer(false, 9).language_loss();
  EXPECT_EQ(recognised(named), named);
  Builder b("unread");
  const Value x = b.input("x", {DType::F32, {4}}), unread = b.param("unread", {DType::F32, {2}}),
              w = b.param("w", {DType::F32, {4}});
  const Value y = op::mul(b, x, w);
  b.output(op::reduce_sum(b, op::mul(b, y, op::sigmoid(b, y)), {{0}}));
  b.update("w", y);
  const Graph g = b.finish(), found = recognised(g);
  EXPECT_NE(found, g);
  EXPECT_EQ(param_names(found), param_names(g));
  EXPECT_EQ(found.outputs.size(), 1u);
  EXPECT_EQ(found.updates.size(), 1u);
  EXPECT_TRUE(unread.valid());
}

// What nearly matched says why not.
TEST(RecogniseReport, SaysWhatWasMissedAndWhy) {
  Builder b("report");
  const Type t{DType::F32, {2, 3, 5, 4}};
  const Value q = b.input("q", t), k = b.input("k", t), v = b.input("v", t),
              m = b.input("mask", {DType::Bool, {5, 5}});
  const Value scores = op::matmul(b, q, k, {.transpose_b = true});
  const Value hidden = op::select(b, m, scores, b.constant(DType::F32, -INFINITY));
  const Value y = op::matmul(b, op::softmax(b, hidden, {3}), v);
  b.output(op::mul(b, y, op::sigmoid(b, y)));
  const CompiledGraph f = Session("cpu").compile(b.finish());
  const std::string& report = f.info().recognition_report;
  EXPECT_NE(report.find("recognised: 1 silu"), std::string::npos) << report;
  EXPECT_NE(report.find("matmul is no attention: a mask that selects -inf might hide all keys of a "
                        "query"),
            std::string::npos)
      << report;
}

TEST(RecogniseReport, IsEmptyWhereEverythingWasFound) {
  for (auto layer : {&Writer::encoder, &Writer::decoder, &Writer::llama, &Writer::language_loss}) {
    const CompiledGraph f = Session("cpu").compile((Writer(true, 9).*layer)());
    const std::string& report = f.info().recognition_report;
    EXPECT_EQ(report.find(" is no "), std::string::npos) << report;
    EXPECT_EQ(report.find("nothing"), std::string::npos) << report;
  }
}

}  // namespace
}  // namespace rlx::testing
