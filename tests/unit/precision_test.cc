// Mixed precision: policies, kinds of ops, values against f32 and the reference, gradients, every op of the table. Where
// casts stand is in tests/text/passes/auto_mixed_precision.txt; training steps are in loss_scale_test.
#include <gtest/gtest.h>

#include <cmath>

#include "../support/expect_error.h"
#include "../support/samples.h"
#include "rlx/compile/compile.h"
#include "rlx/front/trace.h"
#include "rlx/ir/verify.h"
#include "rlx/ops/image/conv.h"
#include "rlx/passes/auto_mixed_precision.h"
#include "rlx/runtime/runtime.h"
#include "rlx/train/functions.h"
#include "rlx/train/init.h"
#include "rlx/transform/transform.h"

namespace rlx::testing {
namespace {

using Kind = PrecisionOpKind;
constexpr Precision kNarrow[] = {Precision::F16, Precision::BF16};

// Half the distance between 1 and the next number.
double rounding(Precision p) { return std::ldexp(1.0, -info(dtype(p)).digits); }

// ---- policies

// The table of the specification, a row per policy: compute, reduction, elementwise, data movement.
TEST(PrecisionPolicy, PrecisionOfEachKind) {
  constexpr Precision f32 = Precision::F32, f16 = Precision::F16, bf16 = Precision::BF16;
  const std::pair<const char*, std::array<Precision, 4>> rows[] = {
      {"always_f32", {f32, f32, f32, f32}},
      {"always_f16", {f16, f16, f16, f16}},
      {"auto_mixed_conservative", {f16, f32, f16, f16}},
      {"auto_mixed", {f16, f16, f16, f16}},
      {"auto_mixed_bf16", {bf16, bf16, bf16, bf16}},
      {"f32", {f32, f32, f32, f32}},
  };
  for (const auto& [name, row] : rows) {
    const PrecisionPolicy p = PrecisionPolicy::parse(name);
    for (size_t k = 0; k < row.size(); ++k)
      EXPECT_EQ(p.precision_for(static_cast<Kind>(k)), row[k]) << name << " " << k;
    EXPECT_EQ(p.precision_for(Kind::boundary), f32) << name;
  }
  const PrecisionPolicy own =
      PrecisionPolicy::custom({{Kind::compute, bf16}, {Kind::elementwise, f16}});
  EXPECT_EQ(own.precision_for(Kind::compute), bf16);
  EXPECT_EQ(own.precision_for(Kind::reduction), f32);
  EXPECT_EQ(own.precision_for(Kind::elementwise), f16);
  EXPECT_EQ(PrecisionPolicy(), PrecisionPolicy::parse("always_f32"));
  EXPECT_EQ(dtype(bf16), DType::BF16);
  EXPECT_EQ(size_bytes(f16), 2);
  EXPECT_EQ(parse_precision("f16"), f16);
}

TEST(PrecisionPolicy, CastConfig) {
  const CastConfig plain = CastConfig::plain(DType::F16);
  EXPECT_TRUE(plain.is_noop(DType::F16));
  EXPECT_FALSE(plain.is_noop(DType::F32));
  EXPECT_FALSE(
      (CastConfig{DType::F16, std::pair<int64_t, int64_t>{1, 32}, true}).is_noop(DType::F16));
}

Graph small() {
  return trace("small",
               [](Tracer& t) { return t.input("x", {4, 8}).matmul(t.param("w", {8, 3})); });
}
Graph sums() {
  return trace("sums", [](Tracer& t) { return t.input("x", {4, 8}).sum(); });
}

TEST(PrecisionPolicy, MistakesAreNamed) {
  PrecisionPolicy p = PrecisionPolicy::mixed(Precision::BF16);
  const PrecisionPolicy before = p;
  expect_error("policy-op", "did you mean softmax?", [&] { p.deny({"sofmax"}); });
  expect_error("policy-op", "did you mean reduction?", [&] { p.keep({"reductions"}); });
  expect_error("policy-op", "compute, reduction, elementwise, data_movement, boundary",
               [&] { p.allow({"zzzzzz"}); });
  EXPECT_EQ(p, before);
  expect_error("policy", "boundary is f32, not bf16", [&] { p.allow({"boundary"}); });
  expect_error("policy", "allows softmax, exp",
               [] { PrecisionPolicy().allow({"softmax", "exp"}); });
  expect_error("precision", "f32, f16, bf16; did you mean bf16?", [] { parse_precision("bf17"); });
  expect_error("precision", "did you mean auto_mixed?",
               [] { PrecisionPolicy::parse("automixed"); });
  expect_error("policy-op", "neither an op nor a kind", [] {
    run_passes(small(), parse_pipeline("auto_mixed_precision(policy=bf16,f32=mtmul)"));
  });
  expect_error("precision", "no precision policy",
               [] { run_passes(small(), parse_pipeline("auto_mixed_precision(policy=f8)")); });
}

TEST(PrecisionPolicy, AProgramWithNoneOfTheOpsThatItNamesIsRefused) {
  const auto f16 = [](const std::string& op) {
    return PrecisionPolicy::mixed(Precision::F16).allow({op});
  };
  expect_error("policy-idle",
               "\"sums\" has no op of f32 that the policy computes in f16 (kinds "
               "and ops that it does: compute, conv)",
               [&] { mixed_precision(sums(), f16("conv")); });
  expect_error("policy-idle", "computes in bf16", [] {
    mixed_precision(sums(), PrecisionPolicy::custom({{PrecisionOpKind::compute, Precision::BF16}}));
  });
  for (const char* device : {"cpu", "reference"})
    expect_error("policy-idle", "computes in f16",
                 [&] { Session(device).compile(sums(), {.precision = f16("conv")}); });
  const Graph symbolic =
      trace("symbolic", [](Tracer& t) { return t.input("x", {Dim::symbol("n")}).exp(); });
  expect_error("policy-idle", "symbolic",
               [&] { Session("cpu").compile(symbolic, {.precision = f16("conv")}); });
  Builder b("again");
  const Value x = b.input("x", {DType::F32, {4}});
  b.output(op::exp(b, x));
  const Graph untouched = b.graph();
  expect_error("policy-idle", "again", [&] { mixed_precision(b, {}, f16("conv")); });
  EXPECT_EQ(b.graph(), untouched);
}

TEST(PrecisionPolicy, APolicyThatNamesNothingLeavesAProgramWithoutProductsAlone) {
  for (const PrecisionPolicy& p :
       {PrecisionPolicy::mixed(Precision::BF16), PrecisionPolicy::mixed(Precision::F16),
        PrecisionPolicy::mixed(Precision::BF16).deny({"exp"})}) {
    EXPECT_EQ(mixed_precision(sums(), p), sums());
    for (const char* device : {"cpu", "reference"})
      EXPECT_EQ(Session(device).compile(sums(), {.precision = p}).signature().outputs.size(),
                sums().outputs.size());
  }
}

// The fact that the specification states of the pass.
TEST(AutoMixedPrecision, AProductHasCastsAroundIt) {
  const Graph g = AutoMixedPrecision{PrecisionPolicy::auto_mixed()}.run(small());
  EXPECT_GE(g.size(), 6);
  EXPECT_EQ(g.node(g.outputs[0]).op, &op::cast);
  EXPECT_EQ(g.type(g.outputs[0]).dtype, DType::F32);
}

TEST(AutoMixedPrecision, APassSaysItsWholePolicy) {
  PrecisionPolicy policy = PrecisionPolicy::mixed(Precision::BF16);
  policy.allow({"softmax"}).deny({"conv", "tanh"}).keep({"layer_norm"});
  const AutoMixedPrecision amp{policy};
  const std::string text = to_string(Pipeline{amp});
  EXPECT_EQ(text,
            "auto_mixed_precision(bf16=compute|softmax,f32=reduction|boundary|conv|tanh,"
            "keep=elementwise|data_movement|layer_norm)");
  EXPECT_EQ(AutoMixedPrecision::name(), "auto_mixed_precision");
  const Graph g = small();
  EXPECT_EQ(run_passes(g, parse_pipeline(text)), amp.run(g));
  EXPECT_EQ(AutoMixedPrecision{}.run(g), g);
}

// ---- kinds of ops: rows of the specification, found on nodes

TEST(PrecisionOpKind, FollowsFromTheTable) {
  register_sample_ops();
  const std::map<Kind, std::vector<std::string>> rows{
      {Kind::compute,
       {"matmul", "fused_matmul_bias_act", "conv", "dot_general", "dense_solve", "attention",
        "fused_transformer_layer", "grouped_matmul", "lora_matmul", "attention_backward",
        "conv_backward_input", "conv_backward_weight", "fft", "einsum", "conv_transpose"}},
      {Kind::reduction,
       {"layer_norm",
        "rms_norm",
        "softmax",
        "log_softmax",
        "fused_residual_ln",
        "fused_residual_rms_norm",
        "reduce_sum",
        "reduce_mean",
        "cumsum",
        "sample",
        "selective_scan",
        "gated_delta_net",
        "softmax_cross_entropy",
        "cross_entropy",
        "mse_loss",
        "layer_norm_backward_input",
        "layer_norm_backward_gamma",
        "group_norm",
        "batch_norm",
        "logsumexp",
        "lstm"}},
      {Kind::elementwise,
       {"relu", "exp", "add", "maximum", "fused_swiglu", "lt", "select", "gelu", "silu",
        "relu_backward", "activation_backward", "clamp"}},
      {Kind::data_movement,
       {"gather", "slice", "reshape", "transpose", "concat", "broadcast", "scatter_add", "split",
        "squeeze", "tile"}}};
  std::map<std::string, Kind> found;
  for (const Sample& s : samples())
    if (const auto c = make_case(s, DType::F32); c && c->graph.nodes.back().op->name == s.op)
      found.emplace(s.op, precision_kind(c->graph, c->node()));
  for (const auto& [kind, names] : rows)
    for (const std::string& name : names) {
      ASSERT_TRUE(found.contains(name)) << name;
      EXPECT_EQ(found.at(name), kind) << name;
    }
  const Graph g = small();
  for (const Node& n : g.nodes)
    if (n.op->kind == rlx::Kind::leaf) {
      EXPECT_EQ(precision_kind(g, n), Kind::boundary);
    }
}

using Signature = std::vector<std::pair<std::string, Type>>;
Signature signature_of(const Graph& g) {
  Signature out;
  for (const Values& leaves : {g.inputs(), g.params()})
    for (Value v : leaves) out.emplace_back(g.node(v).get<LeafAttrs>().name, g.type(v));
  for (const Type& t : g.output_types()) out.emplace_back("", t);
  return out;
}

// Nodes whose f32 operands became 16 bits.
int narrow_nodes(const Graph& g) {
  int count = 0;
  for (const Node& n : g.nodes) {
    for (const NamedBody& b : bodies(n.attrs)) count += narrow_nodes(b.graph);
    if (n.op == &op::cast || n.op->kind == rlx::Kind::leaf) continue;
    for (const Type& t : n.out)
      if (t.dtype == DType::F16 || t.dtype == DType::BF16) {
        ++count;
        break;
      }
  }
  return count;
}

// Every op of the table, between a product before and one behind it: the program stays what it was to its callers, a
// second time changes nothing, and what the op's entry forbids is not done.
TEST(MixedPrecision, EveryOpOfTheTable) {
  register_sample_ops();
  int changed = 0;
  for (const Sample& s : samples()) {
    if (!is_wanted(s.op)) continue;
    const auto c = make_case(s, DType::F32);
    if (!c) continue;
    for (const char* name : {"bf16", "f16", "auto_mixed", "auto_mixed_bf16"}) {
      const PrecisionPolicy policy = PrecisionPolicy::parse(name);
      Builder b("with_product");
      b.mutable_graph() = c->graph;
      const Value x = b.input("product", {DType::F32, {2, 2}});
      b.output(op::matmul(b, x, x));
      const Graph g = b.finish();
      const Graph mixed = mixed_precision(g, policy);
      verify(mixed);
      EXPECT_EQ(signature_of(mixed), signature_of(g)) << s.where << " " << name;
      EXPECT_EQ(mixed_precision(mixed, policy), mixed) << s.where << " " << name;
      const int narrow = narrow_nodes(mixed) - narrow_nodes(g) - 1;
      changed += narrow > 0;
      if (const Node& n = c->node(); n.op->numerics == Numerics::exact && !n.op->decompose) {
        EXPECT_EQ(narrow, 0) << s.where << " " << name;
      }
    }
  }
  if (!is_filtered()) {
    EXPECT_GT(changed, 500);
  }
}

// ---- values

struct Network {
  const char* name;
  Graph graph;
  NamedTensors values;
};

Tensor normal(const std::string& name, Ints sizes, double deviation = 1) {
  return Init(11).normal(name, std::move(sizes), deviation);
}

Network mlp(int64_t rows, int64_t width) {
  Network n{"mlp",
            trace("mlp",
                  [&](Tracer& t) {
                    auto x = t.input("x", {rows, width});
                    auto h = linear(x, t.param("w1", {width, 33}), t.param("b1", {33})).gelu();
                    auto y = linear(h, t.param("w2", {33, width}), t.param("b2", {width}));
                    return (y + x).layer_norm(t.param("g", {width}), t.param("b", {width}));
                  }),
            {}};
  n.values = {
      {"x", normal("x", {rows, width})},  {"w1", normal("w1", {width, 33}, 1 / std::sqrt(width))},
      {"b1", normal("b1", {33}, 0.1)},    {"w2", normal("w2", {33, width}, 1 / std::sqrt(33))},
      {"b2", normal("b2", {width}, 0.1)}, {"g", normal("g", {width})},
      {"b", normal("b", {width})}};
  return n;
}

Network attention_block(int64_t rows, int64_t width) {
  Network n{"attention",
            trace("attention",
                  [&](Tracer& t) {
                    auto x = t.input("x", {2, rows, width});
                    const AttentionAttrs a{
                        .num_heads = 2, .num_kv_heads = 2, .mask = MaskKind::causal, .scale = {}};
                    auto y = attention(x.matmul(t.param("q", {width, width})),
                                       x.matmul(t.param("k", {width, width})),
                                       x.matmul(t.param("v", {width, width})), a);
                    return x + y.matmul(t.param("o", {width, width}));
                  }),
            {{"x", normal("x", {2, rows, width})}}};
  for (const char* w : {"q", "k", "v", "o"})
    n.values[w] = normal(w, {width, width}, 1 / std::sqrt(width));
  return n;
}

Network conv_net(int64_t size) {
  return {"conv",
          trace("conv",
                [&](Tracer& t) {
                  auto x = t.input("x", {2, 3, size, size});
                  auto y =
                      op::conv(
                          x, t.param("w", {5, 3, 3, 3}),
                          ConvAttrs{.stride = {}, .dilation = {}, .low = {1, 1}, .high = {1, 1}})
                          .relu();
                  return op::softmax(y.flatten(1).matmul(t.param("v", {5 * size * size, 4})));
                }),
          {{"x", normal("x", {2, 3, size, size})},
           {"w", normal("w", {5, 3, 3, 3}, 0.2)},
           {"v", normal("v", {5 * size * size, 4}, 0.1)}}};
}

std::vector<Network> networks() {
  return {mlp(9, 70), mlp(130, 9), attention_block(9, 16), attention_block(70, 32), conv_net(9)};
}

Tensor run_on(const char* device, const Network& n, const Graph& g, const CompileOptions& o = {}) {
  CompiledGraph f = Session(device).compile(g, o);
  NamedTensors inputs, params;
  for (Value v : g.inputs()) {
    const std::string& name = g.node(v).get<LeafAttrs>().name;
    inputs[name] = n.values.at(name);
  }
  for (Value v : g.params()) {
    const std::string& name = g.node(v).get<LeafAttrs>().name;
    params[name] = n.values.at(name);
  }
  f.set_params(params);
  return f.run(inputs)[0];
}

// The norm of the difference over that of the first.
double distance(const Tensor& a, const Tensor& b) {
  double off = 0, all = 0;
  for (int64_t i = 0; i < a.elements(); ++i) {
    off += std::pow(a.get_float(i) - b.get_float(i), 2);
    all += std::pow(a.get_float(i), 2);
  }
  return std::sqrt(off / all);
}

// Independent roundings of relative size u, a few in a row and averaged by sums: a small multiple of u in the norm, and
// not much less either, or nothing was rounded.
TEST(MixedPrecision, ValuesAreThoseOfF32UpToTheDtype) {
  for (const Network& n : networks())
    for (const Precision p : kNarrow) {
      const Graph mixed = mixed_precision(n.graph, PrecisionPolicy::mixed(p));
      const Tensor exact = run_on("cpu", n, n.graph), ours = run_on("cpu", n, mixed);
      EXPECT_EQ(ours.dtype(), DType::F32);
      EXPECT_LT(distance(exact, ours), 4 * rounding(p)) << n.name << " " << to_string(p);
      EXPECT_GT(distance(exact, ours), rounding(p) / 64) << n.name << " " << to_string(p);
      // The same program by the reference: only sums and functions differ, before they are rounded.
      EXPECT_LT(distance(run_on("reference", n, mixed), ours), rounding(p)) << n.name;
    }
}

TEST(MixedPrecision, AsAnOptionOfCompileItIsTheTransform) {
  const Network n = mlp(9, 70);
  const CompileOptions o{.precision = PrecisionPolicy::mixed(Precision::BF16)};
  const Graph mixed = mixed_precision(n.graph, o.precision);
  for (const char* device : {"cpu", "reference"})
    EXPECT_TRUE(run_on(device, n, n.graph, o).same_bits(run_on(device, n, mixed))) << device;
  const auto backend = backend_for("cpu");
  const GraphModule fused = lower_to(CompileStage::fused, n.graph, *backend, o);
  EXPECT_GT(narrow_nodes(*fused.as_graph()), 1);
  expect_error("stage", "at the stage hir or mir, not fused",
               [&] { lower_to(CompileStage::lir, fused, *backend, o, CompileStage::fused); });
}

// Attention in primitives is recognised first, so that it is computed as one op.
TEST(MixedPrecision, CompileRecognisesFirst) {
  Builder b("written_out");
  const Value q = b.input("q", {DType::F32, {2, 8, 4}}), k = b.input("k", {DType::F32, {2, 8, 4}}),
              v = b.input("v", {DType::F32, {2, 8, 4}});
  b.output(op::matmul(
      b, op::softmax(b, op::matmul(b, q, k, {.transpose_a = false, .transpose_b = true})), v));
  const Graph g = b.finish();
  const GraphModule m = lower_to(CompileStage::optimised, g, *backend_for("cpu"),
                                 {.precision = PrecisionPolicy::mixed(Precision::BF16)});
  int attentions = 0;
  for (const Node& n : m.as_graph()->nodes)
    if (n.op == &op::attention) {
      ++attentions;
      EXPECT_EQ(n.type().dtype, DType::BF16);
    }
  EXPECT_EQ(attentions, 1);
}

TEST(MixedPrecision, SymbolicSizesHaveTheBitsOfConstantOnes) {
  const auto make = [](const Dim& rows) {
    return trace("mlp", [&](Tracer& t) {
      auto x = t.input("x", {rows, 70});
      return linear(x, t.param("w", {70, 33}), t.param("b", {33})).gelu().softmax(-1);
    });
  };
  const CompileOptions o{.precision = PrecisionPolicy::mixed(Precision::BF16)};
  const NamedTensors params{{"w", normal("w", {70, 33}, 0.1)}, {"b", normal("b", {33})}};
  CompiledGraph all = Session("cpu").compile(make(Dim::symbol("n")), o);
  all.set_params(params);
  for (const int64_t rows : {1, 9, 70, 130}) {
    CompiledGraph one = Session("cpu").compile(make(rows), o);
    one.set_params(params);
    const NamedTensors x{{"x", normal("x", {rows, 70})}};
    EXPECT_TRUE(all.run(x)[0].same_bits(one.run(x)[0])) << rows;
  }
}

// ---- derivatives

TEST(MixedPrecision, GradientsFlowThroughCasts) {
  for (Network n : networks())
    for (const Precision p : kNarrow) {
      Builder b(n.graph.name);
      b.mutable_graph() = n.graph;
      const Value y = b.graph().outputs[0];
      b.mutable_graph().outputs.clear();
      const TracedTensor t(b, y);
      b.output((t * t).mean().value());
      const Graph loss = b.finish();
      std::vector<std::string> names;
      for (Value v : loss.params()) names.push_back(loss.node(v).get<LeafAttrs>().name);
      const Graph mixed = mixed_precision(loss, PrecisionPolicy::mixed(p));
      const Tensors exact = evaluate(grad(loss, names), n.values).outputs,
                    ours = evaluate(grad(mixed, names), n.values).outputs;
      for (size_t i = 0; i < names.size(); ++i) {
        EXPECT_EQ(ours[i].dtype(), DType::F32);
        EXPECT_LT(distance(exact[i], ours[i]), 24 * rounding(p)) << n.name << " " << names[i];
      }
    }
}

// A weight that is read many times: of 1000 equal cotangents, none is lost in the sum, which in bf16 would stop at 256.
TEST(MixedPrecision, CotangentsOfOneCastAreSummedInF32) {
  const Graph f = trace("unrolled", [](Tracer& t) {
    auto x = t.input("x", {2, 2}), w = t.param("w", {2, 2});
    TracedTensor sum;
    for (int i = 0; i < 1000; ++i) {
      auto y = x.matmul(w).sum();
      sum = sum.valid() ? sum + y : y;
    }
    return sum;
  });
  const NamedTensors values{{"x", Tensor::full(DType::F32, {2, 2}, 0.5)},
                            {"w", Tensor::full(DType::F32, {2, 2}, 0.25)}};
  const Graph mixed = mixed_precision(f, PrecisionPolicy::mixed(Precision::BF16));
  EXPECT_EQ(evaluate(grad(mixed, {"w"}), values).outputs[0].get_float(0), 1000);
}

// The transform and the others in both orders: of a program that was differentiated, and differentiated.
TEST(MixedPrecision, NestsWithTheOtherTransforms) {
  const Graph f = trace("loss", [](Tracer& t) {
    auto x = t.input("x", {9, 8});
    return x.matmul(t.param("w", {8, 8})).tanh().sum();
  });
  const NamedTensors values{{"x", normal("x", {9, 8})}, {"w", normal("w", {8, 8}, 0.3)}};
  const PrecisionPolicy policy = PrecisionPolicy::mixed(Precision::BF16);
  const Tensor exact = evaluate(grad(f, {"w"}), values).outputs[0];
  EXPECT_LT(distance(exact, evaluate(grad(mixed_precision(f, policy), {"w"}), values).outputs[0]),
            8 * rounding(Precision::BF16));
  EXPECT_LT(distance(exact, evaluate(mixed_precision(grad(f, {"w"}), policy), values).outputs[0]),
            8 * rounding(Precision::BF16));
  NamedTensors batch = values;
  batch["x"] = normal("xs", {3, 9, 8});
  const Tensor inside = evaluate(vmap(mixed_precision(f, policy), {{"x", 0}}, 3), batch).outputs[0],
               outside =
                   evaluate(mixed_precision(vmap(f, {{"x", 0}}, 3), policy), batch).outputs[0];
  EXPECT_TRUE(inside.same_bits(outside));
  const Graph along = jvp(mixed_precision(f, policy), {"w"});
  NamedTensors moved = values;
  moved["tangent_w"] = normal("t", {8, 8});
  double dot = 0;
  for (int64_t i = 0; i < 64; ++i) dot += exact.get_float(i) * moved["tangent_w"].get_float(i);
  EXPECT_NEAR(evaluate(along, moved).outputs[1].get_float(0), dot, 0.05 * std::fabs(dot) + 0.05);
}

// A recurrence whose body has the product: its values and its gradient by the weights.
TEST(MixedPrecision, LoopsAreGoneInto) {
  const Graph f = trace("rnn", [](Tracer& t) {
    auto xs = t.input("xs", {5, 9, 8}), w = t.param("w", {8, 8});
    const ScanResult r =
        t.scan({xs[0] * 0}, {xs},
               [&](Tracer&, const TracedTensors& c, const TracedTensors& x) -> ScanResult {
                 auto h = (c[0].matmul(w) + x[0]).tanh();
                 return {{h}, {h}};
               });
    return r.ys[0].square().mean();
  });
  const NamedTensors values{{"xs", normal("xs", {5, 9, 8})}, {"w", normal("w", {8, 8}, 0.3)}};
  const Graph mixed = mixed_precision(f, PrecisionPolicy::mixed(Precision::BF16));
  EXPECT_GT(narrow_nodes(mixed), 0);
  EXPECT_LT(distance(evaluate(grad(f, {"w"}), values).outputs[0],
                     evaluate(grad(mixed, {"w"}), values).outputs[0]),
            8 * rounding(Precision::BF16));
}

}  // namespace
}  // namespace rlx::testing
