// The optimizer under the names of its documents: control flow, parameters, derivatives, what a backend makes of a program.
#include <gtest/gtest.h>

#include <cstdlib>

#include "../support/expect_error.h"
#include "rlx/build.h"
#include "rlx/front/trace.h"
#include "rlx/ops/blocks/fused.h"
#include "rlx/ops/control/loops.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/quant/quantise.h"
#include "rlx/opt.h"
#include "rlx/rewrite/pattern.h"
#include "rlx/runtime/runtime.h"

namespace rlx {
namespace {

int count_op(const Graph& g, const OpDef& op) {
  int n = 0;
  for (const Node& node : g.nodes) n += node.op == &op;
  return n;
}

Tensor scalar(double v) { return Tensor::scalar(DType::F32, v); }
double run(const Graph& g, const NamedTensors& leaves, size_t output = 0) {
  return evaluate(g, leaves).outputs.at(output).get_float(0);
}

// ---- control flow

// x -> f(x), over f32 scalars.
template <class F>
Graph body(size_t inputs, F f) {
  GraphBuilder g("body");
  Values in;
  for (size_t i = 0; i < inputs; ++i)
    in.push_back(g.input(fmt::format("x{}", i), {DType::F32, {}}));
  g.set_outputs(f(g, in));
  return g.finish();
}
Graph times(double factor) {
  return body(1, [&](GraphBuilder& g, const Values& x) -> Values {
    return {g.mul(x[0], g.add_node({op::constant, {Tensor::scalar(DType::F32, factor)}}, {}))};
  });
}
Graph below(size_t inputs, double limit) {
  return body(inputs, [&](GraphBuilder& g, const Values& x) -> Values {
    return {g.lt(x[0], g.add_node({op::constant, {Tensor::scalar(DType::F32, limit)}}, {}))};
  });
}

Graph branch_and_loop(std::optional<int64_t> bound = 2) {
  GraphBuilder g("control");
  const NodeId p = g.input("p", {DType::Bool, {}}), x = g.input("x", {DType::F32, {}});
  const NodeId y = g.if_(p, {x}, times(2), times(-1))[0];
  g.set_outputs(g.while_({y}, below(1, 10), times(3), bound));
  return g.finish();
}

TEST(OptControl, BranchesAndLoopsBecomeSelections) {
  const Graph g = branch_and_loop(), flat = opt::LowerControlFlow().run(g);
  EXPECT_EQ(count_op(flat, op::cond.def) + count_op(flat, op::while_loop.def), 0);
  EXPECT_EQ(count_op(flat, op::select.def), 3);
  EXPECT_EQ(count_op(flat, op::mul.def), 4);
  for (bool p : {true, false})
    for (double x : {1.0, 4.0, 20.0}) {
      const NamedTensors at{{"p", Tensor::scalar(DType::Bool, p)}, {"x", scalar(x)}};
      EXPECT_EQ(run(flat, at), run(g, at)) << p << " " << x;
    }
  EXPECT_EQ(count_op(opt::inline_if(g), op::while_loop.def), 1);
  EXPECT_EQ(count_op(opt::unroll_while(g), op::cond.def), 1);

  GraphBuilder two("two");
  const NodeId a = two.input("a", {DType::F32, {}}), b = two.input("b", {DType::F32, {}});
  const Graph step =
      body(2, [](GraphBuilder& s, const Values& x) -> Values { return {s.add(x[0], x[1]), x[0]}; });
  two.set_outputs(two.while_({a, b}, below(2, 10), step, 3));
  const Graph pair = two.finish(), unrolled = opt::LowerControlFlow().run(pair);
  EXPECT_EQ(count_op(unrolled, op::select.def), 6);
  for (double x : {1.0, 5.0, 12.0})
    for (size_t k : {0, 1})
      EXPECT_EQ(run(unrolled, {{"a", scalar(x)}, {"b", scalar(2)}}, k),
                run(pair, {{"a", scalar(x)}, {"b", scalar(2)}}, k));
}

TEST(OptControl, InsideOfBodies) {
  const Graph g = trace("nested", [](Tracer& t) {
    auto x = t.input("x", {});
    auto step = [&](Tracer& inner, const TracedTensors& c, const TracedTensors&) -> ScanResult {
      return {inner.cond(
                  c[0] < 4, [&](Tracer&) { return c[0] * 2; }, [&](Tracer&) { return c[0] - 1; }),
              {}};
    };
    return t.scan({x}, {}, step, {.length = Dim(3)}).carries[0];
  });
  const Graph flat = opt::LowerControlFlow().run(g);
  for (const Node& n : flat.nodes)
    for (const NamedBody& b : bodies(n.attrs)) EXPECT_EQ(count_op(b.graph, op::cond.def), 0);
  EXPECT_EQ(run(flat, {{"x", scalar(3)}}), run(g, {{"x", scalar(3)}}));
}

// While p holds, x grows, and p is whether x is not 2: at 2 it ends. The step beyond would make it hold again.
TEST(OptControl, LoopsThatEndStayEnded) {
  const Graph is_one = body(2, [](GraphBuilder& b, const Values& v) -> Values {
    return {b.gt(v[1], b.add_node({op::constant, {scalar(0)}}, {}))};
  });
  // (x, p) -> (x + 1, 1 - p): p is 1, then 0, then 1 again.
  const Graph step = body(2, [](GraphBuilder& b, const Values& v) -> Values {
    const NodeId one = b.add_node({op::constant, {scalar(1)}}, {});
    return {b.add(v[0], one), b.sub(one, v[1])};
  });
  GraphBuilder g("ends");
  const NodeId x = g.input("x", {DType::F32, {}}), p = g.input("p", {DType::F32, {}});
  g.set_outputs(g.while_({x, p}, is_one, step, 5));
  const Graph loop = g.finish(), flat = opt::unroll_while(loop);
  for (double start : {0.0, 1.0})
    for (size_t k : {0, 1})
      EXPECT_EQ(run(flat, {{"x", scalar(7)}, {"p", scalar(start)}}, k),
                run(loop, {{"x", scalar(7)}, {"p", scalar(start)}}, k));
  EXPECT_EQ(run(flat, {{"x", scalar(7)}, {"p", scalar(1)}}), 8);
}

TEST(OptControl, LoopsThatCannotBeUnrolled) {
  const Graph g = branch_and_loop({});
  expect_error("while-unbounded", "max_iterations", [&] { opt::unroll_while(g); });
  EXPECT_EQ(count_op(opt::LowerControlFlow(true).run(g), op::while_loop.def), 1);
  expect_error("unroll-size", "100000", [] { opt::unroll_while(branch_and_loop(1'000'000)); });
  expect_error("pass-option", "refuse or keep",
               [&] { run_passes(g, parse_pipeline("lower_control_flow(unbounded=maybe)")); });
}

// ---- inlining and parameters

Graph affine() {
  return trace("affine", [](Tracer& t) { return t.input("x", {2}) * t.param("w", {2}) + 1; });
}

TEST(OptInline, GraphsIntoGraphs) {
  Builder b("outer");
  const Value x = b.input("in", {DType::F32, {2}}), v = b.param("v", {DType::F32, {2}});
  const Value once = opt::inline_into(b, affine(), {{"x", x}})[0];
  const Value twice = opt::inline_into(b, affine(), {{"x", once}})[0];  // the same parameter
  const opt::LeafMap params{{"w", v}};
  b.output(opt::inline_into(b, affine(), {{"x", twice}}, &params)[0]);
  b.output(opt::inline_subgraph_into(affine(), Values{x}, b));
  expect_error("unbound-input", "\"x\"", [&] { opt::inline_into(b, affine(), {}); });
  const opt::LeafMap none;
  expect_error("unbound-param", "\"w\"", [&] { opt::inline_into(b, affine(), {{"x", x}}, &none); });
  const Value wrong = b.constant(DType::F32, 1);
  expect_error("leaf-type", "[2] f32", [&] { opt::inline_into(b, affine(), {{"x", wrong}}); });
  Graph counts = trace("counts", [](Tracer& t) {
    auto n = t.param("n", {2});
    t.update("n", n + 1);
    return t.input("x", {2}) * n;
  });
  expect_error("update-inline", "\"counts\" updates the parameter \"n\"",
               [&] { opt::inline_into(b, counts, {{"x", x}}); });
  expect_error("update-inline", "\"n\"", [&] { opt::inline_subgraph_into(counts, Values{x}, b); });
  expect_error("body-inputs", "1 inputs, not 0",
               [&] { opt::inline_subgraph_into(affine(), {}, b); });
  Graph nothing = affine();
  nothing.outputs.clear();
  expect_error("output-index", "no output",
               [&] { opt::inline_subgraph_into(nothing, Values{x}, b); });
  const Graph g = b.finish();
  EXPECT_EQ(g.params().size(), 2u);
  NamedTensors at{{"in", Tensor::full(DType::F32, {2}, 3)},
                  {"w", Tensor::full(DType::F32, {2}, 2)},
                  {"v", Tensor::full(DType::F32, {2}, 10)}};
  EXPECT_EQ(run(g, at), 151);  // ((3 * 2 + 1) * 2 + 1) * 10 + 1
  EXPECT_EQ(run(g, at, 1), 7);
}

TEST(OptParams, BecomeInputsOrConstants) {
  const Graph g = affine();
  const Graph in = opt::promote_params_to_inputs(g, {"w", "nosuch"});
  EXPECT_EQ(in.size(), g.size());
  EXPECT_EQ(in.inputs().size(), 2u);
  EXPECT_TRUE(in.params().empty());
  const Tensor w = Tensor::full(DType::F32, {2}, 4);
  const Graph fixed = opt::SpecializeParams({{"w", w}}).run(g);
  EXPECT_TRUE(fixed.params().empty());
  EXPECT_EQ(run(fixed, {{"x", Tensor::full(DType::F32, {2}, 3)}}), 13);
  expect_error("no-leaf", "\"x\"", [&] { opt::specialize_params(g, {{"x", w}}); });
  expect_error("leaf-type", "[2] f32",
               [&] { opt::specialize_params(g, {{"w", Tensor::full(DType::F64, {2}, 4)}}); });
  const Graph counter = trace("c", [](Tracer& t) { t.update("n", t.param("n", {}) + 1); });
  expect_error("update-input", "\"n\"", [&] { opt::promote_params_to_inputs(counter, {"n"}); });
  expect_error("update-constant", "\"n\"",
               [&] { opt::specialize_params(counter, {{"n", scalar(1)}}); });
}

// ---- scalar optimisations

TEST(OptScalars, FoldSimplifyShareAndDrop) {
  Builder b("fold");
  const Value x = b.input("x", {DType::F32, {}});
  b.output(op::add(b, b.constant(DType::F32, 2), b.constant(DType::F32, 3)));
  b.output(op::add(b, x, b.constant(DType::F32, 1)));
  const Graph folded = opt::ConstantFolding().run(b.finish());
  EXPECT_EQ(splat_value(folded, folded.outputs[0]), Complex(5));
  EXPECT_EQ(folded.node(folded.outputs[0]).op, &op::constant);
  EXPECT_EQ(folded.node(folded.outputs[1]).op, &op::add);

  const Graph zero = trace("zero", [](Tracer& t) { return t.input("x", {2, 3}) * 0; });
  const Graph none = opt::AlgebraicSimplify().run(zero);
  EXPECT_EQ(splat_value(none, none.outputs[0]), Complex(0));
  EXPECT_EQ(count_op(opt::AlgebraicSimplify(false).run(zero), op::mul.def), 1);
  EXPECT_EQ(splat_value(opt::algebraic_simplify(zero), none.outputs[0]), Complex(0));

  const Graph shared = opt::cse(trace("twice", [](Tracer& t) {
    auto x = t.input("x", {3});
    return x.exp() + x.exp();
  }));
  EXPECT_EQ(shared.name, "twice_cse");
  EXPECT_EQ(count_op(shared, op::exp.def), 1);

  const Graph dead = trace("dead", [](Tracer& t) {
    auto x = t.input("x", {2, 3}), w = t.param("w", {3, 4});
    t.param("unused", {5});
    return x.matmul(w);
  });
  ASSERT_EQ(dead.size(), 4);
  EXPECT_EQ(opt::DeadCodeElimination().run(dead).size(), 3);
}

TEST(OptScalars, BroadcastsAreMadeExplicit) {
  const auto sum = [](Shape a, Shape c) {
    return trace("sum", [&](Tracer& t) { return t.input("a", a) + t.input("c", c); });
  };
  const Graph g = sum({1, 2, 3, 3}, {1, 2, 1, 1}), legal = opt::LegalizeBroadcast().run(g);
  EXPECT_EQ(count_op(legal, op::broadcast.def), 1);
  EXPECT_EQ(legal.node(legal.nodes.back().in[1]).type().shape, (Shape{1, 2, 3, 3}));
  EXPECT_EQ(count_op(opt::LegalizeBroadcast().run(sum({2, 3}, {2, 3})), op::broadcast.def), 0);
  EXPECT_EQ(count_op(opt::LegalizeBroadcast().run(sum({2, 3}, {3})), op::broadcast.def), 0);
  EXPECT_EQ(count_op(opt::LegalizeBroadcast().run(sum({2, 3}, {})), op::broadcast.def), 0);
  const auto [again, map] = opt::legalize_broadcast::run_with_remap(g);
  EXPECT_EQ(map.at(g.outputs[0]), again.outputs[0]);
  EXPECT_EQ(again, opt::legalize_broadcast::run(g));
  const Graph choice = trace("choice", [](Tracer& t) {
    auto c = t.input("c", {2, 1}, DType::Bool);
    return where(c, t.input("x", {2, 3}), t.input("y", {2, 3}));
  });
  EXPECT_EQ(count_op(opt::LegalizeBroadcast().run(choice), op::broadcast.def), 1);
}

TEST(OptScalars, ProductsOverAnyAxes) {
  GraphBuilder g("dot");
  const NodeId a = g.input("a", {DType::F32, {2, 3, 4}}), b = g.input("b", {DType::F32, {4, 2, 5}});
  g.set_outputs({g.dot_general(a, b, {2}, {0}, {0}, {1})});
  const Graph whole = g.finish(), parts = opt::LowerDotGeneral().run(whole);
  EXPECT_EQ(count_op(parts, op::dot_general.def), 0);
  EXPECT_EQ(count_op(parts, op::matmul.def), 1);
  EXPECT_EQ(parts.output_types(), whole.output_types());
  NamedTensors at;
  for (Value v : whole.inputs()) {
    Tensor t(DType::F32, whole.type(v).shape.sizes());
    for (int64_t i = 0; i < t.elements(); ++i) t.set_float(i, static_cast<double>(i % 7));
    at[whole.node(v).get<LeafAttrs>().name] = t;
  }
  const Tensor x = evaluate(whole, at).outputs[0], y = evaluate(parts, at).outputs[0];
  for (int64_t i = 0; i < x.elements(); ++i) EXPECT_EQ(x.get_float(i), y.get_float(i));
}

// ---- derivatives

Graph cube() {
  return trace("cube", [](Tracer& t) {
    auto x = t.param("x", {});
    return x * x * x;
  });
}

TEST(OptAutodiff, ReverseAndForward) {
  const NamedTensors at{{"x", scalar(2)}};
  const Graph both = opt::grad_with_loss(cube(), {"x"});
  ASSERT_EQ(both.outputs.size(), 2u);
  EXPECT_EQ(run(both, at), 8);
  EXPECT_EQ(run(both, at, 1), 12);
  EXPECT_FALSE(both.find_leaf("d_output").valid());
  EXPECT_EQ(run(opt::grad(cube(), {"x"}), at), 12);
  const Graph forward = opt::jvp(cube(), {"x"});
  EXPECT_EQ(run(forward, {{"x", scalar(2)}, {"tangent_x", scalar(0.5)}}, 1), 6);
  const Graph second = opt::hvp(cube(), {"x"});
  EXPECT_EQ(second.outputs.size(), 4u);  // loss, gradient, <gradient, v>, H v
  EXPECT_EQ(run(second, {{"x", scalar(2)}, {"tangent_x", scalar(1)}}, 3), 12);
  const Graph many =
      opt::vmap(trace("f", [](Tracer& t) { return t.input("x", {3}) * 2; }), {"x"}, 4);
  EXPECT_EQ(many.output_types()[0].shape, (Shape{4, 3}));
}

TEST(OptAutodiff, LossesThatAreNoScalars) {
  const Graph g = trace("sum", [](Tracer& t) { return t.input("x", {3}) + t.input("y", {3}); });
  const Graph d = opt::grad_with_loss(g, {"x", "y"});
  EXPECT_EQ(d.outputs.size(), 3u);
  EXPECT_EQ(opt::grad(g, {"x", "y"}).outputs.size(), 2u);
  EXPECT_EQ(d.type(d.find_leaf("d_output")).shape, (Shape{3}));
  const Tensor seed = Tensor::from<float>({3}, std::vector<float>{1, 2, 3});
  const Tensor ones = Tensor::full(DType::F32, {3}, 1);
  EXPECT_EQ(evaluate(d, {{"x", ones}, {"y", ones}, {"d_output", seed}}).outputs[2].get_float(2), 3);
}

TEST(OptAutodiff, ByValuesInside) {
  Builder b("inside");
  const Value x = b.input("x", {DType::F32, {}}), s = op::square(b, x);
  b.output(op::exp(b, s));
  b.output(s);
  const Graph g = b.finish(), d = opt::grad_with_loss(g, {s});
  ASSERT_EQ(d.outputs.size(), 3u);  // loss, aux, the gradient
  EXPECT_NEAR(run(d, {{"x", scalar(0.5)}}, 2), std::exp(0.25), 1e-6);
  EXPECT_EQ(opt::grad(g, {s}).outputs.size(), 1u);
  expect_error("not-leaf", "square", [&] { opt::jvp(g, {s}); });
  expect_error("operand-value", "%99", [&] { opt::grad(g, {Value{99, 0}}); });
}

TEST(OptAutodiff, UnusedLeaves) {
  const Graph g = trace("g", [](Tracer& t) {
    t.param("unused", {2});
    return t.input("x", {}).exp();
  });
  expect_error("no-gradient", "unused", [&] { opt::grad_with_loss(g, {"unused"}); });
  const Graph d = opt::grad_with_loss_opts(g, {"unused"}, opt::GradWithLossOptions::training());
  EXPECT_EQ(run(d, {{"x", scalar(1)}, {"unused", Tensor::full(DType::F32, {2}, 1)}}, 1), 0);
  expect_error("no-gradient", "unused", [&] {
    opt::grad_with_loss_opts(g, {"unused"}, opt::GradWithLossOptions::strict());
  });
}

GraphModule linear_module() {
  return GraphModule::define("m", [](HirModule& h) {
    const HirNodeId x = h.input("x", {DType::F32, {2, 8}}), w = h.param("w", {DType::F32, {8, 3}}),
                    b = h.param("b", {DType::F32, {3}});
    return h.linear_fused(x, w, b, Activation::gelu);
  });
}

TEST(OptAutodiff, Modules) {
  const Graph d = opt::grad_with_loss_module(linear_module(), {"w"});
  EXPECT_EQ(d.outputs.size(), 2u);
  EXPECT_EQ(count_op(d, op::fused_matmul_bias_act.def), 0);
  EXPECT_EQ(opt::jvp_module(linear_module(), {"x"}).outputs.size(), 2u);
  const GraphModule scalars(cube());
  EXPECT_EQ(run(opt::hvp_module(scalars, {"x"}), {{"x", scalar(2)}, {"tangent_x", scalar(1)}}, 3),
            12);
  EXPECT_EQ(run(opt::nth_order_grad_module(scalars, "x", 2), {{"x", scalar(2)}}), 12);
  EXPECT_EQ(opt::MirAutodiffExt::grad_with_loss(MirModule(cube()), {"x"}).outputs.size(), 2u);
  const GraphModule lir = LirModule(MirModule(cube()));
  try {
    opt::grad_with_loss_module(lir, {"x"});
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(opt::autodiff_error(e), opt::AutodiffError::wrong_stage);
    EXPECT_TRUE(e.message().starts_with("autodiff: cannot run on LIR stage — ")) << e.what();
  }
  expect_error("autodiff-stage", "LIR", [&] { opt::jvp_module(lir, {"x"}); });
  expect_error("autodiff-stage", "LIR", [&] { opt::prepare_module_for_ad(lir); });
}

TEST(OptAutodiff, ErrorsInTheDocumentsWords) {
  const auto meaning = [](FunctionRef<void()> f) -> std::optional<opt::AutodiffError> {
    try {
      f();
    } catch (const Error& e) {
      return opt::autodiff_error(e);
    }
    return {};
  };
  EXPECT_EQ(meaning([] { opt::grad(cube(), {"y"}); }), opt::AutodiffError::no_such_leaf);
  EXPECT_EQ(meaning([] { opt::unroll_while(branch_and_loop({})); }),
            opt::AutodiffError::unbounded_while);
  const Graph ints = trace("i", [](Tracer& t) { return t.input("x", {}, DType::I32) + 1; });
  EXPECT_EQ(meaning([&] { opt::grad(ints, {"x"}); }), opt::AutodiffError::unsupported_dtype);
  EXPECT_FALSE(opt::autodiff_error(Error(ErrorKind::user, "axis-range", "")).has_value());
}

TEST(OptAutodiff, HigherOrders) {
  const Graph third = opt::nth_order_grad(cube(), "x", 3);
  EXPECT_EQ(run(third, {{"x", scalar(2)}}), 6);
  EXPECT_FALSE(third.find_leaf("d_output").valid());
  EXPECT_EQ(opt::nth_order_grad(cube(), "x", 0), cube());
  const Graph sine = trace("s", [](Tracer& t) {
    auto x = t.input("x", {});
    return (x * x).sin();
  });
  const Graph fused = opt::nth_order_grad_with_options(sine, "x", 2, {.fuse_elementwise = true});
  EXPECT_GT(count_op(fused, op::region.def), 0);
  EXPECT_NEAR(run(fused, {{"x", scalar(0.7)}}), 2 * std::cos(0.49) - 4 * 0.49 * std::sin(0.49),
              1e-5);
  EXPECT_TRUE(opt::HigherOrderOptions::make().fuse_elementwise);
  EXPECT_FALSE(opt::HigherOrderOptions{}.fuse_elementwise);
  const Graph along = opt::directional_nth_grad(trace("q",
                                                      [](Tracer& t) {
                                                        auto x = t.input("x", {2});
                                                        return (x * x * x).sum();
                                                      }),
                                                "x", {"u", ""});
  const Tensor x = Tensor::from<float>({2}, std::vector<float>{1, 2}),
               u = Tensor::full(DType::F32, {2}, 1);
  EXPECT_EQ(run(along, {{"x", x}, {"u", u}, {"dir_1", u}}), 18);  // 6 * 1 + 6 * 2
  Graph two = cube();
  two.outputs.push_back(two.outputs[0]);
  expect_error("output-count", "2 outputs", [&] { opt::nth_order_grad(two, "x", 1); });
}

TEST(OptAutodiff, GraphsInASimplerForm) {
  const Graph fused = std::move(linear_module()).into_graph();
  EXPECT_EQ(count_op(fused, op::fused_matmul_bias_act.def), 1);
  EXPECT_EQ(count_op(opt::unfuse_fused_for_autodiff(fused), op::fused_matmul_bias_act.def), 0);
  const Graph flat = opt::prepare_graph_for_ad(branch_and_loop());
  EXPECT_EQ(count_op(flat, op::cond.def) + count_op(flat, op::while_loop.def), 0);
  EXPECT_EQ(opt::prepare_mir_for_ad(branch_and_loop()).as_graph(), flat);
  EXPECT_EQ(opt::MirAutodiffExt::prepare_for_autodiff(branch_and_loop()).as_graph(), flat);
  EXPECT_EQ(*opt::prepare_module_for_ad(GraphModule(branch_and_loop())).as_graph(), flat);
  EXPECT_EQ(opt::PrepareForAutodiff().run(branch_and_loop()), flat);
  EXPECT_EQ(opt::PrepareForAutodiff().name(), "prepare_for_autodiff");

  GraphBuilder g("fn");
  const NodeId x = g.input("x0", {DType::F32, {}});
  const Graph derivative = [] {
    GraphBuilder d("vjp");
    d.input("x0", {DType::F32, {}});
    d.input("primal_output", {DType::F32, {}});
    d.set_outputs({d.input("d_output", {DType::F32, {}})});
    return d.finish();
  }();
  g.set_outputs({g.custom_fn({x}, times(3)), g.custom_fn({x}, times(3), derivative)});
  const Graph functions = g.finish();
  EXPECT_EQ(count_op(opt::inline_custom_fn_for_autodiff(functions), op::custom_fn.def), 1);

  GraphBuilder s("scan");
  const NodeId init = s.input("x0", {DType::F32, {}});
  s.set_outputs({s.scan_checkpointed(init, times(2), 4, 2)});
  const Graph checkpointed = s.finish(), plain = opt::convert_scans_for_ad(checkpointed);
  EXPECT_EQ(count_op(plain, op::scan_checkpointed.def), 0);
  EXPECT_EQ(run(plain, {{"x0", scalar(1)}}), 16);
}

TEST(OptAutodiff, GradientsWithoutBackwardOps) {
  const Graph f = trace("f", [](Tracer& t) {
    auto x = t.param("x", {3, 4});
    return x.layer_norm(t.param("g", {4}), t.param("b", {4})).gelu().sum();
  });
  const auto backward_ops = [](const Graph& g) {
    int n = 0;
    for (const Node& node : g.nodes) n += node.op->name.find("backward") != std::string_view::npos;
    return n;
  };
  const Graph sub = opt::grad_subgraph(f, {"x"});
  EXPECT_EQ(backward_ops(sub), 0);
  EXPECT_EQ(sub.outputs.size(), 2u);
  EXPECT_EQ(opt::grad_subgraph_for_jvp(f, {"x"}), sub);
  const Graph d = opt::grad_with_loss(f, {"x", "g"});
  const Graph one = opt::decompose_backward_for_ad(d, 1);
  EXPECT_EQ(one.output_types()[0].shape, (Shape{4}));
  EXPECT_EQ(backward_ops(one), 0);
  expect_error("output-index", "no gradient 2", [&] { opt::decompose_backward_for_ad(d, 2); });
  expect_error("output-index", "no gradient", [&] { opt::decompose_backward_for_ad(d, SIZE_MAX); });
  Graph none = d;
  none.outputs.clear();
  expect_error("output-index", "0 outputs", [&] { opt::decompose_backward_for_ad(none, 0); });
  const Graph open =
      opt::grad_with_loss(trace("v", [](Tracer& t) { return t.input("x", {3}).exp(); }), {"x"});
  EXPECT_TRUE(open.find_leaf("d_output").valid());
  EXPECT_FALSE(opt::prepare_grad_graph_for_jvp(open).find_leaf("d_output").valid());
}

TEST(OptAutodiff, BitsOfQuantisedWeights) {
  GraphBuilder g("q");
  const NodeId x = g.input("x", {DType::F32, {4}});
  const NodeId q = g.fake_quantize(x, 4, {}, SteKind::identity, ScaleMode::per_batch);
  g.set_outputs({q});
  const Graph graph = g.finish();
  EXPECT_EQ(opt::quantized_weight_bits(graph, q), 4);
  EXPECT_EQ(opt::quantized_weight_bits(graph, x), std::nullopt);
}

TEST(OptAutodiff, ForcesAndEnergies) {
  const Graph energy = trace("e", [](Tracer& t) {
    auto p = t.input("p", {2, 3});
    return (p * p).sum() * t.param("k", {});
  });
  const Graph loss =
      opt::build_force_energy_loss(energy, {"p"}, {"f"}, "e0", opt::ForceEnergyLossWeights{2, 3});
  const Tensor p = Tensor::full(DType::F32, {2, 3}, 1), f = Tensor::full(DType::F32, {2, 3}, 0);
  // forces -2 k p = -2, energy 6: 2 * 4 + 3 * 36
  EXPECT_NEAR(run(loss, {{"p", p}, {"f", f}, {"e0", scalar(0)}, {"k", scalar(1)}}), 116, 1e-4);
}

// ---- legalisation and dispatch

Graph fused_linear() {
  GraphBuilder g("linear");
  const NodeId x = g.input("x", {DType::F32, {2, 8}}), w = g.param("w", {DType::F32, {8, 3}}),
               b = g.param("b", {DType::F32, {3}});
  g.set_outputs({g.fused_matmul_bias_act(x, w, b, Activation::gelu, {})});
  return g.finish();
}

const opt::Claim kPrimitives{"Input", "Param", "MatMul", "Binary", "Expand", "Activation"};

TEST(OptDispatch, WhatIsNotClaimedIsListed) {
  const Graph g = trace(
      "g", [](Tracer& t) { return t.input("x", {2, 8}).matmul(t.param("w", {8, 3})).gelu(); });
  EXPECT_TRUE(opt::legalize_for_backend(g, {}).empty());
  const auto bad = opt::legalize_for_backend(g, {"Input", "Param", "MatMul"});
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0], (opt::Offender{{3, 0}, "gelu", "%3"}));
  const std::string text = opt::format_legalize_error("npu", bad);
  for (const char* part : {"\"npu\"", "1 op kind", "gelu", "%3"})
    EXPECT_NE(text.find(part), text.npos) << text;
  expect_error("legalise", "gelu", [&] { opt::require_legal("npu", bad); });
  opt::require_legal("npu", {});
  expect_error("claim-op", "did you mean matmul",
               [&] { opt::legalize_for_backend(g, {"matmull"}); });
  const Graph loop = opt::LowerDotGeneral().run(branch_and_loop());
  const auto inside = opt::legalize_for_backend(loop, {"Input", "If", "While", "Constant"});
  ASSERT_FALSE(inside.empty());
  EXPECT_NE(inside[0].where.find("body/%"), std::string::npos) << inside[0].where;
}

TEST(OptDispatch, WhatIsNotClaimedIsRewritten) {
  const auto [graph, errors] = opt::legalize_or_rewrite_for_backend(fused_linear(), kPrimitives);
  EXPECT_TRUE(errors.empty());
  EXPECT_EQ(count_op(graph, op::matmul.def), 1);
  EXPECT_EQ(opt::rewrite_for_backend(graph, kPrimitives), graph);
  const auto [again, report] = opt::prepare_graph_for_backend_with_report(
      fused_linear(), "npu", kPrimitives, opt::KernelDispatchConfig{});
  EXPECT_EQ(again, graph);
  ASSERT_EQ(report.summaries[0].kind, "fused_matmul_bias_act");
  EXPECT_EQ(report.summaries[0].path, opt::DispatchPath::rewritten);
  EXPECT_EQ(report.summaries[0].logical_name, "FusedMatMulBiasAct");
  EXPECT_TRUE(report.compile_ready);
  // Only what is not claimed is taken apart.
  opt::Claim more = kPrimitives;
  more.push_back("FusedMatMulBiasAct");
  EXPECT_EQ(opt::rewrite_for_backend(fused_linear(), more), fused_linear());
  const auto flat = opt::legalize_or_rewrite_for_backend(
      branch_and_loop(), {"Input", "Constant", "Binary", "Compare", "Where"});
  EXPECT_TRUE(flat.errors.empty());
}

TEST(OptDispatch, BodiesAreRewritten) {
  const Graph g = trace("loop", [](Tracer& t) {
    auto x = t.input("x", {3});
    auto step = [](Tracer&, const TracedTensors& c, const TracedTensors&) -> ScanResult {
      return {{c[0].softmax()}, {}};
    };
    return t.scan({x}, {}, step, {.length = Dim(2)}).carries[0];
  });
  const opt::Claim claim{"input",  "scan",          "constant",  "exp",     "sub",
                         "div",    "stop_gradient", "log",       "reshape", "Reduce",
                         "Expand", "reduce_max",    "reduce_sum"};
  EXPECT_EQ(opt::legalize_for_backend(g, claim)[0].where, "%1.body/%1");
  const auto rewritten = opt::legalize_or_rewrite_for_backend(g, claim);
  EXPECT_TRUE(rewritten.errors.empty()) << opt::format_legalize_error("one", rewritten.errors);
}

TEST(OptDispatch, PoliciesAndOverrides) {
  using opt::KernelDispatchPolicy;
  const Graph g = fused_linear();
  EXPECT_EQ(opt::rewrite_for_backend_with_dispatch(g, {}, KernelDispatchPolicy::prefer_native), g);
  const Graph common =
      opt::rewrite_for_backend_with_dispatch(g, {}, KernelDispatchPolicy::force_common);
  EXPECT_EQ(count_op(common, op::fused_matmul_bias_act.def), 0);
  const auto native = opt::legalize_or_rewrite_for_backend_with_dispatch(
      g, kPrimitives, KernelDispatchPolicy::force_native);
  EXPECT_EQ(native.errors.size(), 1u);
  const auto kept = opt::legalize_or_rewrite_for_backend_with_config(
      g, kPrimitives, {{}, {}, {"fused_matmul_bias_act"}});
  EXPECT_EQ(kept.errors.size(), 1u);
  const Graph forced = opt::rewrite_for_backend_with_config(
      g, {}, {KernelDispatchPolicy::prefer_native, {"FusedMatMulBiasAct"}, {}});
  EXPECT_EQ(count_op(forced, op::fused_matmul_bias_act.def), 0);
  expect_error("claim-op", "\"nosuch\"", [&] {
    opt::rewrite_for_backend_with_config(g, {},
                                         {KernelDispatchPolicy::prefer_native, {"nosuch"}, {}});
  });
  ::setenv("RLX_KERNEL_DISPATCH", "common", 1);
  EXPECT_EQ(opt::KernelDispatchConfig::from_env().policy, KernelDispatchPolicy::force_common);
  ::setenv("RLX_KERNEL_DISPATCH", "ForceNative", 1);
  EXPECT_EQ(opt::KernelDispatchConfig::from_env().policy, KernelDispatchPolicy::force_native);
  ::unsetenv("RLX_KERNEL_DISPATCH");
  EXPECT_EQ(opt::KernelDispatchConfig::from_env().policy, KernelDispatchPolicy::prefer_native);
}

TEST(OptDispatch, Reports) {
  const auto report = opt::analyze_dispatch(fused_linear(), "npu", kPrimitives, {});
  EXPECT_FALSE(report.compile_ready);
  EXPECT_EQ(opt::format_dispatch_report(report),
            "rlx dispatch report — backend \"npu\", policy PreferNative, supported_ops claim=6\n"
            "  native:\n    - input ×1 nodes\n    - param ×2 nodes\n"
            "  unsupported:\n    - fused_matmul_bias_act ×1 nodes logical=FusedMatMulBiasAct\n"
            "  still unsupported after rewrite (1 node(s)) — compile will fail:\n"
            "    - node %3: fused_matmul_bias_act\n"
            "  claim these ops, or rewrite the graph before\n");
  const auto common = opt::prepare_graph_for_backend_with_report(
      fused_linear(), "npu", {}, {opt::KernelDispatchPolicy::force_common, {}, {}});
  const std::string text = opt::format_dispatch_report(common.second);
  for (const char* part : {"empty claim", "common-ir lowering", "compile-ready: yes",
                           "fused_matmul_bias_act (FusedMatMulBiasAct)"})
    EXPECT_NE(text.find(part), text.npos) << text;
  const std::string json = report.to_json();
  for (const char* part :
       {"\"backend\": \"npu\"", "\"path\": \"unsupported\"", "\"where\": \"%3\""})
    EXPECT_NE(json.find(part), json.npos) << json;
  EXPECT_EQ(opt::label(opt::DispatchPath::common_ir), "common-ir");
}

TEST(OptDispatch, ReportsOnDemand) {
  const auto report = opt::analyze_dispatch(fused_linear(), "npu", {});
  const auto logged = [&] {
    ::testing::internal::CaptureStderr();
    opt::maybe_log_dispatch_report(report);
    return ::testing::internal::GetCapturedStderr();
  };
  ::unsetenv("RLX_VERBOSE");
  ::setenv("RLX_DISPATCH_REPORT", "Off", 1);
  EXPECT_EQ(logged(), "");
  ::setenv("RLX_DISPATCH_REPORT", "1", 1);
  EXPECT_EQ(logged(), opt::format_dispatch_report(report));
  ::unsetenv("RLX_DISPATCH_REPORT");
}

// ---- targets

TEST(OptTargets, ClaimsComeFromKernels) {
  const opt::Claim cpu = opt::supported_for_target(opt::FusionTarget::cpu);
  for (const char* name : {"matmul", "add", "region", "input", "conv", "while_loop"})
    EXPECT_TRUE(opt::supports_op(cpu, name)) << name;
  EXPECT_FALSE(opt::supports_op(cpu, "fused_transformer_layer"));
  EXPECT_TRUE(opt::supports_op({}, "fused_transformer_layer"));
  EXPECT_TRUE(opt::supports_op({"Binary"}, "add"));
  EXPECT_TRUE(opt::supports_op({"add"}, "Binary"));
  expect_error("claim-op", "nosuch", [] { opt::supports_op({}, "nosuch"); });
  expect_error("fusion-target", "it has cpu",
               [] { opt::supported_for_target(opt::FusionTarget::metal); });
  // The device runs what it claims, and all of a program that was rewritten for it.
  EXPECT_TRUE(opt::legalize_or_rewrite_for_backend(fused_linear(), cpu).errors.empty());
}

TEST(OptTargets, NamesAndLimits) {
  EXPECT_EQ(opt::name(opt::FusionTarget::rocm), "rocm");
  EXPECT_EQ(opt::fusion_target_of("vulkan"), opt::FusionTarget::wgpu);
  EXPECT_EQ(opt::fusion_target_of("tpu"), opt::FusionTarget::tpu);
  EXPECT_EQ(opt::fusion_target_of("abacus"), opt::FusionTarget::cpu);
  EXPECT_EQ(opt::fusion_limits_for_target(opt::FusionTarget::cpu), opt::FusionLimits::unbounded());
  EXPECT_EQ(opt::fusion_limits_for_target(opt::FusionTarget::tpu), (opt::FusionLimits{32, 16}));
  EXPECT_EQ(opt::FusionOptions::for_cpu().fusion_limits, opt::FusionLimits::unbounded());
}

std::string names_of(const opt::Passes& passes) {
  std::string out;
  for (const opt::PassPtr& p : passes) out += (out.empty() ? "" : " ") + std::string(p->name());
  return out;
}

TEST(OptTargets, PassLists) {
  EXPECT_EQ(names_of(opt::fusion_passes_for_supported({})),
            "LowerControlFlow lower_dot_general fuse_matmul_bias_act fuse_attention_block "
            "fuse_residual_ln fuse_residual_rms_norm fuse_rms_norm_reshape fuse_swiglu_dual_matmul "
            "fuse_shared_input_matmul fuse_swiglu mark_elementwise_regions dead_code_elimination");
  EXPECT_EQ(names_of(opt::fusion_passes_for_supported({}, {.skip_fusion = true})),
            "LowerControlFlow lower_dot_general");
  EXPECT_EQ(names_of(opt::fusion_passes_for_supported({"MatMul", "FusedMatMulBiasAct"})),
            "LowerControlFlow lower_dot_general fuse_matmul_bias_act fuse_rms_norm_reshape "
            "fuse_shared_input_matmul unfuse_elementwise_regions dead_code_elimination");
  ::setenv("RLX_ENABLE_FUSE_TRANSFORMER_LAYER", "1", 1);
  ::setenv("RLX_NO_SHARED_INPUT_MATMUL", "1", 1);
  const std::string flagged = names_of(opt::fusion_passes_for_supported({}));
  ::unsetenv("RLX_ENABLE_FUSE_TRANSFORMER_LAYER");
  ::unsetenv("RLX_NO_SHARED_INPUT_MATMUL");
  EXPECT_NE(flagged.find("fuse_transformer_layer"), flagged.npos);
  EXPECT_EQ(flagged.find("fuse_shared_input_matmul"), flagged.npos);
  ::setenv("RLX_FUSE_ATTN_THRESHOLD", "many", 1);
  expect_error("environment", "many", [] { opt::fusion_passes_for_supported({}); });
  ::unsetenv("RLX_FUSE_ATTN_THRESHOLD");
  const std::string cpu = names_of(opt::fusion_passes(opt::FusionTarget::cpu));
  EXPECT_TRUE(cpu.starts_with("LowerControlFlow")) << cpu;
  EXPECT_TRUE(cpu.ends_with("mark_elementwise_regions dead_code_elimination")) << cpu;
  EXPECT_EQ(names_of(opt::backward_cleanup_passes()), "dead_code_elimination lower_dot_general");
}

// ---- the runner and its report

TEST(OptRunner, SaysWhatItDoes) {
  ::testing::internal::CaptureStderr();
  opt::pass::run_passes(affine(), {opt::pass_of<opt::DeadCodeElimination>()}, true);
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(text.starts_with("--- before dead_code_elimination ---\ngraph @\"affine\"")) << text;
  EXPECT_NE(text.find("--- final ---\n"), text.npos);
  ::setenv("RLX_FUSION_REPORT", "1", 1);
  ::testing::internal::CaptureStderr();
  opt::run_passes(affine(), {});
  EXPECT_TRUE(::testing::internal::GetCapturedStderr().starts_with("fusion report:\n  nodes=5→5"));
  ::unsetenv("RLX_FUSION_REPORT");
}

TEST(OptRunner, ReportsWhatWasMissed) {
  using opt::fusion_report::FusionReport;
  const auto make = [](Shape bias, bool read_twice) {
    return trace("g", [&](Tracer& t) -> TracedTensors {
      auto mm = t.input("x", {3, 9}).matmul(t.param("w", {9, 7}));
      TracedTensors out{(mm + t.param("b", bias)).exp()};
      if (read_twice) out.push_back(mm.exp());
      return out;
    });
  };
  const Graph g = make({7}, false);
  const FusionReport before = FusionReport::scan(g);
  EXPECT_EQ(before.missed_matmul_bias_act(), 1);
  EXPECT_EQ(before.missed[0].reason, opt::MissReason::not_fused);
  const FusionReport after = FusionReport::analyze(g, opt::FuseMatMulBiasAct().run(g));
  EXPECT_EQ(after.summary_line(),
            "nodes=6→5 matmul=1→0 fused_mm_act=1 fused_swiglu=0 elementwise_region=0 "
            "missed_mm_act=1 missed_swiglu=0 missed_shared_mm=0");
  EXPECT_EQ(after.missed[0].reason, opt::MissReason::unsupported_epilogue_activation);
  EXPECT_EQ(after.missed[0].detail, "exp");
  EXPECT_NE(after.to_string().find("matmul_bias_act @ %3"), std::string::npos) << after.to_string();
  EXPECT_EQ(FusionReport::scan(make({7}, true)).missed[0].reason, opt::MissReason::multi_consumer);
  EXPECT_EQ(FusionReport::scan(make({1}, false)).missed[0].reason, opt::MissReason::bias_shape);
  // A linear layer without a bias, and two of one value.
  EXPECT_TRUE(FusionReport::scan(trace("g", [](Tracer& t) {
                return t.input("x", {3, 9}).matmul(t.param("w", {9, 7}));
              })).missed.empty());
  const auto pair = FusionReport::scan(trace("g", [](Tracer& t) {
    auto x = t.input("x", {3, 9});
    return x.matmul(t.param("gate", {9, 7})).silu() * x.matmul(t.param("up", {9, 7}));
  }));
  EXPECT_EQ(pair.missed_shared_matmul(), 1);
  EXPECT_EQ(pair.missed_swiglu(), 1);
  const opt::MissedFusion& first = pair.missed[0];
  EXPECT_EQ(first.pattern, "swiglu");
  EXPECT_FALSE(first.hint.empty());
  EXPECT_NE(pair.to_json().find("\"pattern\": \"swiglu\""), std::string::npos);
}

// The documents' modules are namespaces.
TEST(OptModules, AreNamespaces) {
  EXPECT_EQ(opt::fusion::FuseMatMulBiasAct().name(), "fuse_matmul_bias_act");
  EXPECT_EQ(opt::const_fold::ConstantFolding().name(), "constant_folding");
  EXPECT_EQ(opt::control_flow::LowerControlFlow().name(), "LowerControlFlow");
  EXPECT_EQ(opt::dce::DeadCodeElimination().name(), "dead_code_elimination");
  EXPECT_EQ(opt::legalize_broadcast::LegalizeBroadcast().name(), "legalize_broadcast");
  EXPECT_EQ(opt::lower_dot_general::LowerDotGeneral().name(), "lower_dot_general");
  EXPECT_EQ(opt::prepare_ad::PrepareForAutodiff().name(), "prepare_for_autodiff");
  EXPECT_EQ(opt::autodiff::grad(cube(), {"x"}).outputs.size(), 1u);
  EXPECT_EQ(opt::autodiff_fwd::jvp(cube(), {"x"}).outputs.size(), 2u);
  EXPECT_EQ(opt::batching::vmap(cube(), {"x"}, 4).output_types()[0].shape, (Shape{4}));
  EXPECT_TRUE(opt::legalize::legalize_for_backend(cube(), {}).empty());
  EXPECT_EQ(opt::promote_params::promote_params_to_inputs(cube(), {"x"}).inputs().size(), 1u);
  EXPECT_EQ(opt::unfuse::unfuse_fused_for_autodiff(cube()), cube());
  const auto pipeline = opt::compiler::CompilePipeline(backend_for("cpu"));
  EXPECT_TRUE(pipeline.compile_graph(cube()).lir.has_plan());
  EXPECT_FALSE(opt::inspect::inspect_compiled("", pipeline.compile_graph(cube())).lir.empty());
  EXPECT_EQ(
      opt::precision::PrecisionPolicy::auto_mixed().precision_for(opt::precision::OpKind::compute),
      opt::precision::Precision::F16);
  EXPECT_EQ(opt::fusion_pipeline::FusionLimits{}, opt::FusionLimits::gpu_native());
  Builder b("b");
  const Value x = b.param("x", {DType::F32, {}});
  EXPECT_EQ(opt::inlining::inline_into(b, cube(), {}).size(), 1u);
  EXPECT_EQ(b.find_leaf("x"), x);
}

TEST(OptModules, MemoryPlansAreDrawn) {
  const Graph g = trace("g", [](Tracer& t) { return t.input("x", {9, 70}).exp().sum({1}).tanh(); });
  const auto all = opt::memory::plan_memory_with_options(g, opt::MemoryPlanOptions::inference());
  opt::memory::MemoryPlanOptions options;
  options.allocate_inputs = false;
  const auto fewer = opt::plan_memory_with_options(g, options);
  EXPECT_TRUE(all.assignments.contains({0, 0}));
  EXPECT_FALSE(fewer.assignments.contains({0, 0}));
  EXPECT_EQ(fewer.assignments.size() + 1, all.assignments.size());
  const std::string text = opt::svg::render(all);
  EXPECT_TRUE(text.starts_with("<svg"));
  EXPECT_TRUE(text.ends_with("</svg>\n"));
  EXPECT_NE(text.find(fmt::format("arena_size={} ({} unshared, saved {})", all.arena_size,
                                  all.total_unshared_bytes(), all.bytes_saved())),
            text.npos)
      << text;
  for (const auto& [node, slot] : all.assignments)
    EXPECT_NE(text.find(fmt::format("{}: off={} sz={}", node, slot.offset, slot.size)), text.npos);
  MemoryPlan large;  // beyond 32 bits
  large.arena_size = int64_t{6} << 30;
  large.assignments[{3, 0}] = {int64_t{5} << 30, int64_t{1} << 30};
  EXPECT_NE(opt::svg::render(large).find("off=5368709120 sz=1073741824"), std::string::npos);
}

}  // namespace
}  // namespace rlx
