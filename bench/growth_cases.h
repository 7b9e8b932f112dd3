// Families of programs whose compiling is measured, each size twice the last: by the clock in
// bench/compile_growth, by counting in tests/unit/growth_counts_test.
#pragma once

#include <vector>

#include "rlx/backend/cpu/target.h"
#include "rlx/ir/text.h"
#include "rlx/ir/verify.h"
#include "rlx/lower/lower.h"
#include "rlx/models/gpt.h"
#include "rlx/ops/core.h"
#include "rlx/passes/fuse_regions.h"
#include "rlx/passes/passes.h"

namespace rlx::growth {

inline const Type kVector{DType::F32, {64}};

// n elementwise ops one after the other; every third reads the input again.
inline Graph chain(int64_t n) {
  Builder b("chain");
  const Value x = b.input("x", kVector);
  Value v = x;
  for (int64_t i = 0; i < n; ++i)
    v = i % 3 == 0 ? op::add(b, v, x) : i % 3 == 1 ? op::tanh(b, v) : op::neg(b, v);
  b.output(v);
  return b.finish();
}

// n products and sums, each with a constant of its own.
inline Graph constants(int64_t n) {
  Builder b("constants");
  Value v = b.input("x", kVector);
  for (int64_t i = 0; i < n / 2; ++i) {
    const Value c = b.constant(DType::F32, 0.5 + 0.37 * static_cast<double>(i));
    v = i % 2 ? op::add(b, v, c) : op::mul(b, v, c);
  }
  b.output(v);
  return b.finish();
}

// Dense layers: a product, a bias, relu.
inline Graph layers(int64_t n) {
  Builder b("layers");
  Value v = b.input("x", {DType::F32, {8, 16}});
  for (int64_t i = 0; i < n / 5; ++i) {
    const Value w = b.param(fmt::format("w{}", i), {DType::F32, {16, 16}}),
                bias = b.param(fmt::format("b{}", i), {DType::F32, {16}});
    v = op::relu(b, op::add(b, op::matmul(b, v, w), bias));
  }
  b.output(v);
  return b.finish();
}

// Many branches from one value, added up pairwise; a product keeps every other branch out of the regions.
inline Graph wide(int64_t n) {
  Builder b("wide");
  const Value x = b.input("x", {DType::F32, {16, 16}}), y = op::tanh(b, x);
  std::vector<Value> level;
  for (int64_t i = 0; i < n / 3; ++i) {
    const Value scaled = op::mul(b, y, b.input(fmt::format("s{}", i), {DType::F32, {16, 16}}));
    level.push_back(i % 2 ? scaled : op::matmul(b, scaled, x));
  }
  while (level.size() > 1) {
    std::vector<Value> next;
    for (size_t i = 0; i + 1 < level.size(); i += 2)
      next.push_back(op::add(b, level[i], level[i + 1]));
    if (level.size() % 2) next.push_back(level.back());
    level = std::move(next);
  }
  b.output(level[0]);
  return b.finish();
}

// One value that everybody reads, and results that stay alive to the end.
inline Graph fan(int64_t n) {
  Builder b("fan");
  const Value x = b.input("x", {DType::F32, {16, 16}}), y = op::tanh(b, x);
  Value sum = y;
  std::vector<Value> kept;
  for (int64_t i = 0; i < n / 4; ++i) {
    kept.push_back(op::matmul(b, sum, x));
    sum = op::add(b, op::sin(b, kept.back()), y);
  }
  for (size_t i = kept.size(); i-- > 0;) sum = op::add(b, op::matmul(b, sum, kept[i]), y);
  b.output(sum);
  return b.finish();
}

inline GptConfig small_gpt(int64_t layers) {
  GptConfig c;
  c.vocab = 16, c.width = 16, c.heads = 2, c.block = 8, c.batch = 2, c.layers = layers;
  return c;
}

// p <- p - rate * (p * x)
inline Graph updates(int64_t n) {
  Builder b("updates");
  const Value x = b.input("x", kVector), rate = b.input("rate", {DType::F32, {}});
  std::vector<std::pair<std::string, Value>> found;
  for (int64_t i = 0; i < n; ++i) {
    const std::string name = fmt::format("p{}", i);
    const Value p = b.param(name, kVector);
    found.emplace_back(name, op::sub(b, p, op::mul(b, rate, op::mul(b, p, x))));
  }
  for (auto& [name, v] : found) b.update(name, v);
  b.output(x);
  return b.finish();
}

// Scans of length 2, one inside the other, some work at every level.
inline Graph scans(int64_t n) {
  Builder inner("step");
  const Value c = inner.input("c", kVector);
  inner.output(op::tanh(inner, c));
  Graph body = inner.finish();
  for (int64_t i = 0; i < n; ++i) {
    Builder b("step");
    Value v = b.input("c", kVector);
    v = b.emit(op::scan.def, ScanAttrs{.body = std::move(body), .length = 2, .num_carries = 1},
               Values{op::mul(b, v, v)})[0];
    b.output(op::sin(b, v));
    body = b.finish();
  }
  return body;
}

struct Case {
  const char* name;
  std::vector<int64_t> sizes;
  Graph (*make)(int64_t);
};

inline const std::vector<int64_t> kNodes{1000, 2000, 4000, 8000, 16000},
    kLayers{12, 24, 48, 96, 192}, kParams{500, 1000, 2000, 4000, 8000}, kDepths{1, 2, 4, 8, 16, 32};

inline const Case kCases[] = {
    {"chain", kNodes, chain},
    {"constants", kNodes, constants},
    {"layers", kNodes, layers},
    {"wide", kNodes, wide},
    {"fan", kNodes, fan},
    {"gpt", kLayers, [](int64_t n) { return gpt_loss(small_gpt(n)); }},
    {"gpt_train", kLayers, [](int64_t n) { return gpt_train_step(small_gpt(n)); }},
    {"updates", kParams, updates},
    {"scans", kDepths, scans},
};

// ---- the stages

enum Stage { build, verifying, text, passes, fuse, lowering, plan, codegen, all, kStages };
inline constexpr const char* kStageNames[] = {"build", "verify", "text",    "passes", "fuse",
                                              "lower", "plan",   "codegen", "all"};

// The program and its bodies as if they had not been planned.
inline void add_unplanned(const Program& program, std::vector<Program>& out) {
  Program& p = out.emplace_back(program);
  for (Buffer& b : p.buffers) b.offset = 0, b.first = b.last = b.shares = -1;
  p.arena_bytes = p.unshared_bytes = 0;
  for (const Step& s : program.steps)
    for (const auto& body : s.bodies) add_unplanned(*body, out);
}

// Makes the program and takes it through the stages up to the memory plan: each is timed(stage, work), which
// returns work(). Gives the program; the generated kernels are left to target.finish().
template <class Timed>
Graph each_stage(const Case& c, int64_t size, cpu::CpuTarget& target, Timed&& timed) {
  Graph g = timed(build, [&] { return c.make(size); });
  timed(verifying, [&] { return violations(g); });
  timed(text, [&] {
    TextStore store;
    return parse(print(g, &store), &store);
  });
  PassContext context;
  context.verify = false;
  context.keeps = [&](const Node& n, const Graph& at) {
    return n.op != &op::region && target.accepts(n, at);
  };
  const Graph optimised = timed(passes, [&] { return run_passes(g, default_pipeline(), context); });
  const Graph fused = timed(fuse, [&] { return fuse_program(optimised); });
  const Program program = timed(lowering, [&] { return lower(fused, target); });
  std::vector<Program> unplanned;
  add_unplanned(program, unplanned);
  timed(plan, [&] {
    for (Program& p : unplanned) plan_memory(p);
    return 0;
  });
  return g;
}

}  // namespace rlx::growth
