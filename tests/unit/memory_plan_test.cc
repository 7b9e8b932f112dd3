// The memory plan: how near it comes to what is alive at once, for whole models; and plans of graphs.
#include <gtest/gtest.h>

#include "../support/expect_error.h"
#include "rlx/compile/compile.h"
#include "rlx/front/trace.h"
#include "rlx/lower/graph_plan.h"
#include "rlx/lower/lower.h"
#include "rlx/models/gpt.h"
#include "rlx/ops/ops.h"
#include "rlx/runtime/runtime.h"

namespace rlx {
namespace {

constexpr DType f32 = DType::F32;

// Planned as for a run; no code is made.
Program planned(const Graph& g) {
  const auto backend = backend_for(Device("cpu"));
  const GraphModule fused = lower_to(CompileStage::fused, g, *backend);
  const auto target = backend->make_target({});
  return lower(*fused.as_graph(), *target);
}

void expect_near_the_least(const char* name, const Graph& g, double percent) {
  const Program p = planned(g);
  const int64_t least = largest_live_bytes(p);
  const double more = 100 * (static_cast<double>(p.arena_bytes) / static_cast<double>(least) - 1);
  fmt::print("{}: arena {} bytes, largest sum of live bytes {} ({:+.2f} %)\n", name, p.arena_bytes,
             least, more);
  EXPECT_GE(p.arena_bytes, least);
  EXPECT_LE(more, percent) << name;
}

Graph bert_base() {
  constexpr int64_t batch = 2, tokens = 128, width = 768, heads = 12;
  return trace("bert", [&](Tracer& t) {
    const auto param = [&](const std::string& name, Shape shape) {
      return t.param(name, std::move(shape));
    };
    const auto norm = [&](const TracedTensor& x, const std::string& name) {
      return x.layer_norm(param(name + ".g", {width}), param(name + ".b", {width}));
    };
    const auto linear = [&](const TracedTensor& x, const std::string& name, int64_t in,
                            int64_t out) {
      return x.matmul(param(name + ".w", {in, out})) + param(name + ".c", {out});
    };
    TracedTensor x = norm(t.input("x", {batch, tokens, width}), "embedding");
    for (int layer = 0; layer < 12; ++layer) {
      const std::string l = fmt::format("l{}", layer);
      const auto split = [&](const TracedTensor& y) {
        return y.reshape({batch, tokens, heads, width / heads}).permute({0, 2, 1, 3});
      };
      const TracedTensor q = split(linear(x, l + ".q", width, width)),
                         k = split(linear(x, l + ".k", width, width)),
                         v = split(linear(x, l + ".v", width, width));
      const TracedTensor scores = (q.matmul(k.permute({0, 1, 3, 2})) * 0.125).softmax();
      const TracedTensor mixed =
          scores.matmul(v).permute({0, 2, 1, 3}).reshape({batch, tokens, width});
      x = norm(x + linear(mixed, l + ".o", width, width), l + ".n1");
      x = norm(
          x + linear(linear(x, l + ".up", width, 4 * width).gelu(), l + ".down", 4 * width, width),
          l + ".n2");
    }
    return x;
  });
}

Graph u_net() {
  return trace("unet", [&](Tracer& t) {
    int names = 0;
    const auto block = [&](const TracedTensor& x, int64_t in, int64_t out) {
      const TracedTensor w = t.param(fmt::format("w{}", names++), {out, in, 3, 3}),
                         g = t.param(fmt::format("g{}", names), {out}),
                         b = t.param(fmt::format("b{}", names), {out});
      const TracedTensor y = op::conv(x, w, {.low = {1, 1}, .high = {1, 1}});
      return op::group_norm(y, g, b, {.num_groups = 8}).silu();
    };
    TracedTensor x = t.input("x", {2, 8, 96, 96});
    std::vector<TracedTensor> skips;
    int64_t channels = 8;
    for (const int64_t next : {32, 64, 128, 256}) {
      x = block(block(x, channels, next), next, next);
      channels = next;
      skips.push_back(x);
      x = op::conv(x, t.param(fmt::format("down{}", next), {next, next, 2, 2}), {.stride = {2, 2}});
    }
    x = block(block(x, channels, 2 * channels), 2 * channels, channels);
    while (!skips.empty()) {
      const TracedTensor skip = skips.back();
      skips.pop_back();
      const int64_t next = skip.size(1).value();
      x = op::resize_nearest_2x(x);
      x = block(block(cat({x, skip}, 1), channels + next, next), next,
                skips.empty() ? 32 : next / 2);
      channels = skips.empty() ? 32 : next / 2;
    }
    return op::conv(x, t.param("head", {8, channels, 1, 1}), ConvAttrs{});
  });
}

TEST(MemoryPlan, OfBertBase) { expect_near_the_least("BERT-base", bert_base(), 3); }

TEST(MemoryPlan, OfTrainingGpt2) {
  GptConfig c;
  c.vocab = 50257, c.width = 768, c.layers = 12, c.heads = 12, c.block = 256, c.batch = 4;
  expect_near_the_least("GPT-2, training", gpt_train_step(c), 3);
}

TEST(MemoryPlan, OfAUNet) { expect_near_the_least("U-Net", u_net(), 3); }

// ---- plans of graphs

Graph chain() {
  Builder b("chain");
  const Value x = b.input("x", {f32, {16, 16}}), w = b.param("w", {f32, {16, 16}});
  const Value y = op::matmul(b, x, w);                                  // %2
  const Value r = op::reshape(b, y, {.shape = {32, 8}});                // %3
  const Value c = op::cast(b, r, {f32});                                // %4, or r itself
  const Value n = op::slice(b, c, {.start = {1, 0}, .limit = {3, 8}});  // 8 floats on, 16 of them
  b.output(op::tanh(b, n));
  return b.finish();
}

TEST(GraphPlan, ViewsLieInTheirRoots) {
  const Graph g = chain();
  const MemoryPlan plan = plan_memory(g);
  Value product, narrow;
  for (int32_t i = 0; i < g.size(); ++i) {
    if (g.node(i).op == &op::matmul) product = {i, 0};
    if (g.node(i).op == &op::slice) narrow = {i, 0};
  }
  EXPECT_TRUE(is_pure_view(g, narrow));
  EXPECT_FALSE(is_pure_view(g, product));
  EXPECT_EQ(collect_view_aliases(g).at(narrow), (ViewAlias{product, 32}));
  EXPECT_EQ(plan.assignments.at(narrow).offset, plan.assignments.at(product).offset + 32);
  EXPECT_EQ(plan.assignments.at(narrow).size, 64);
}

TEST(GraphPlan, WhatIsAView) {
  Builder b("views");
  const Value x = b.input("x", {f32, {1, 6, 1, 4}});
  const auto view = [&](Value v) { return is_pure_view(b.graph(), v); };
  EXPECT_TRUE(view(op::transpose(b, x, {.perm = {1, 0, 2, 3}})));
  EXPECT_FALSE(view(op::transpose(b, x, {.perm = {0, 3, 2, 1}})));
  EXPECT_TRUE(view(op::slice(
      b, x, {.start = {0, 2, 0, 0}, .limit = {1, 5, 1, 4}})));  // along the first that is longer
  EXPECT_FALSE(view(op::slice(b, x, {.start = {0, 0, 0, 1}, .limit = {1, 6, 1, 3}})));
  EXPECT_FALSE(view(
      op::slice(b, x, {.start = {0, 0, 0, 0}, .limit = {1, 6, 1, 4}, .stride = {1, 2, 1, 1}})));
  EXPECT_TRUE(view(op::broadcast(b, x, {.shape = {1, 6, 1, 4}})));
  EXPECT_FALSE(view(op::broadcast(b, x, {.shape = {2, 6, 1, 4}})));
  EXPECT_TRUE(view(op::barrier(b, x)));
  const Value y = b.input("y", {f32, {Dim::symbol("n"), 4}});
  EXPECT_FALSE(view(op::slice(b, y, {.start = {1, 0}, .limit = {Dim::symbol("n"), 4}})));
  EXPECT_TRUE(view(op::reshape(b, y, {.shape = {4, Dim::symbol("n")}})));
  const Value z = b.input("z", {f32, {100}});  // where it begins depends on sizes
  EXPECT_FALSE(
      view(op::slice(b, z, {.start = {Dim::symbol("n")}, .limit = {Dim::symbol("n") + Dim(4)}})));
  EXPECT_EQ(collect_view_aliases(b.graph()).size(), 5u);
}

TEST(GraphPlan, LivesNeverShareBytes) {
  const Graph g =
      gpt_loss({.vocab = 33, .width = 32, .layers = 2, .heads = 2, .block = 9, .batch = 3});
  for (const int64_t alignment : {1, 64, 4096}) {
    const MemoryPlan plan = plan_memory_aligned(g, alignment);
    const auto aliases = collect_view_aliases(g);
    const auto root = [&](Value v) { return aliases.contains(v) ? aliases.at(v).root : v; };
    std::map<Value, int32_t> last;
    for (int32_t i = 0; i < g.size(); ++i)
      for (Value v : g.node(i).in) last[root(v)] = i;
    for (Value v : g.outputs) last[root(v)] = g.size();
    for (const auto& [a, x] : plan.assignments) {
      EXPECT_EQ(aliases.contains(a) ? 0 : x.offset % alignment, 0);
      EXPECT_LE(x.offset + x.size, plan.arena_size);
      if (aliases.contains(a)) continue;
      for (const auto& [b, y] : plan.assignments) {
        if (!(a < b) || aliases.contains(b)) continue;
        const auto first = [&](Value v) { return g.node(v).op->kind == Kind::leaf ? 0 : v.node; };
        const auto end = [&](Value v) {
          return g.node(v).op->kind == Kind::leaf ? g.size() : std::max(last[v], v.node);
        };
        const bool together = first(a) <= end(b) && first(b) <= end(a);
        EXPECT_TRUE(!together || x.offset + x.size <= y.offset || y.offset + y.size <= x.offset)
            << to_string(a) << ", " << to_string(b);
      }
    }
  }
  expect_error("plan-alignment", "power of two, not 48", [&] { plan_memory_aligned(g, 48); });
  const MemoryPlan plan = plan_memory(g);
  EXPECT_EQ(plan.bytes_saved(), plan.total_unshared_bytes() - plan.arena_size);
  EXPECT_TRUE(plan.report().starts_with(
      fmt::format("# arena_size={} total_unshared={} saved={}\n# offset\tsize\tnode\n0\t",
                  plan.arena_size, plan.total_unshared_bytes(), plan.bytes_saved())));
  EXPECT_EQ(plan.schedule.size(), g.nodes.size());
}

TEST(GraphPlan, UniformElements) {
  Builder b("halves");
  const Value x = b.input("x", {DType::F16, {8, 4}});
  const Value y = op::add(b, x, x), n = op::slice(b, y, {.start = {2, 0}, .limit = {4, 4}});
  b.output(op::add(b, n, n));
  const Graph g = b.finish();
  const MemoryPlan plan = plan_memory_f32_uniform(g, 64);
  EXPECT_EQ(plan.assignments.at(y).size, 128);
  EXPECT_EQ(plan.assignments.at(n).offset, plan.assignments.at(y).offset + 2 * 4 * 4);
  EXPECT_EQ(plan_memory(g).assignments.at(y).size, 64);
}

// Parameters lie where the forward program has them, and nothing else does.
TEST(GraphPlan, BackwardOverTheSameWeights) {
  const auto program = [](bool more) {
    return trace("f", [&](Tracer& t) {
      const TracedTensor x = t.input("x", {8, 16}), w = t.param("w", {16, 32}),
                         v = t.param("v", {32, 16});
      const TracedTensor y = x.matmul(w).tanh().matmul(v);
      return more ? y.matmul(w).tanh() + t.param("u", {32}) : y;
    });
  };
  const Graph forward = program(false), backward = program(true);
  const MemoryPlan plan = plan_memory(forward);
  const SharedWeightLayout weights = SharedWeightLayout::from_forward(forward, plan);
  ASSERT_EQ(weights.slots.size(), 2);
  EXPECT_EQ(weights.slots[0].name, "v");
  const MemoryPlan back = plan_memory_backward(backward, 64, weights);
  EXPECT_GE(back.arena_size, weights.arena_size);
  for (const WeightSlot& s : weights.slots) {
    const Value p = backward.find_leaf(s.name);
    EXPECT_EQ(back.assignments.at(p), (BufferSlot{s.offset, s.size}));
    for (const auto& [value, slot] : back.assignments)
      EXPECT_TRUE(value == p || slot.offset >= s.offset + s.size ||
                  s.offset >= slot.offset + slot.size)
          << to_string(value);
  }
  EXPECT_FALSE(back.assignments.contains(backward.find_leaf("u")));
}

}  // namespace
}  // namespace rlx
