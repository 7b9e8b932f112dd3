// Layers of models that are written out in primitives, as exporters write them, become the programs that they are with the
// ops that they mean, and have their values.
#include <gtest/gtest.h>

#include <cmath>

#include "rlx/runtime/runtime.h"
#include "written_out.h"

namespace rlx::testing {
namespace {

using Layer = Graph (Writer::*)();

void expect_recognised(Layer layer) {
  for (int64_t length : {9, 70, 130}) {
    SCOPED_TRACE(fmt::format("length {}", length));
    const Graph plain = (Writer(true, length).*layer)(), named = (Writer(false, length).*layer)();
    for (Stage stage : {Stage::lower, Stage::plan, Stage::kernel})
      EXPECT_EQ(stage_of(plain, stage), stage_of(named, stage));
    const NamedTensors leaves = random_leaves(plain, 7);
    const Tensor want = evaluate(plain, leaves).outputs[0];
    CompiledGraph f = Session("cpu").compile(plain);
    NamedTensors inputs;
    for (const auto& [name, value] : leaves)
      if (plain.node(plain.find_leaf(name)).op == &op::input)
        inputs[name] = value;
      else
        f.set_param(name, value);
    const Tensor got = f.run(inputs)[0];
    for (int64_t i = 0; i < want.elements(); ++i)
      ASSERT_NEAR(got.get_float(i), want.get_float(i), 2e-5 * (1 + std::abs(want.get_float(i))))
          << i;
  }
}

// Keys that one mask hides or two: a row whose keys are all hidden by one at least looks at those that the other leaves.
TEST(Recognise, RowsThatMasksHide) {
  Builder b("rows");
  const Type matrix{DType::F32, {1, 1, 4, 4}};
  const Value q = b.input("q", matrix), k = b.input("k", matrix), v = b.input("v", matrix),
              bias = b.input("bias", {DType::F32, {4, 4}});
  const Value s = op::add(b, op::matmul(b, q, k, {.transpose_b = true}), bias);
  b.output(op::matmul(b, op::softmax(b, s, {3}), v));
  const Graph g = b.finish();
  ASSERT_NE(stage_text(g, Stage::lower).find("attention"), std::string::npos);
  CompiledGraph f = Session("cpu").compile(g);
  const Tensor zero = Tensor::full(DType::F32, {1, 1, 4, 4}, 0);
  Tensor eye(DType::F32, {1, 1, 4, 4});
  for (int64_t i = 0; i < 4; ++i) eye.set_float(5 * i, 1);
  for (double hidden : {-1e9, -1e30}) {
    Tensor mask(DType::F32, {4, 4});
    for (int64_t i = 0; i < 16; ++i) mask.set_float(i, hidden * (1 + (i % 4 == 1)));
    for (int64_t i = 12; i < 16; ++i) mask.set_float(i, -INFINITY);
    const Tensor y = f.run({{"q", zero}, {"k", zero}, {"v", eye}, {"bias", mask}})[0];
    for (int64_t i = 0; i < 12; ++i)
      EXPECT_NEAR(y.get_float(i), i % 4 == 1 ? 0 : 1.0 / 3, 1e-6) << i;
    for (int64_t i = 12; i < 16; ++i) EXPECT_TRUE(std::isnan(y.get_float(i))) << i;
  }
}

TEST(Recognise, Encoder) { expect_recognised(&Writer::encoder); }
TEST(Recognise, Decoder) { expect_recognised(&Writer::decoder); }
TEST(Recognise, Llama) { expect_recognised(&Writer::llama); }
TEST(Recognise, PairsOfNeighbours) { expect_recognised(&Writer::neighbours); }
TEST(Recognise, LanguageLoss) { expect_recognised(&Writer::language_loss); }

}  // namespace
}  // namespace rlx::testing
