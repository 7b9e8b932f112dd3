// What is made of weights once, joined or packed, is used by the programs it was made for: those of other sizes that have
// the same names for other weights, or a constant where another one lay, get their own.
#include <gtest/gtest.h>

#include "../support/hidden_checks.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/quant/quantise.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {
namespace {

constexpr DType f32 = DType::F32;

Tensor ramp(Ints sizes, double first) {
  Tensor t(f32, std::move(sizes));
  for (int64_t i = 0; i < t.elements(); ++i)
    t.set_float(i, first + 0.25 * static_cast<double>(i % 37));
  return t;
}

class Prepared : public ::testing::TestWithParam<const char*> {
 protected:
  Prepared() { register_hidden_devices(); }

  // Runs at those sizes of ?n and ?m, against the evaluator.
  void expect_right(const Graph& g, const NamedTensors& params,
                    const std::vector<std::pair<int64_t, int64_t>>& sizes) {
    CompiledGraph f = Session(GetParam()).compile(g);
    f.set_params(params);
    for (const auto& [n, m] : sizes) {
      const Graph bound = bind(g, {{"n", n}, {"m", m}});
      NamedTensors inputs;
      for (Value v : bound.inputs()) {
        const std::string& name = bound.node(v).get<LeafAttrs>().name;
        inputs[name] = ramp(bound.type(v).shape.sizes(), static_cast<double>(name[0]));
      }
      NamedTensors leaves = params;
      leaves.insert(inputs.begin(), inputs.end());
      const Tensors want = evaluate(bound, leaves).outputs, got = f.run(inputs);
      for (size_t k = 0; k < want.size(); ++k)
        for (int64_t i = 0; i < want[k].elements(); ++i)
          ASSERT_NEAR(got[k].get_float(i), want[k].get_float(i),
                      1e-5 * (1 + std::fabs(want[k].get_float(i))))
              << n << " and " << m << ", result " << k << ", element " << i;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Prepared, Prepared, ::testing::Values("cpu", "hidden"),
                         [](const auto& info) { return std::string(info.param); });

Value joined(Builder& b, Value a, Value c, int64_t axis) {
  const std::vector<Value> parts{a, c};
  return b.emit(op::concat.def, AxisAttrs{axis}, parts)[0];
}

// x [?n, 8] + y [?m, 8], where ?m may be 1: a program of its own, in which the first row of y is y, so that its nodes have
// other numbers.
struct Sum {
  Builder b{"g"};
  Value x = b.input("x", {f32, {Dim::symbol("n"), 8}}),
        y = b.input("y", {f32, {Dim::symbol("m"), 8}});
  Value row = op::slice(b, y, {.start = {0, 0}, .limit = {1, 8}, .stride = {1, 1}});
  Value sum() { return op::add(b, x, y); }
};

TEST_P(Prepared, JoinedForProductsOfTheirOwnProgram) {
  Sum s;
  Builder& b = s.b;
  const Value u = b.input("u", {f32, {4, 8}});
  Values w;
  NamedTensors params;
  for (int i = 0; i < 4; ++i) {
    const std::string name = fmt::format("w{}", i);
    w.push_back(b.param(name, {f32, {8, 8}}));
    params[name] = ramp({8, 8}, i);
  }
  const Value first = joined(b, w[0], w[1], 1), second = joined(b, w[2], w[3], 1);
  b.output(op::matmul(b, s.sum(), first));
  b.output(op::matmul(b, u, second));
  b.output(s.row);
  expect_right(b.finish(), params, {{3, 3}, {3, 1}, {5, 5}, {6, 1}, {3, 3}});
}

// As they are, and of other sizes.
TEST_P(Prepared, JoinedAreReadWithinTheirSizes) {
  Sum s;
  Builder& b = s.b;
  const Value u = b.input("u", {f32, {}});
  NamedTensors params;
  const auto part = [&](const char* name, int64_t rows) {
    params[name] = ramp({rows, 8}, static_cast<double>(name[1]));
    return b.param(name, {f32, {rows, 8}});
  };
  const Value a0 = part("a0", 2), a1 = part("a1", 2), c0 = part("c0", 2048), c1 = part("c1", 2048);
  const Value few = joined(b, a0, a1, 0), many = joined(b, c0, c1, 0);
  b.output(s.sum());
  b.output(op::mul(b, few, u));
  b.output(op::mul(b, many, u));
  b.output(s.row);
  expect_right(b.finish(), params, {{3, 3}, {3, 1}, {4, 4}, {5, 1}});
}

// Parameters that only some of the programs read: the others stand at other places there.
TEST_P(Prepared, ParametersOfTheirOwnProgram) {
  Sum s;
  Builder& b = s.b;
  const Value u = b.input("u", {f32, {4, 8}});
  const auto weight = [&](const char* name) { return b.param(name, {f32, {8, 8}}); };
  const Value scale = weight("a"), first = weight("b"), second = weight("c");
  // The rows of y but the first, of which there are none where ?m is 1, and with them what they are multiplied with.
  const Dim m = Dim::symbol("m");
  const Value rest = op::slice(b, s.y, {.start = {1, 0}, .limit = {m, 8}, .stride = {1, 1}});
  b.output(op::reduce_sum(b, op::matmul(b, rest, scale), {{0}}));
  b.output(op::matmul(b, u, first));
  b.output(op::matmul(b, u, second));
  b.output(s.sum());
  expect_right(b.finish(), {{"a", ramp({8, 8}, 1)}, {"b", ramp({8, 8}, 2)}, {"c", ramp({8, 8}, 3)}},
               {{3, 3}, {3, 1}, {4, 4}, {5, 1}});
}

// A weight that sizes decide about is folded for each; there are more sizes than programs are kept for.
TEST(PreparedConstants, OfSizesThatAreForgotten) {
  Builder b("g");
  const Value x = b.input("x", {f32, {Dim::symbol("n"), 8}}),
              y = b.input("y", {f32, {Dim::symbol("m"), 8}}), a = b.input("a", {f32, {4, 8}}),
              k = b.input("k", {f32, {Dim::symbol("k"), 1}});
  const Tensor w = ramp({8, 8}, 0);
  const Value scaled = op::mul(
      b, b.constant(w), b.emit(op::dim_size.def, DimSizeAttrs{Dim::symbol("k"), f32}, Values{})[0]);
  b.output(op::matmul(b, a, scaled));
  b.output(op::add(b, x, y));
  b.output(k);
  CompiledGraph f = Session("cpu").compile(b.finish());
  const Tensor row = ramp({4, 8}, 1);
  Ints want(32, 0);  // 16 a w
  for (int64_t i = 0; i < 32; ++i)
    for (int64_t j = 0; j < 8; ++j)
      want[static_cast<size_t>(i)] +=
          static_cast<int64_t>(16 * row.get_float(i / 8 * 8 + j) * w.get_float(j * 8 + i % 8));
  for (int64_t size = 1; size < 420; ++size) {
    const Tensor got = f.run({{"x", ramp({3, 8}, 0)},
                              {"y", ramp({1, 8}, 0)},
                              {"a", row},
                              {"k", Tensor(f32, {size, 1})}})[0];
    for (int64_t i = 0; i < 32; ++i)
      ASSERT_EQ(16 * got.get_float(i), static_cast<double>(size * want[static_cast<size_t>(i)]))
          << "size " << size << ", element " << i;
  }
  EXPECT_NE(f.info().per_size, "");
}

// Two convolutions by parts of one weight that begin at the same place.
TEST(PreparedWeights, PartsOfOneWeight) {
  for (const auto& [first, second] : {std::pair<int64_t, int64_t>{8, 32}, {32, 8}}) {
    Builder b("g");
    const Value x = b.input("x", {DType::U8, {1, 16, 10, 10}}),
                w = b.param("w", {DType::I8, {32, 16, 3, 3}});
    for (const int64_t channels : {first, second}) {
      const Value part = op::slice(
          b, w, {.start = {0, 0, 0, 0}, .limit = {channels, 16, 3, 3}, .stride = {1, 1, 1, 1}});
      b.output(op::conv_integer(
          b, x, part,
          ConvAttrs{.stride = {1, 1}, .dilation = {1, 1}, .low = {0, 0}, .high = {0, 0}}));
    }
    const Graph g = b.finish();
    Tensor pixels(DType::U8, {1, 16, 10, 10}), weight(DType::I8, {32, 16, 3, 3});
    for (int64_t i = 0; i < pixels.elements(); ++i) pixels.set_int(i, i * 37 % 251);
    for (int64_t i = 0; i < weight.elements(); ++i) weight.set_int(i, i * 53 % 255 - 127);
    CompiledGraph f = Session("cpu").compile(g);
    f.set_param("w", weight);
    const Tensors want = evaluate(g, {{"x", pixels}, {"w", weight}}).outputs,
                  got = f.run({{"x", pixels}});
    for (size_t k = 0; k < 2; ++k)
      for (int64_t i = 0; i < want[k].elements(); ++i)
        ASSERT_EQ(got[k].get_int(i), want[k].get_int(i)) << first << ", result " << k << ", " << i;
  }
}

}  // namespace
}  // namespace rlx::testing
