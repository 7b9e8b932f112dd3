// The transforms as such: what they return, what they keep, what they refuse. The rules of single
// ops are tried by ops_table_test.cc.
#include "rlx/transform/transform.h"

#include <gtest/gtest.h>

#include "../support/expect_error.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/rules.h"

namespace rlx {
namespace {

const Type kScalar{DType::F64, {}};
const Type kVector{DType::F64, {3}};

Tensor number(double v) { return Tensor::scalar(DType::F64, v); }
Tensor vector(std::vector<double> v) {
  return Tensor::from<double>({static_cast<int64_t>(v.size())}, v);
}
double first(const Tensors& t) { return t.at(0).get_float(0); }

Value total(Builder& b, Value x) { return op::reduce_sum(b, x, {.axes = {0}}); }

// f applied to the vector "x" and summed.
template <class F>
Graph loss(F&& f) {
  Builder b("loss");
  Value x = b.input("x", kVector);
  b.output(total(b, f(b, x)));
  return b.finish();
}

Graph doubled() {
  Builder b("f");
  Value x = b.input("x", kVector);
  b.output(op::mul(b, x, b.constant_like(x, 2)));
  return b.finish();
}

int count(const Graph& g, const OpDef* op) {
  int n = 0;
  for (const Node& node : g.nodes) n += node.op == op;
  return n;
}

// ---- reverse

TEST(Reverse, VjpOfASum) {
  Builder b("sum");
  b.output(op::add(b, b.input("x", kVector), b.input("y", kVector)));
  const Graph g = vjp(b.finish(), {"x", "y"});
  EXPECT_EQ(g.name, "sum_grad");
  ASSERT_EQ(g.outputs.size(), 3u);
  EXPECT_EQ(g.outputs[1], g.outputs[2]);
  EXPECT_EQ(g.outputs[1], g.find_leaf("d_output"));
}

TEST(Reverse, ValueAndGradientKeepTheSignature) {
  Builder b("f");
  Value x = b.input("x", kVector), w = b.param("w", kVector), unused = b.param("unused", kScalar);
  Value y = total(b, op::mul(b, x, w));
  b.output(y);
  b.output(x);
  b.update("unused", op::add(b, unused, unused));
  const Graph f = b.finish();
  const Graph both = value_and_grad(f, {"w"});
  ASSERT_EQ(both.outputs.size(), 3u);
  EXPECT_EQ(both.updates.size(), 1u);
  const Graph only = grad(f, {"w"});
  ASSERT_EQ(only.outputs.size(), 1u);
  const Evaluated r =
      evaluate(only, {{"x", vector({1, 2, 3})}, {"w", vector({0, 0, 0})}, {"unused", number(2)}});
  EXPECT_TRUE(r.outputs[0].same_bits(vector({1, 2, 3})));
  EXPECT_EQ(r.updates.at("unused").get_float(0), 4);
}

TEST(Reverse, HigherOrdersInsideABuilder) {
  Builder b("powers");
  Value x = b.input("x", kScalar);
  Value y = op::mul(b, op::mul(b, x, x), op::sin(b, x));  // x^2 sin x
  b.output(y);
  for (int order = 0; order < 4; ++order) b.output(y = gradients(b, y, {&x, 1})[0]);
  const Graph g = b.finish();
  const double v = 0.7, s = std::sin(v), c = std::cos(v);
  const double expected[] = {v * v * s, 2 * v * s + v * v * c, (2 - v * v) * s + 4 * v * c,
                             -6 * v * s + (6 - v * v) * c, (v * v - 12) * s - 8 * v * c};
  const Tensors out = evaluate(g, Tensors{number(v)});
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(out[i].get_float(0), expected[i], 1e-12) << i;
}

TEST(Reverse, NamesAndOrigins) {
  Builder b("f");
  Value x = b.input("x", kVector);
  {
    Label scope(b, "layer0");
    x = op::tanh(b, x);
  }
  b.output(total(b, x));
  const Graph g = value_and_grad(b.finish(), {"x"});
  bool labelled = false;
  for (const Node& n : g.nodes)
    if (n.origin.pass == "grad" && n.origin.label == "layer0") labelled = true;
  EXPECT_TRUE(labelled);
  EXPECT_EQ(parse(print(g)), g);
}

TEST(Reverse, OnlyThePathIsVisited) {
  Builder b("f");
  Value x = b.input("x", kVector), y = b.input("y", kVector);
  b.output(total(b, op::mul(b, x, op::floor(b, y))));
  const Graph f = b.finish();
  EXPECT_NO_THROW(grad(f, {"x"}));
  expect_error("no-gradient", "input \"y\": the path ends at %2 floor: piecewise constant",
               [&] { grad(f, {"y"}); });
  const Graph zero = grad(f, {"y"}, {.zero_missing = true});
  EXPECT_EQ(first(evaluate(zero, Tensors{vector({1, 2, 3}), vector({1, 2, 3})})), 0);
}

TEST(Reverse, Refusals) {
  Builder b("f");
  Value x = b.input("x", kVector), i = b.input("i", {DType::I64, {3}}),
        c = b.input("c", {DType::C64, {}});
  b.output(total(b, x));
  b.output(x);
  b.output(c);
  b.output(op::add(b, i, i));
  const Graph f = b.finish();
  expect_error("no-leaf", "no input or parameter \"z\"", [&] { grad(f, {"z"}); });
  expect_error("wrt-dtype", "input \"i\" is [3] i64", [&] { grad(f, {"i"}); });
  expect_error("loss-type", "input \"x\" is [3] f64", [&] { grad(f, {"x"}, {.output = 1}); });
  expect_error("loss-type", "must be a real scalar", [&] { grad(f, {"c"}, {.output = 2}); });
  expect_error("output-index", "has 4 outputs", [&] { grad(f, {"x"}, {.output = 4}); });
  expect_error("no-gradient", "no output depends on it", [&] { grad(f, {"c"}); });
}

TEST(Reverse, StopGradient) {
  const Graph g =
      grad(loss([](Builder& b, Value x) { return op::mul(b, x, op::stop_gradient(b, x)); }), {"x"});
  EXPECT_EQ(first(evaluate(g, Tensors{vector({3, 4, 5})})), 3);
}

TEST(Reverse, AnOperandUsedTwiceByAComposite) {
  const Graph f = loss(
      [](Builder& b, Value x) { return op::clamp(b, x, op::neg(b, x), x); });  // |x| below, x above
  const Graph g = grad(f, {"x"});
  EXPECT_EQ(first(evaluate(g, Tensors{vector({2, 3, 4})})), 1);
}

TEST(Reverse, SeveralOutputsTakeTheirOwnCotangents) {
  Builder b("two");
  Value x = b.input("x", kScalar);
  b.output(op::mul(b, x, x));
  b.output(op::sin(b, x));
  const Graph g = vjp(b.finish(), {"x"});
  const Evaluated r = evaluate(g, {{"x", number(0.5)}, {"d_0", number(2)}, {"d_1", number(3)}});
  EXPECT_NEAR(r.outputs[2].get_float(0), 2 * 2 * 0.5 + 3 * std::cos(0.5), 1e-15);
}

// An op with a forward rule only: reverse mode transposes it.
constexpr OpDef kTwist{
    .name = "twist",
    .doc = "x * sin(y).",
    .kind = Kind::contraction,
    .arity = 2,
    .infer = infer_same,
    .jvp = [](Builder& b, const JvpArgs& a) -> Values {
      Value t = kNone;
      if (a.tangents[0].valid()) t = op::mul(b, a.tangents[0], op::sin(b, a.in[1]));
      if (a.tangents[1].valid())
        t = add_maybe(b, t, op::mul(b, a.in[0], op::mul(b, op::cos(b, a.in[1]), a.tangents[1])));
      return {t};
    },
};

TEST(Reverse, TransposeOfTheForwardRule) {
  Builder b("f");
  Value x = b.input("x", kVector), y = b.input("y", kVector);
  b.output(total(b, b.emit(kTwist, {}, Values{x, y})[0]));
  Graph f = b.finish();
  Builder c("g");
  Value u = c.input("x", kVector), v = c.input("y", kVector);
  Values g = gradients(c, c.inline_graph(f, Values{u, v})[0], Values{u, v});
  c.output(g[0]);
  c.output(g[1]);
  // No node of the result may need the value of twist, which has none.
  const Tensors out =
      evaluate(drop_dead(c.finish()), Tensors{vector({2, 2, 2}), vector({1, 1, 1})});
  EXPECT_NEAR(out[0].get_float(0), std::sin(1.0), 1e-15);
  EXPECT_NEAR(out[1].get_float(0), 2 * std::cos(1.0), 1e-15);
}

constexpr OpDef kMute{
    .name = "mute", .doc = "No rules.", .kind = Kind::contraction, .infer = infer_same};

TEST(Reverse, AnOpWithoutAnAnswerIsNamed) {
  Builder b("f");
  Value x = b.input("x", kScalar);
  b.output(b.emit(kMute, {}, {&x, 1})[0]);
  const Graph f = b.finish();
  expect_error("no-rule", "mute", [&] { grad(f, {"x"}); });
  expect_error("no-rule", "mute", [&] { jvp(f, {"x"}); });
  expect_error("no-rule", "mute", [&] { vmap(f, {{"x", 0}}, 2); });
}

// y <- tanh(w y), 5 times.
Graph recurrence() {
  Builder body("step");
  Value y = body.input("y", kScalar), w = body.input("w", kScalar);
  body.output(op::tanh(body, op::mul(body, w, y)));
  Builder b("recurrence");
  Value y0 = b.input("y0", kScalar), v = b.input("w", kScalar);
  b.output(b.emit(*&op::scan, ScanAttrs{.body = body.finish(), .length = 5, .num_carries = 1},
                  Values{y0, v})[0]);
  return b.finish();
}

TEST(Reverse, AScanIsRunOnceAndSwept) {
  const Graph f = recurrence();
  const Graph g = value_and_grad(f, {"y0", "w"});
  EXPECT_EQ(count(g, &op::scan), 2);
  auto at = [&](double y, double w) { return first(evaluate(f, Tensors{number(y), number(w)})); };
  const Tensors out = evaluate(g, Tensors{number(0.8), number(1.1)});
  EXPECT_NEAR(out[1].get_float(0), (at(0.8 + 1e-6, 1.1) - at(0.8 - 1e-6, 1.1)) / 2e-6, 1e-8);
  EXPECT_NEAR(out[2].get_float(0), (at(0.8, 1.1 + 1e-6) - at(0.8, 1.1 - 1e-6)) / 2e-6, 1e-8);
}

// ---- forward

TEST(Forward, NamesAndOutputs) {
  Builder b("f");
  Value x = b.input("x", kVector), y = b.input("y", kVector);
  b.output(op::exp(b, x));
  b.output(y);
  b.output(op::gt(b, x, y));
  const Graph g = jvp(b.finish(), {"x"});
  EXPECT_EQ(g.name, "f_jvp");
  EXPECT_TRUE(g.find_leaf("tangent_x").valid());
  ASSERT_EQ(g.outputs.size(), 5u);  // three values, the tangents of the two floats
  const Graph twice = jvp(g, {"x"});
  EXPECT_TRUE(twice.find_leaf("tangent_x_1").valid());
}

TEST(Forward, WithoutSeedsTheTangentIsZero) {
  const Graph g = jvp(loss([](Builder& b, Value x) { return op::exp(b, x); }), {});
  EXPECT_EQ(evaluate(g, Tensors{vector({1, 2, 3})})[1].get_float(0), 0);
}

TEST(Forward, HessianIsSymmetric) {
  Builder b("f");
  Value x = b.input("x", kVector);
  b.output(total(b, op::mul(b, op::sin(b, x), op::cumsum(b, op::exp(b, x)))));
  const Graph h = hvp(b.finish(), {"x"});
  ASSERT_EQ(h.outputs.size(), 4u);  // loss, gradient, <gradient, v>, Hv
  auto hv = [&](const Tensor& v) { return evaluate(h, Tensors{vector({0.3, -0.2, 0.9}), v}); };
  const Tensors hu = hv(vector({1, 2, 3})), hw = hv(vector({-1, 0.5, 2}));
  auto dot = [](const Tensor& a, const Tensor& c) {
    double s = 0;
    for (int64_t i = 0; i < a.elements(); ++i) s += a.get_float(i) * c.get_float(i);
    return s;
  };
  EXPECT_NEAR(dot(hu[3], vector({-1, 0.5, 2})), dot(hw[3], vector({1, 2, 3})), 1e-12);
  EXPECT_NEAR(hu[2].get_float(0), dot(hu[1], vector({1, 2, 3})), 1e-12);
}

// ---- higher order

TEST(HigherOrder, OfAScalar) {
  Builder b("cube");
  Value x = b.input("x", kScalar);
  b.output(op::mul(b, x, op::mul(b, x, x)));
  const Graph f = b.finish();
  const double expected[] = {8, 12, 12, 6, 0};
  for (int order = 0; order < 5; ++order) {
    const Graph g = nth_order_grad(f, "x", order);
    EXPECT_EQ(first(evaluate(g, Tensors{number(2)})), expected[order]) << order;
  }
  EXPECT_EQ(nth_order_grad(f, "x", 3).name, "cube_d3");
  expect_error("order-range", "-1", [&] { nth_order_grad(f, "x", -1); });
  expect_error("wrt-scalar", "[3] f64", [&] { nth_order_grad(doubled(), "x", 1); });
}

TEST(HigherOrder, AlongDirections) {
  const Graph f = loss([](Builder& b, Value x) { return op::mul(b, x, op::mul(b, x, x)); });
  const Graph g = directional_nth_grad(f, "x", {"u", ""});
  const Evaluated r = evaluate(
      g, {{"x", vector({1, 2, 3})}, {"u", vector({1, 0, 2})}, {"dir_1", vector({1, 1, 1})}});
  EXPECT_EQ(r.outputs[0].get_float(0), 6 * 1 * 1 + 6 * 3 * 2);
}

// ---- vmap

TEST(Vmap, AddsTheBatchAxis) {
  const Graph g = vmap(doubled(), {{"x", 0}}, 4);
  EXPECT_EQ(g.name, "f_vmap");
  EXPECT_EQ(g.output_types(), (Types{{DType::F64, {4, 3}}}));
  EXPECT_EQ(vmap(doubled(), {{"x", 1}}, 4, 1).output_types(), (Types{{DType::F64, {3, 4}}}));
  EXPECT_EQ(vmap(doubled(), {{"x", -1}}, 4, -1).output_types(), (Types{{DType::F64, {3, 4}}}));
  EXPECT_EQ(vmap(g, {{"x", 0}}, 5).output_types(), (Types{{DType::F64, {5, 4, 3}}}));
  const Dim n = Dim::symbol("n");
  EXPECT_EQ(vmap(doubled(), {{"x", 0}}, n).output_types(), (Types{{DType::F64, {n, 3}}}));
  EXPECT_EQ(vmap(doubled(), {}, 4).output_types(), (Types{{DType::F64, {4, 3}}}));
}

TEST(Vmap, AxesElsewhere) {
  const Graph g = vmap(doubled(), {{"x", 1}}, 2, 1);
  const Tensor x = Tensor::from<double>({3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_TRUE(
      evaluate(g, Tensors{x})[0].same_bits(Tensor::from<double>({3, 2}, {2, 4, 6, 8, 10, 12})));
}

TEST(Vmap, ParametersAndUpdates) {
  Builder b("f");
  Value x = b.input("x", kVector), w = b.param("w", kVector);
  b.output(op::add(b, x, w));
  b.update("w", op::add(b, w, x));
  const Graph f = b.finish();
  const Graph g = vmap(f, {{"x", 0}, {"w", 1}}, 2);
  EXPECT_EQ(g.type(g.find_leaf("w")), (Type{DType::F64, {3, 2}}));
  EXPECT_EQ(g.type(g.updates[0].value), (Type{DType::F64, {3, 2}}));
  expect_error("update-batched", "parameter \"w\"", [&] { vmap(f, {{"x", 0}}, 2); });
  expect_error("no-leaf", "\"z\"", [&] { vmap(f, {{"z", 0}}, 2); });
  expect_error("axis-range", "vmap", [&] { vmap(f, {{"x", 2}, {"w", 0}}, 2); });
}

TEST(Vmap, PerSampleGradients) {
  const Graph f = loss([](Builder& b, Value x) { return op::mul(b, op::sin(b, x), x); });
  const Graph g = vmap(grad(f, {"x"}), {{"x", 0}}, 2);
  const Tensor x = Tensor::from<double>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensors out = evaluate(g, Tensors{x});
  for (int64_t i = 0; i < 6; ++i) {
    const double v = x.get_float(i);
    EXPECT_NEAR(out[0].get_float(i), std::cos(v) * v + std::sin(v), 1e-14);
  }
}

// ---- the evaluator

TEST(Evaluate, BindsSymbolsAndChecksLeaves) {
  Builder b("f");
  const Dim n = Dim::symbol("n");
  Value x = b.input("x", {DType::F64, {n, 2}}), y = b.input("y", {DType::F64, {n}});
  b.output(op::reduce_sum(b, x, {.axes = {0}}));
  b.output(y);
  const Graph g = b.finish();
  const Tensor two(DType::F64, {3, 2});
  EXPECT_EQ(evaluate(g, {{"x", two}, {"y", vector({1, 2, 3})}}).outputs[0].sizes(), (Ints{2}));
  expect_error("leaf-type", "\"y\" is declared as [?n] f64, given is [2] f64",
               [&] { evaluate(g, {{"x", two}, {"y", vector({1, 2})}}); });
  expect_error("leaf-missing", "\"y\" is not given", [&] { evaluate(g, {{"x", two}}); });
  expect_error("leaf-unknown", "\"z\"",
               [&] { evaluate(g, {{"x", two}, {"y", vector({1, 2, 3})}, {"z", two}}); });
}

TEST(Evaluate, AnOpWithoutAValueIsNamed) {
  Builder b("f");
  Value x = b.input("x", kScalar);
  b.output(b.emit(kMute, {}, {&x, 1})[0]);
  expect_error("no-rule", "mute", [&] { evaluate(b.graph(), Tensors{number(1)}); });
}

}  // namespace
}  // namespace rlx
