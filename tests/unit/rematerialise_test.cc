// Rematerialisation: functions that are checkpoints, and whole programs within a budget.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "../support/expect_error.h"
#include "rlx/compile/compile.h"
#include "rlx/front/trace.h"
#include "rlx/models/gpt.h"
#include "rlx/models/trainer.h"
#include "rlx/ops/ops.h"
#include "rlx/passes/min_cut.h"
#include "rlx/passes/passes.h"
#include "rlx/runtime/runtime.h"
#include "rlx/transform/transform.h"

namespace rlx {
namespace {

constexpr DType f32 = DType::F32;

Tensor noise(DType dtype, const Ints& sizes, uint32_t seed) {
  std::mt19937 random(seed);
  Tensor t(dtype, sizes);
  for (int64_t i = 0; i < t.elements(); ++i)
    t.set_float(i, std::uniform_real_distribution<double>(-1, 1)(random));
  return t;
}

constexpr int64_t kBlocks = 6, kRows = 130, kWidth = 70;

// Blocks of two products; each is a checkpoint where options are given.
Graph blocks(const std::optional<CheckpointOptions>& options, DType dtype = f32) {
  return trace("blocks", [&](Tracer& t) {
    TracedTensor x = t.input("x", {kRows, kWidth}, dtype);
    for (int64_t i = 0; i < kBlocks; ++i) {
      const TracedTensor w = t.param(fmt::format("w{}", i), {kWidth, 2 * kWidth}, dtype),
                         v = t.param(fmt::format("v{}", i), {2 * kWidth, kWidth}, dtype);
      const auto block = [&](Tracer&) {
        TracedTensor h = x.matmul(w);
        h = op::checkpoint_name(h, {"h"});
        h = (h.exp() + h.tanh()).tanh();
        return x + h.matmul(v).tanh();
      };
      x = options ? t.checkpoint(block, *options)[0] : block(t);
    }
    return (x * x).mean();
  });
}

NamedTensors block_leaves(DType dtype = f32) {
  NamedTensors out{{"x", noise(dtype, {kRows, kWidth}, 1)}};
  for (int64_t i = 0; i < kBlocks; ++i) {
    out[fmt::format("w{}", i)] = noise(dtype, {kWidth, 2 * kWidth}, 2 + static_cast<uint32_t>(i));
    out[fmt::format("v{}", i)] = noise(dtype, {2 * kWidth, kWidth}, 20 + static_cast<uint32_t>(i));
  }
  return out;
}

std::vector<std::string> block_params() {
  std::vector<std::string> out;
  for (int64_t i = 0; i < kBlocks; ++i)
    for (const char* p : {"w", "v"}) out.push_back(fmt::format("{}{}", p, i));
  return out;
}

struct Ran {
  std::vector<Tensor> outputs;
  NamedTensors params;
  int64_t arena;
  double flops;
};

Ran run_on_cpu(const Graph& g, const NamedTensors& leaves, CompileOptions options = {}) {
  options.threads = 1;
  CompiledGraph f = Session("cpu").compile(g, options);
  NamedTensors params, inputs;
  for (const auto& [name, value] : leaves)
    (g.node(g.find_leaf(name)).op == &op::param ? params : inputs)[name] = value;
  f.set_params(params);
  Ran out;
  out.outputs = f.run(inputs);
  out.params = f.params();
  out.arena = f.info().program->arena_bytes;
  out.flops = f.info().flops;
  return out;
}

void expect_same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].same_bits(b[i])) << "output " << i;
}

int count_of(const Graph& g, std::string_view op) {
  int out = 0;
  for (const Node& n : g.nodes) out += n.op->name == op;
  return out;
}

const std::vector<CheckpointOptions> kPolicies{
    {}, {SavePolicy::products, {}}, {SavePolicy::names, {"h"}}, {SavePolicy::names, {"other"}}};

// ---- checkpoints

TEST(Checkpoint, GradientsAreThoseOfTheFunctionBitForBit) {
  const Ran plain = run_on_cpu(value_and_grad(blocks({}), block_params()), block_leaves());
  for (const CheckpointOptions& policy : kPolicies) {
    const Ran got = run_on_cpu(value_and_grad(blocks(policy), block_params()), block_leaves());
    expect_same_bits(got.outputs, plain.outputs);
  }
}

TEST(Checkpoint, TakesLessMemoryForMoreWork) {
  const auto plan = [&](const std::optional<CheckpointOptions>& policy) {
    return run_on_cpu(value_and_grad(blocks(policy), block_params()), block_leaves());
  };
  const Ran plain = plan({}), nothing = plan(kPolicies[0]), products = plan(kPolicies[1]);
  // The gradients are outputs. Plain: h, its two functions and the product of each block live until
  // they are read; with a checkpoint a block's input does.
  EXPECT_LT(nothing.arena, plain.arena / 2);
  EXPECT_LT(products.arena, plain.arena);
  EXPECT_GT(products.arena, nothing.arena);
  // Of each block but the last step of its second product, which nothing reads, everything again.
  const double product = 2.0 * kRows * kWidth * 2 * kWidth;
  EXPECT_GT(nothing.flops, plain.flops + kBlocks * product);
  EXPECT_LT(products.flops, plain.flops + product);
}

TEST(Checkpoint, EqualExpressionsStayTwo) {
  const auto optimised = [&](const std::optional<CheckpointOptions>& policy) {
    return run_passes(value_and_grad(blocks(policy), block_params()), default_pipeline());
  };
  const Graph plain = optimised({}), nothing = optimised(kPolicies[0]),
              products = optimised(kPolicies[1]), named = optimised(kPolicies[2]);
  EXPECT_EQ(count_of(nothing, "exp"), 2 * kBlocks);
  EXPECT_EQ(count_of(plain, "exp"), kBlocks);
  EXPECT_EQ(count_of(products, "matmul"), count_of(plain, "matmul"));
  EXPECT_EQ(count_of(named, "matmul"), count_of(plain, "matmul") + kBlocks);
  EXPECT_EQ(count_of(nothing, "matmul"), count_of(plain, "matmul") + 2 * kBlocks);
  EXPECT_EQ(count_of(nothing, "checkpoint") + count_of(nothing, "checkpoint_name"), 0);
}

// What is computed again stands just before its first reader.
TEST(Checkpoint, ComputesAgainWhereItIsRead) {
  const Graph g =
      run_passes(value_and_grad(blocks(kPolicies[0]), block_params()), default_pipeline());
  std::vector<int32_t> exps;
  for (int32_t i = 0; i < g.size(); ++i)
    if (g.node(i).op->name == "exp") exps.push_back(i);
  ASSERT_EQ(exps.size(), 2 * kBlocks);
  // The forward ones, then those of the last block first, each behind the gradients of the block after it.
  for (size_t i = kBlocks + 1; i < exps.size(); ++i) {
    int products = 0;
    for (int32_t k = exps[i - 1]; k < exps[i]; ++k) products += g.node(k).op->name == "matmul";
    EXPECT_GE(products, 4) << i;
  }
}

// In double, on the evaluator: each transform of the checkpoint is that of the function.
TEST(Checkpoint, ComposesWithEveryTransform) {
  constexpr DType f64 = DType::F64;
  const auto program = [&](const std::optional<CheckpointOptions>& policy) {
    return trace("f", [&](Tracer& t) {
      const TracedTensor x = t.input("x", {3, 4}, f64), w = t.param("w", {4, 4}, f64);
      const auto f = [&](Tracer& inner) {
        const TracedTensor h = op::checkpoint_name(x.matmul(w).tanh(), {"h"});
        const auto g = [&](Tracer&) { return (h.exp() * h).matmul(w).tanh() + x; };
        return policy ? inner.checkpoint(g, *policy)[0] : g(inner);  // a checkpoint in a checkpoint
      };
      const TracedTensor y = policy ? t.checkpoint(f, *policy)[0] : f(t);
      return (y * y).sum();
    });
  };
  const NamedTensors leaves{{"x", noise(f64, {3, 4}, 5)},
                            {"w", noise(f64, {4, 4}, 6)},
                            {"tangent_x", noise(f64, {3, 4}, 7)},
                            {"tangent_w", noise(f64, {4, 4}, 8)}};
  const auto first = [](const Graph& g) {  // the sum of squares of a gradient, as a loss
    const Graph d = grad(g, {"w"});
    Builder b("second");
    b.mutable_graph() = d;
    const Value dw = d.outputs[0];
    b.mutable_graph().outputs.clear();
    b.output(op::reduce_sum(b, op::mul(b, dw, dw), {.axes = {0, 1}}));
    return b.finish();
  };
  const std::pair<const char*, std::function<Graph(const Graph&)>> transforms[] = {
      {"value", [](const Graph& g) { return g; }},
      {"grad", [](const Graph& g) { return value_and_grad(g, {"x", "w"}); }},
      {"jvp", [](const Graph& g) { return jvp(g, {"x", "w"}); }},
      {"hvp", [](const Graph& g) { return hvp(g, {"x", "w"}); }},
      {"grad of grad", [&](const Graph& g) { return value_and_grad(first(g), {"w", "x"}); }},
      {"jvp of grad of grad",
       [&](const Graph& g) { return jvp(grad(first(g), {"w"}), {"w", "x"}); }},
      {"grad of grad of grad", [&](const Graph& g) { return grad(first(first(g)), {"w"}); }},
      {"grad of jvp",
       [](const Graph& g) {
         const Graph j = jvp(g, {"x"});
         return grad(j, {"w"}, {.output = 1});
       }},
  };
  for (const auto& [name, transform] : transforms) {
    const Graph plain = transform(program({}));
    NamedTensors used;
    for (const auto& [leaf, value] : leaves)
      if (plain.find_leaf(leaf).valid()) used[leaf] = value;
    const Tensors want = evaluate(plain, used).outputs;
    for (const CheckpointOptions& policy : kPolicies) {
      const Graph g = transform(program(policy));
      const Tensors got = evaluate(g, used).outputs;
      ASSERT_EQ(got.size(), want.size()) << name;
      for (size_t i = 0; i < got.size(); ++i)
        for (int64_t k = 0; k < got[i].elements(); ++k)
          ASSERT_NEAR(got[i].get_float(k), want[i].get_float(k),
                      1e-12 * (1 + std::fabs(want[i].get_float(k))))
              << name << " output " << i;
      // And optimised.
      const Tensors again = evaluate(run_passes(g, default_pipeline()), used).outputs;
      for (size_t i = 0; i < got.size(); ++i)
        for (int64_t k = 0; k < got[i].elements(); ++k)
          ASSERT_NEAR(again[i].get_float(k), want[i].get_float(k),
                      1e-12 * (1 + std::fabs(want[i].get_float(k))))
              << name << " output " << i;
    }
  }
}

TEST(Checkpoint, SecondDerivativesAreComputedAgainToo) {
  const auto loss = [](bool checkpointed) {
    return trace("f", [&](Tracer& t) {
      const TracedTensor x = t.input("x", {9}, DType::F64);
      const auto f = [&](Tracer&) { return x.exp().tanh(); };
      return (checkpointed ? t.checkpoint(f)[0] : f(t)).sum();
    });
  };
  const auto second = [](const Graph& g) {
    Graph d = grad(g, {"x"});
    Builder b("second");
    const Value dx = d.outputs[0];
    d.outputs.clear();
    b.mutable_graph() = d;
    b.output(op::reduce_sum(b, op::mul(b, dx, dx), {.axes = {0}}));
    return run_passes(grad(b.finish(), {"x"}), default_pipeline());
  };
  EXPECT_EQ(count_of(second(loss(false)), "exp"), 1);
  EXPECT_EQ(count_of(second(loss(true)), "exp"), 2);  // in the first derivative and behind it
}

TEST(Checkpoint, UnderVmapAndInScans) {
  const auto program = [](bool checkpointed) {
    return trace("f", [&](Tracer& t) {
      const TracedTensor x = t.input("x", {5, 9}), w = t.param("w", {9, 9});
      const auto cell = [&](Tracer& inner, const TracedTensors& h,
                            const TracedTensors& xs) -> ScanResult {
        const auto f = [&](Tracer&) { return (h[0].matmul(w) + xs[0]).tanh().exp().tanh(); };
        const TracedTensor next = checkpointed ? inner.checkpoint(f)[0] : f(inner);
        return {{next}, {}};
      };
      return t.scan({t.zeros({9})}, {x}, cell).carries[0].sum();
    });
  };
  NamedTensors leaves{{"x", noise(f32, {5, 9}, 3)}, {"w", noise(f32, {9, 9}, 4)}};
  expect_same_bits(run_on_cpu(value_and_grad(program(true), {"w", "x"}), leaves).outputs,
                   run_on_cpu(value_and_grad(program(false), {"w", "x"}), leaves).outputs);
  leaves["x"] = noise(f32, {3, 5, 9}, 3);
  for (const bool inside : {false, true}) {
    const auto both = [&](bool checkpointed) {
      const Graph g = program(checkpointed);
      if (inside) return vmap(value_and_grad(g, {"w", "x"}), {{"x", 0}}, 3);
      Graph batched = vmap(g, {{"x", 0}}, 3);
      Builder b("sum");
      const Value y = batched.outputs[0];
      batched.outputs.clear();
      b.mutable_graph() = batched;
      b.output(op::reduce_sum(b, y, {.axes = {0}}));
      return value_and_grad(b.finish(), {"w", "x"});
    };
    expect_same_bits(run_on_cpu(both(true), leaves).outputs,
                     run_on_cpu(both(false), leaves).outputs);
  }
}

TEST(Checkpoint, TextAndBytesKeepIt) {
  const Graph g = value_and_grad(blocks(kPolicies[2]), block_params());
  EXPECT_TRUE(parse(print(g)) == g);
}

TEST(Checkpoint, Errors) {
  expect_error("checkpoint", "names are given", [&] {
    trace("f", [&](Tracer& t) {
      const TracedTensor x = t.input("x", {2});
      return t.checkpoint([&](Tracer&) { return x + x; }, {SavePolicy::nothing, {"h"}});
    });
  });
}

// ---- the minimum cut

TEST(MinCut, IsTheLeastOfAllCuts) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    constexpr size_t n = 7;
    MinCut cut(n);
    struct Edge {
      size_t from, to;
      double capacity;
    };
    std::vector<Edge> edges;
    for (int e = 0; e < 18; ++e) {
      const auto pick = [&] { return std::uniform_int_distribution<size_t>(0, n + 1)(random); };
      Edge edge{pick(), pick(),
                static_cast<double>(std::uniform_int_distribution<int>(0, 9)(random))};
      if (edge.from == edge.to || edge.from == cut.sink() || edge.to == cut.source()) continue;
      edges.push_back(edge);
      cut.add(edge.from, edge.to, edge.capacity);
    }
    cut.solve();
    const auto cost = [&](auto&& behind) {
      double sum = 0;
      for (const Edge& e : edges)
        if (!behind(e.from) && behind(e.to)) sum += e.capacity;
      return sum;
    };
    double least = 1e9;
    for (size_t set = 0; set < (1U << n); ++set)
      least =
          std::min(least, cost([&](size_t v) { return v == n + 1 || (v < n && (set >> v & 1)); }));
    ASSERT_EQ(cost([&](size_t v) { return cut.is_behind(v); }), least) << round;
  }
}

// ---- a budget for a whole program

GptConfig transformer() {
  GptConfig c;
  c.vocab = 33, c.width = 64, c.layers = 12, c.heads = 4, c.block = 64, c.batch = 8;
  return c;
}

NamedTensors gpt_batch(const GptConfig& c) {
  NamedTensors out;
  for (const char* name : {"x", "y"}) {
    Tensor t(DType::I32, {c.batch, c.block});
    for (int64_t i = 0; i < t.elements(); ++i) t.set_int(i, (i * 7 + (name[0] == 'y')) % c.vocab);
    out[name] = t;
  }
  return out;
}

TEST(Budget, ATransformerIn30PercentOfItsMemoryWith35PercentMoreWork) {
  const GptConfig config = transformer();
  const Graph step = gpt_train_step(config);
  NamedTensors leaves = gpt_train_state(config, gpt_init(config, 1));
  for (auto& [name, value] : gpt_batch(config)) leaves[name] = value;
  const Ran plain = run_on_cpu(step, leaves);
  CompileOptions options;
  options.memory_budget = plain.arena * 3 / 10;
  const Ran within = run_on_cpu(step, leaves, options);
  fmt::print("plain: {} bytes, {:.4g} FLOPs; within {}: {} bytes, {:.4g} FLOPs ({:+.1f} %)\n",
             plain.arena, plain.flops, options.memory_budget, within.arena, within.flops,
             100 * (within.flops / plain.flops - 1));
  EXPECT_LE(within.arena, options.memory_budget);
  EXPECT_LE(within.flops, 1.35 * plain.flops);
  EXPECT_GT(within.flops, plain.flops);
  expect_same_bits(within.outputs, plain.outputs);
  for (const auto& [name, value] : plain.params)
    EXPECT_TRUE(value.same_bits(within.params.at(name))) << name;
}

TEST(Budget, MoreMemoryIsLessWork) {
  const Graph g = value_and_grad(blocks({}), block_params());
  const Ran plain = run_on_cpu(g, block_leaves());
  double before = 1e300;
  for (const double part : {0.35, 0.6, 0.85}) {
    CompileOptions options;
    options.memory_budget = static_cast<int64_t>(part * static_cast<double>(plain.arena));
    const Ran within = run_on_cpu(g, block_leaves(), options);
    EXPECT_LE(within.arena, options.memory_budget);
    EXPECT_LE(within.flops, before);
    expect_same_bits(within.outputs, plain.outputs);
    before = within.flops;
  }
  CompileOptions enough;
  enough.memory_budget = plain.arena;
  const Ran same = run_on_cpu(g, block_leaves(), enough);
  EXPECT_EQ(same.flops, plain.flops);
}

// The number in the message of a budget that is too small is one that is enough.
TEST(Budget, SaysTheLeast) {
  const Graph g = value_and_grad(blocks({}), block_params());
  CompileOptions options;
  options.memory_budget = 1000;
  int64_t least = 0;
  try {
    (void)Session("cpu").compile(g, options);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), "memory-budget");
    const size_t at = e.message().find("at least ");
    ASSERT_NE(at, std::string::npos) << e.message();
    least = std::stoll(e.message().substr(at + 9));
  }
  options.memory_budget = least;
  EXPECT_LE(run_on_cpu(g, block_leaves(), options).arena, least);
  options.memory_budget = least / 2;
  expect_error("memory-budget", "at least", [&] { (void)Session("cpu").compile(g, options); });
  options.memory_budget = -1;
  expect_error("memory-budget", "positive", [&] { (void)Session("cpu").compile(g, options); });
}

TEST(Budget, OfATrainingRun) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += fmt::format("{} and {} is {}\n", i, i, 2 * i);
  GptConfig c;
  c.width = 32, c.layers = 6, c.heads = 2, c.block = 32, c.batch = 8, c.steps = 4, c.warmup = 1;
  const Corpus corpus = make_corpus(text, c.block);
  c.vocab = corpus.vocab();
  Trainer plain(corpus, c, {});
  const int64_t need = plain.info().program->arena_bytes;
  Trainer within(corpus, c, {.memory_budget = need / 2});
  EXPECT_LE(within.info().program->arena_bytes, need / 2);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(plain.step(), within.step());
}

// A program that was fused before is not changed any more.
TEST(Budget, OfWhatIsPlannedAlready) {
  const Graph g = value_and_grad(blocks({}), block_params());
  const auto backend = backend_for(Device("cpu"));
  const int64_t need = run_on_cpu(g, block_leaves()).arena;
  for (const CompileStage stage : {CompileStage::fused, CompileStage::lir}) {
    const GraphModule m = lower_to(stage, g, *backend);
    CompileOptions options;
    options.memory_budget = need;
    (void)compile(m, backend, options, CompileStage::fused);
    options.memory_budget = need - 1;
    expect_error("memory-budget", fmt::format("need {} bytes", need),
                 [&] { (void)compile(m, backend, options, CompileStage::fused); });
  }
  CompileOptions options;
  options.memory_budget = need;
  expect_error("memory-budget", "plans no memory",
               [&] { (void)Session("reference").compile(g, options); });
  options.memory_budget = need / 2;
  const GraphModule lir = lower_to(CompileStage::lir, g, *backend, options);
  EXPECT_LE(lir.as_lir()->arena_size(), need / 2);
}

// Sizes that are not known: each program is within the budget.
TEST(Budget, OfEachSize) {
  const Graph g = trace("f", [&](Tracer& t) {
    TracedTensor x = t.input("x", {Dim::symbol("n"), 70});
    const TracedTensor w = t.param("w", {70, 70});
    for (int i = 0; i < 8; ++i) x = x.matmul(w).tanh().exp().tanh();
    return x.sum();
  });
  const Graph d = value_and_grad(g, {"w"});
  const NamedTensors leaves{{"x", noise(f32, {90, 70}, 3)}, {"w", noise(f32, {70, 70}, 4)}};
  CompileOptions bound;
  bound.dims = {{"n", 90}};
  const Ran plain = run_on_cpu(d, leaves, bound);
  CompileOptions options;
  options.memory_budget = plain.arena / 2;
  options.threads = 1;
  CompiledGraph f = Session("cpu").compile(d, options);
  f.set_param("w", leaves.at("w"));
  expect_same_bits(f.run({{"x", leaves.at("x")}}), plain.outputs);
  EXPECT_LE(f.info().program->arena_bytes, options.memory_budget);
}

TEST(Budget, IsAPass) {
  const Graph g = run_passes(value_and_grad(blocks({}), block_params()), default_pipeline());
  const Graph again = run_passes(g, parse_pipeline("rematerialise(budget=900000)"));
  EXPECT_GT(count_of(again, "tanh"), count_of(g, "tanh"));
  EXPECT_GT(count_of(again, "barrier"), 0);
  expect_error("pass-option", "number of bytes",
               [&] { run_passes(g, parse_pipeline("rematerialise(budget=many)")); });
}

}  // namespace
}  // namespace rlx
