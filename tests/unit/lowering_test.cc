// Programs that once went wrong between fusion and the executable, each compared with the
// reference.
#include <gtest/gtest.h>

#include "rlx/base/philox.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/passes/fuse_regions.h"
#include "rlx/runtime/runtime.h"

namespace rlx {
namespace {

Tensor random(const Type& t, uint32_t seed) {
  Tensor out(t.dtype, t.shape.sizes());
  for (int64_t i = 0; i < out.elements(); ++i)
    out.set_float(
        i,
        philox_uniform(philox4x32({seed, 0}, philox_counter(static_cast<uint64_t>(i)))[0]) - 0.5);
  return out;
}

void expect_equal(const Graph& g, CompileOptions options, const RunOptions& run = {}) {
  NamedTensors inputs;
  Tensors leaves;
  for (Value v : g.inputs()) {
    leaves.push_back(random(g.type(v), static_cast<uint32_t>(leaves.size())));
    inputs[g.node(v).get<LeafAttrs>().name] = leaves.back();
  }
  const Tensors want = evaluate(g, leaves);
  options.poison = true;
  CompiledGraph f = Session("cpu").compile(g, options);
  const auto got = f.run(inputs, run);
  for (size_t k = 0; k < want.size(); ++k)
    for (int64_t i = 0; i < want[k].elements(); ++i)
      ASSERT_NEAR(got[k].get_float(i), want[k].get_float(i), 1e-4) << print(g) << f.info().plan();
}

TEST(Lowering, AChainDoesNotReadOtherRowsOfAPartialView) {
  Builder b("partial");
  Value y =
      op::matmul(b, b.input("x", {DType::F32, {256, 64}}), b.input("w", {DType::F32, {64, 128}}));
  Value part = op::slice(b, y, {.start = {128, 0}, .limit = {256, 128}});
  b.output(op::softmax(b, op::reshape(b, part, {{256, 64}})));
  expect_equal(b.finish(), {.threads = 2});
}

TEST(Lowering, EpiloguesOfProductsRunInChains) {
  Builder b("epilogue");
  Value y =
      op::matmul(b, b.input("x", {DType::F32, {512, 64}}), b.input("w", {DType::F32, {64, 128}}));
  b.output(op::tanh(b, y));
  b.output(op::softmax(b, op::add(b, y, b.input("c", {DType::F32, {128}}))));
  for (int threads : {1, 2, 3}) expect_equal(b.graph(), {.threads = threads});
}

// ---- results in the memory of operands, buffers in shared memory

TEST(Lowering, AnOperandThatAnotherOperandViewsIsNotWrittenOver) {
  Builder b("views");
  Value x = op::cumsum(b, b.input("x", {DType::F32, {70, 70}}), {.axis = 0});
  Value sum = op::add(b, x, op::transpose(b, x, {{1, 0}}));
  b.output(op::cumsum(b, sum, {.axis = 1}));
  for (int threads : {1, 3}) expect_equal(b.graph(), {.threads = threads});
}

// Softmax may take the memory of r, which dies there; but the product before it, in the same chain,
// reads all of r for every tile.
TEST(Lowering, AnOperandThatTheChainReadsWholeIsNotWrittenOver) {
  Builder b("whole");
  Value r = op::cumsum(b, b.input("r", {DType::F32, {130, 48}}), {.axis = 0});
  Value y = op::matmul(b, b.input("x", {DType::F32, {130, 130}}), r);
  b.output(op::cumsum(b, op::softmax(b, op::add(b, r, y)), {.axis = 0}));
  for (int threads : {1, 3}) expect_equal(b.graph(), {.threads = threads});
}

// The first product is read by the second step only, but other tiles still write it while the third
// step's wider rows are written.
TEST(Lowering, WhatAChainTouchesIsAliveDuringAllOfIt) {
  Builder b("alive");
  Value y = b.input("x", {DType::F32, {300, 32}});
  int64_t columns = 32;
  for (const int64_t next : {96, 64, 120}) {
    const Type weights{DType::F32, {columns, next}};
    y = op::matmul(b, y, b.input(fmt::format("w{}", next), weights));
    columns = next;
  }
  b.output(op::cumsum(b, y, {.axis = 1}));
  for (int threads : {1, 3}) expect_equal(b.graph(), {.threads = threads});
}

TEST(Lowering, ReducedAxesOfSizeOne) {
  Builder b("ones");
  Value x = b.input("x", {DType::F32, {8, 1}});
  b.output(op::mul(b, op::exp(b, x), op::reduce_sum(b, x, {{1}, true})));
  expect_equal(b.finish(), {.threads = 1});
}

TEST(Lowering, LongRowsDoNotOverflowTheScratch) {
  Builder b("long");
  Value sum = kNone;
  for (int k = 0; k < 5; ++k) {
    Value s = op::softmax(b, b.input(fmt::format("x{}", k), {DType::F64, {8, 8192}}));
    sum = sum.valid() ? op::add(b, sum, s) : s;
  }
  b.output(sum);
  expect_equal(b.finish(), {.threads = 1});
}

TEST(Lowering, NanCheckLooksAtTheResultOnly) {
  Builder b("parts");
  b.output(op::concat(b, b.input("a", {DType::F32, {2, 3}}), b.input("c", {DType::F32, {2, 3}}),
                      {.axis = 1}));
  expect_equal(b.finish(), {.threads = 1}, {.check_nan = true});
}

TEST(Lowering, NanCheckNamesTheNode) {
  Builder b("nan");
  Value x = b.input("x", {DType::F32, {4}});
  b.output(op::cumsum(b, op::log(b, x), {.axis = 0}));
  CompiledGraph f = Session("cpu").compile(b.finish());
  try {
    f.run({{"x", Tensor::from<float>({4}, {1, 2, -3, 4})}}, {.check_nan = true});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), "nan");
    EXPECT_NE(std::string(e.what()).find("log"), std::string::npos) << e.what();
  }
}

TEST(Lowering, UnfusedProgramsAgree) {
  Builder b("norm");
  Value x = b.input("x", {DType::F32, {16, 40}}), c = b.input("c", {DType::F32, {40}});
  b.output(op::layer_norm(b, x, c, c, {}));
  const Graph g = b.finish();
  expect_equal(g, {.threads = 1, .fuse = false});
  const int fused = Session("cpu").compile(g).info().kernels;
  EXPECT_GT(Session("cpu").compile(g, {.fuse = false}).info().kernels, fused);
  EXPECT_EQ(fused, 1);
}

TEST(Lowering, SymbolicShapesFuse) {
  Builder b("symbolic");
  Value x = b.input("x", {DType::F32, {Dim::symbol("b"), 4, 8}});
  b.output(op::reduce_sum(b, op::square(b, x), {{0, 2}}));
  EXPECT_NO_THROW(fuse_regions(b.finish()));
}

TEST(Lowering, TooLargeIsAnError) {
  Builder b("huge");
  Value x = b.input("x", {DType::F32, {int64_t{1} << 58}});
  b.output(op::cumsum(b, op::cumsum(b, x, {.axis = 0}), {.axis = 0}));
  EXPECT_THROW(Session("cpu").compile(b.finish()), Error);
}

}  // namespace
}  // namespace rlx
