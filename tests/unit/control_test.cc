// Control flow: what the derivative and batching rules emit, the corner cases, and the messages for
// wrong bodies. The sample table compares derivatives with differences and batches with loops.
#include "rlx/ops/control/control.h"

#include <gtest/gtest.h>

#include "../support/expect_error.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/rules.h"
#include "rlx/transform/transform.h"

namespace rlx {
namespace {

const Type kScalar{DType::F64, {}};

Tensor number(double v) { return Tensor::scalar(DType::F64, v); }
Tensor vector(std::vector<double> v) {
  return Tensor::from<double>({static_cast<int64_t>(v.size())}, v);
}

// A body over inputs of the given types.
template <class F>
Body body_of(const Types& types, F&& f) {
  Builder b("body");
  Values in;
  for (const Type& t : types) in.push_back(b.input(fmt::format("in{}", in.size()), t));
  for (Value v : f(b, in)) b.output(v);
  return b.finish();
}

std::vector<const Node*> scans(const Graph& g) {
  std::vector<const Node*> out;
  for (const Node& n : g.nodes)
    if (n.op == &op::scan) out.push_back(&n);
  return out;
}

// (s, n) -> (s * w + x, n + 1), stacking s: a float carry and a counter.
ScanAttrs recurrence(const Dim& length, bool reverse = false) {
  ScanAttrs s;
  s.body = body_of({kScalar, {DType::I32, {}}, kScalar, kScalar},
                   [](Builder& b, const Values& in) -> Values {
                     const Value next = op::add(b, op::mul(b, in[0], in[3]), in[2]);
                     return {next, op::add(b, in[1], b.constant(DType::I32, 1)), next};
                   });
  s.length = length, s.num_carries = 2, s.num_xs = 1, s.reverse = reverse;
  return s;
}

Graph recurrence_graph(const Dim& length, bool reverse = false) {
  Builder b("run");
  const Values in{b.input("s", kScalar), b.input("n", {DType::I32, {}}),
                  b.input("x", {DType::F64, {length}}), b.input("w", kScalar)};
  for (Value v : b.emit(op::scan.def, recurrence(length, reverse), in)) b.output(v);
  return b.finish();
}

NamedTensors recurrence_leaves() {
  return {{"s", number(1)},
          {"n", Tensor::scalar(DType::I32, 5)},
          {"x", vector({1, 2, 3})},
          {"w", number(0.5)}};
}

TEST(Scan, RunsInBothDirections) {
  const Evaluated there = evaluate(recurrence_graph(3), recurrence_leaves());
  EXPECT_EQ(there.outputs[0].get_float(0), 4.375);
  EXPECT_EQ(there.outputs[1].get_int(0), 8);
  EXPECT_TRUE(there.outputs[2].same_bits(vector({1.5, 2.75, 4.375})));
  const Evaluated back = evaluate(recurrence_graph(3, true), recurrence_leaves());
  EXPECT_EQ(back.outputs[0].get_float(0), 2.875);
  EXPECT_TRUE(back.outputs[2].same_bits(vector({2.875, 3.75, 3.5})));
}

TEST(Scan, OfLengthZeroReturnsTheCarries) {
  NamedTensors leaves = recurrence_leaves();
  leaves["x"] = vector({});
  const Graph g = value_and_grad(recurrence_graph(0), {"s", "w", "x"}, {.zero_missing = true});
  const Evaluated r = evaluate(g, leaves);
  EXPECT_EQ(r.outputs[0].get_float(0), 1);
  EXPECT_EQ(r.outputs[2].sizes(), Ints{0});
  EXPECT_EQ(r.outputs[3].get_float(0), 1);
  EXPECT_EQ(r.outputs[4].get_float(0), 0);
  EXPECT_EQ(r.outputs[5].sizes(), Ints{0});
}

TEST(Scan, SymbolicLength) {
  const Graph g = value_and_grad(recurrence_graph(Dim::symbol("n")), {"w", "x"});
  const Evaluated r = evaluate(g, recurrence_leaves());
  // s3 = ((s w + x0) w + x1) w + x2
  EXPECT_DOUBLE_EQ(r.outputs[3].get_float(0), 3 * 0.25 + 2 * 0.5 * 1 + 2);
  EXPECT_TRUE(r.outputs[4].same_bits(vector({0.25, 0.5, 1})));
}

TEST(Scan, OneReverseSweepGivesAllGradients) {
  const Graph g = grad(recurrence_graph(3), {"s", "w", "x"});
  const auto found = scans(g);
  ASSERT_EQ(found.size(), 2u);
  const auto& sweep = found[1]->get<ScanAttrs>();
  EXPECT_TRUE(sweep.reverse);
  EXPECT_EQ(sweep.num_carries, 2);  // ds and the sum of dw: the counter takes no part
  EXPECT_EQ(found[1]->out.size(), 3u);
}

TEST(Scan, ACarryThatNothingWantedReachesIsLeftOut) {
  // a' = a + x, c' = c * a; the gradient by a alone needs both, by c alone only c.
  ScanAttrs s;
  s.body = body_of({kScalar, kScalar}, [](Builder& b, const Values& in) -> Values {
    return {op::add(b, in[0], b.constant_like(in[0], 1)), op::mul(b, in[0], in[1])};
  });
  s.length = 3, s.num_carries = 2;
  Builder b;
  const Values in{b.input("a", kScalar), b.input("c", kScalar)};
  b.output(b.emit(op::scan.def, s, in)[1]);
  const Graph g = b.finish();
  const Graph by_c = grad(g, {"c"}), by_a = grad(g, {"a"});
  EXPECT_EQ(scans(by_c).back()->get<ScanAttrs>().num_carries, 1);
  EXPECT_EQ(scans(by_a).back()->get<ScanAttrs>().num_carries, 2);
  const NamedTensors at{{"a", number(2)}, {"c", number(3)}};
  EXPECT_EQ(evaluate(by_c, at).outputs[0].get_float(0), 2 * 3 * 4);
  EXPECT_EQ(evaluate(by_a, at).outputs[0].get_float(0), 3 * (3 * 4 + 2 * 4 + 2 * 3));
}

TEST(Scan, TangentsOnlyWhereTheyAre) {
  // By x: the carry s starts without a tangent and gains one; the counter has none.
  const Graph g = jvp(recurrence_graph(3), {"x"});
  const auto& moved = scans(g).back()->get<ScanAttrs>();
  EXPECT_EQ(moved.num_carries, 3);
  EXPECT_EQ(moved.num_xs, 2);
  NamedTensors leaves = recurrence_leaves();
  leaves["tangent_x"] = vector({1, 0, 2});
  const Evaluated r = evaluate(g, leaves);
  EXPECT_DOUBLE_EQ(r.outputs[3].get_float(0), 2.25);
  EXPECT_TRUE(r.outputs[4].same_bits(vector({1, 0.5, 2.25})));
}

TEST(Scan, SharedOperandsStaySharedUnderVmap) {
  const Graph g = vmap(recurrence_graph(3), {{"w", 0}}, 2);
  const Node& n = *scans(g)[0];
  EXPECT_EQ(g.type(n.in[0]).to_string(), "[2] f64");  // the carry depends on w
  EXPECT_EQ(g.type(n.in[1]).to_string(), "[] i32");   // the counter does not
  EXPECT_EQ(g.type(n.in[2]).to_string(), "[3] f64");  // nor does x
  NamedTensors leaves = recurrence_leaves();
  leaves["w"] = vector({0.5, 0});
  const Evaluated r = evaluate(g, leaves);
  EXPECT_TRUE(r.outputs[0].same_bits(vector({4.375, 3})));
  EXPECT_EQ(r.outputs[1].get_int(1), 8);
  EXPECT_TRUE(r.outputs[2].same_bits(Tensor::from<double>({2, 3}, {1.5, 2.75, 4.375, 1, 2, 3})));
}

TEST(Scan, Refusals) {
  Builder b;
  const Value s = b.input("s", kScalar), n = b.input("n", {DType::I32, {}}),
              x = b.input("x", {DType::F64, {3}});
  auto emit = [&](ScanAttrs a, Values in) { b.emit(op::scan.def, a, in); };
  expect_error("scan-length", "must be [4, ..] but is [3] f64",
               [&] { emit(recurrence(4), {s, n, x, s}); });
  expect_error("scan-length", "cannot be -1", [&] { emit(recurrence(-1), {s, n, x, s}); });
  expect_error("scan-operands", "do not fit 2 operands", [&] { emit(recurrence(3), {s, n}); });
  expect_error("body-inputs", "takes 4 inputs but is given 3",
               [&] { emit(recurrence(3), {s, n, x}); });
  expect_error("body-inputs", "input 1 of the body is [] i32 but is given [] f64",
               [&] { emit(recurrence(3), {s, s, x, s}); });
  ScanAttrs grows;
  grows.body = body_of({kScalar}, [](Builder& c, const Values& in) -> Values {
    return {batch_operand(c, in[0], 2)};
  });
  grows.length = 3, grows.num_carries = 1;
  expect_error("body-outputs", "carry 0 is [] f64 but the body returns [2] f64",
               [&] { emit(grows, {s}); });
  ScanAttrs none;
  none.body = body_of({kScalar}, [](Builder&, const Values&) -> Values { return {}; });
  none.length = 3, none.num_carries = 1;
  expect_error("body-outputs", "0 outputs, fewer than the 1 carries", [&] { emit(none, {s}); });
}

// ---- cond

// x * x, or a lookup that fails when it runs.
CondAttrs choice() {
  CondAttrs c;
  c.then_body = body_of(
      {kScalar}, [](Builder& b, const Values& in) -> Values { return {op::mul(b, in[0], in[0])}; });
  c.else_body = body_of({kScalar}, [](Builder& b, const Values& in) -> Values {
    const Value row = batch_operand(b, in[0], 2);
    return {op::gather(b, row, b.constant(DType::I64, 7), AxisAttrs{0})};
  });
  return c;
}

TEST(Cond, OnlyTheChosenBodyRuns) {
  Builder b;
  const Value p = b.input("p", {DType::Bool, {}}), x = b.input("x", kScalar);
  b.output(op::cond(b, p, x, choice()));
  const Graph g = value_and_grad(b.finish(), {"x"});
  const Evaluated r = evaluate(g, {{"p", Tensor::scalar(DType::Bool, 1)}, {"x", number(3)}});
  EXPECT_EQ(r.outputs[0].get_float(0), 9);
  EXPECT_EQ(r.outputs[1].get_float(0), 6);
  expect_error("index-range", "",
               [&] { evaluate(g, {{"p", Tensor::scalar(DType::Bool, 0)}, {"x", number(3)}}); });
}

TEST(Cond, APredicatePerElementSelects) {
  CondAttrs c = choice();
  c.else_body = body_of(
      {kScalar}, [](Builder& b, const Values&) -> Values { return {b.constant(DType::F64, 7)}; });
  Builder b;
  const Value p = b.input("p", {DType::Bool, {}}), x = b.input("x", kScalar);
  b.output(op::cond(b, p, x, c));
  const Graph one = b.finish(), each = vmap(one, {{"p", 0}}, 2), shared = vmap(one, {{"x", 0}}, 2);
  Tensor flags(DType::Bool, {2});
  flags.set_int(1, 1);
  EXPECT_TRUE(
      evaluate(each, {{"p", flags}, {"x", number(3)}}).outputs[0].same_bits(vector({7, 9})));
  const NamedTensors off{{"p", Tensor::scalar(DType::Bool, 0)}, {"x", vector({2, 3})}};
  EXPECT_TRUE(evaluate(shared, off).outputs[0].same_bits(vector({7, 7})));
}

TEST(Cond, Refusals) {
  Builder b;
  const Value p = b.input("p", {DType::Bool, {}}), q = b.input("q", {DType::Bool, {2}}),
              x = b.input("x", kScalar);
  expect_error("cond-predicate", "rank 0", [&] { op::cond(b, q, x, choice()); });
  expect_error("dtype", "f64", [&] { op::cond(b, x, x, choice()); });
  expect_error("body-inputs", "then body takes 1 inputs but is given 2",
               [&] { op::cond(b, p, x, x, choice()); });
  CondAttrs c = choice();
  c.else_body =
      body_of({kScalar}, [](Builder&, const Values& in) -> Values { return {in[0], in[0]}; });
  expect_error("body-outputs", "[[] f64] and [[] f64, [] f64]", [&] { op::cond(b, p, x, c); });
}

}  // namespace
}  // namespace rlx
