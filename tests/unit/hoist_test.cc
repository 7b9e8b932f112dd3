// hoist_invariants and what dead_code drops of loops, in compiled programs: what runs in bodies, values and gradients, loops of
// no steps.
#include <gtest/gtest.h>

#include "../support/expect_error.h"
#include "rlx/compile.h"
#include "rlx/front/loops.h"
#include "rlx/ops/control/loops.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/passes/passes.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/transform.h"

namespace rlx {
namespace {

Tensor values(Ints sizes, double phase) {
  Tensor t(DType::F32, std::move(sizes));
  for (int64_t i = 0; i < t.elements(); ++i)
    t.set_float(i, 0.3 * std::sin(static_cast<double>(i) + phase));
  return t;
}

// Steps of an op in the program, and in the bodies of its loops.
struct Steps {
  int outside = 0, inside = 0;
};
void count_steps(const Program& p, const OpDef& op, bool in_body, Steps& out) {
  for (const Step& s : p.steps) {
    for (const auto& body : s.bodies) count_steps(*body, op, true, out);
    if (s.node >= 0 && p.graph.node(s.node).op == &op) ++(in_body ? out.inside : out.outside);
  }
}
Steps steps_of(const Graph& g, const OpDef& op) {
  const GraphModule m = lower_to(CompileStage::lir, g, *backend_for("cpu"), {}, CompileStage::mir);
  Steps out;
  count_steps(m.as_lir()->plan(), op, false, out);
  return out;
}

// An outer loop whose steps change x, an inner one whose steps change h. w @ w changes nowhere, x @ w in the outer loop alone.
Graph nested() {
  return trace("nested", [](Tracer& t) {
    auto x = t.input("x", {5, 5}), w = t.input("w", {5, 5});
    return t
        .scan({x}, {},
              [&](Tracer& outer, const TracedTensors& c, const TracedTensors&) {
                const TracedTensor h =
                    outer
                        .scan({c[0]}, {},
                              [&](Tracer&, const TracedTensors& d, const TracedTensors&) {
                                return ScanResult{
                                    {(d[0].matmul(w.matmul(w)) + c[0].matmul(w)).tanh()}, {}};
                              },
                              {.length = 4})
                        .carries[0];
                return ScanResult{{h * 0.5}, {}};
              },
              {.length = 3})
        .carries[0]
        .sum();
  });
}

TEST(Hoist, EachProductRunsWhereItChanges) {
  const Steps s = steps_of(nested(), op::matmul.def);
  EXPECT_EQ(s.outside, 1);  // w @ w
  EXPECT_EQ(s.inside, 2);   // one in each loop
  const Graph after = run_pass(nested(), pass::hoist_invariants);
  int products = 0;
  for (const Node& n : after.nodes) products += n.op == &op::matmul;
  EXPECT_EQ(products, 1);
}

// A scan that keeps few carries becomes, in reverse mode, two loops with three bodies.
Graph binomial() {
  return trace("binomial", [](Tracer& t) {
    auto x = t.input("x", {5, 5}), w = t.input("w", {5, 5});
    return t
        .scan({x}, {},
              [&](Tracer&, const TracedTensors& c, const TracedTensors&) {
                return ScanResult{{c[0].matmul(w.matmul(w)).tanh()}, {}};
              },
              {.length = 20, .checkpoints = 3, .binomial = true})
        .carries[0]
        .sum();
  });
}

TEST(Hoist, OutOfSweeps) {
  const Steps s = steps_of(value_and_grad(binomial(), {"x", "w"}), op::matmul.def);
  EXPECT_EQ(s.outside, 1);  // w @ w
  // x (w w) in all three bodies; in the last one the cotangents of x and w w, and two products for that of w.
  EXPECT_EQ(s.inside, 3 + 2 + 2);
}

TEST(Hoist, ValuesAndGradientsStay) {
  const NamedTensors at{{"x", values({5, 5}, 1)}, {"w", values({5, 5}, 2)}};
  for (const Graph& g :
       {nested(), value_and_grad(nested(), {"x", "w"}), value_and_grad(binomial(), {"x", "w"})}) {
    const Tensors want = evaluate(g, at).outputs,
                  moved = evaluate(run_pass(g, pass::hoist_invariants), at).outputs,
                  ran = Session("cpu").compile(g).run(at);
    ASSERT_EQ(want.size(), ran.size());
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_TRUE(want[k].same_bits(moved[k])) << k;
      for (int64_t i = 0; i < want[k].elements(); ++i)
        ASSERT_NEAR(want[k].get_float(i), ran[k].get_float(i), 1e-5) << k << " " << i;
    }
  }
}

// Rows of a table, by ids that may lie outside of it, in every step.
Graph looked_up(bool by_scan) {
  return trace("rows", [&](Tracer& t) {
    auto x = t.input("x", {4}), table = t.input("table", {3, 4});
    auto ids = t.input("ids", {2}, DType::I32);
    const auto next = [&](const TracedTensor& c) {
      return c + op::gather(table, ids).sum({0}) * op::exp(table).sum({0});
    };
    if (by_scan)
      return t
          .scan({x}, {t.input("xs", {Dim::symbol("n")})},
                [&](Tracer&, const TracedTensors& c, const TracedTensors&) {
                  return ScanResult{{next(c[0])}, {}};
                })
          .carries[0];
    Builder cond("cond"), body("body");
    const auto inputs = [](Builder& b) {
      return Values{b.input("c", {DType::F32, {4}}), b.input("t", {DType::F32, {3, 4}}),
                    b.input("i", {DType::I32, {2}}), b.input("m", {DType::F32, {}})};
    };
    const Values c = inputs(cond);
    cond.output(op::lt(cond, op::reduce_sum(cond, c[0], {{0}}), c[3]));
    const Values v = inputs(body);
    const Value rows = op::reduce_sum(body, op::gather(body, v[1], v[2], {0}), {{0}}),
                all = op::reduce_sum(body, op::exp(body, v[1]), {{0}});
    body.output(op::add(body, v[0], op::add(body, op::mul(body, rows, all), all)));
    WhileAttrs attrs;
    attrs.cond = Body(cond.finish()), attrs.body = Body(body.finish()), attrs.num_carries = 1;
    Builder& b = t.builder();
    return TracedTensor(
        b, b.emit(op::while_loop.def, attrs,
                  Values{x.value(), table.value(), ids.value(), t.input("most", {}).value()})[0]);
  });
}

TEST(Hoist, NothingFailsBeforeALoopOfNoSteps) {
  const NamedTensors at{{"x", values({4}, 1)}, {"table", values({3, 4}, 2)}};
  for (const char* device : {"cpu", "reference"})
    for (bool by_scan : {true, false})
      for (int32_t id : {2, 3}) {
        SCOPED_TRACE(fmt::format("{} scan {} id {}", device, by_scan, id));
        CompiledGraph f = Session(device).compile(looked_up(by_scan));
        NamedTensors in = at;
        in["ids"] = Tensor::from<int32_t>({2}, {0, id});
        const std::string last = by_scan ? "xs" : "most";
        in[last] = by_scan ? Tensor(DType::F32, {0}) : Tensor::scalar(DType::F32, -9.0);
        EXPECT_TRUE(f.run(in)[0].same_bits(at.at("x")));
        in[last] = by_scan ? Tensor(DType::F32, {2}) : Tensor::scalar(DType::F32, 9.0);
        if (id == 3) {
          expect_error("index-range", "", [&] { f.run(in); });
          continue;
        }
        const Tensor got = f.run(in)[0], want = evaluate(looked_up(by_scan), in).outputs[0];
        for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(got.get_float(i), want.get_float(i), 1e-5);
      }
  // The sum of exponentials cannot fail: it is computed once, in front.
  const Graph g = run_pass(looked_up(false), pass::hoist_invariants);
  int before = 0, gathers = 0;
  for (const Node& n : g.nodes) before += n.op == &op::exp, gathers += n.op == &op::gather;
  EXPECT_EQ(before, 1);
  EXPECT_EQ(gathers, 0);
}

TEST(Hoist, WhatNobodyReadsOfALoopGoes) {
  const Graph g = trace("unread", [](Tracer& t) {
    auto x = t.input("x", {4}), w = t.input("w", {4, 4});
    const ScanResult r =
        t.scan({x, x}, {},
               [&](Tracer&, const TracedTensors& c, const TracedTensors&) {
                 const TracedTensor a = (c[0] * 2).tanh();
                 return ScanResult{{a, w.matmul(c[1].reshape({4, 1})).reshape({4})}, {c[1] + a, a}};
               },
               {.length = 3});
    return TracedTensors{r.carries[0], r.ys[1]};
  });
  EXPECT_EQ(steps_of(g, op::matmul.def).inside, 0);
  const Graph after = run_pass(g, pass::dead_code);
  for (const Node& n : after.nodes)
    if (n.op == &op::scan) {
      EXPECT_EQ(n.in.size(), 1u);
      EXPECT_EQ(n.out.size(), 2u);
    }
  const NamedTensors at{{"x", values({4}, 1)}, {"w", values({4, 4}, 2)}};
  const Tensors want = evaluate(g, at).outputs, got = evaluate(after, at).outputs;
  for (size_t k = 0; k < 2; ++k) EXPECT_TRUE(want[k].same_bits(got[k]));
}

// (sin(a), a / 2, 0.3 b) in so many loops of one step, whose other results nobody reads.
TracedTensors in_loops(Tracer& t, const TracedTensors& c, int depth) {
  if (depth == 0) return {c[0].sin(), c[0] * 0.5, c[1] * 0.3};
  return t
      .scan(c, {},
            [&](Tracer& inner, const TracedTensors& in, const TracedTensors&) {
              return ScanResult{in_loops(inner, in, depth - 1), {in[0] * 2, in[1]}};
            },
            {.length = 1})
      .carries;
}

// What each loop reads is asked once, however deep: with questions asked again at each level 40 levels would take years.
TEST(Hoist, DeepLoopsAreSearchedOnce) {
  for (const int depth : {3, 40}) {
    const Graph g = jvp(trace("deep",
                              [&](Tracer& t) {
                                auto x = t.input("x", {2});
                                return in_loops(t, {x, x, x}, depth)[0];
                              }),
                        {"x"});
    const Graph after = run_pass(g, pass::dead_code);
    EXPECT_LT(print(after).size(), print(g).size());
    const NamedTensors at{{"x", values({2}, 1)}, {"tangent_x", values({2}, 2)}};
    const Tensors want = evaluate(g, at).outputs, got = evaluate(after, at).outputs;
    for (size_t k = 0; k < want.size(); ++k) EXPECT_TRUE(want[k].same_bits(got[k])) << depth;
  }
}

}  // namespace
}  // namespace rlx
