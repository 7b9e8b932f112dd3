// What `explain` says of a program is what the driver made of it: every node, step and buffer once, sums that agree with the
// plan, reasons for what was not done; and a page that takes names for text.
#include "rlx/explain/explain.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "../support/replay.h"
#include "../support/tool.h"
#include "rlx/base/checked.h"
#include "rlx/base/file.h"
#include "rlx/explain/graph_json.h"
#include "rlx/explain/trace.h"
#include "rlx/formats/npy.h"
#include "rlx/front/trace.h"
#include "rlx/ir/text.h"
#include "rlx/models/gpt.h"
#include "rlx/ops/attention/attention.h"
#include "rlx/ops/core.h"
#include "rlx/ops/region.h"
#include "rlx/passes/passes.h"

namespace rlx::testing {
namespace {

using Json = nlohmann::ordered_json;

std::string code_of_explaining(const GraphModule& m, const ExplainOptions& o,
                               const Device& device = "cpu") {
  try {
    explain(m, device, o);
  } catch (const Error& e) {
    return std::string(e.code());
  }
  return "";
}

Json explained(const GraphModule& m, const ExplainOptions& o = {}) {
  return Json::parse(explain(m, "cpu", o).json());
}

const Json& stage(const Json& document, std::string_view name) {
  for (const Json& s : document.at("stages"))
    if (s.at("stage") == name) return s.at("graph");
  throw std::runtime_error("no stage " + std::string(name));
}

GptConfig small_gpt(int64_t layers) {
  GptConfig c;
  c.layers = layers, c.width = 32, c.heads = 2, c.block = 16, c.batch = 2, c.vocab = 40;
  return c;
}

// A loop of which the body has a branch.
Graph looping() {
  return trace("looping", [](Tracer& t) {
    auto x = t.input("x", {9, 70});
    const auto round = [](Tracer& in, const TracedTensors& c, const TracedTensors&) -> ScanResult {
      auto bigger = c[0] * 2.0f + 1.0f;
      return {in.cond(
                  bigger.sum() > 0.0f, [&](Tracer&) { return bigger.tanh(); },
                  [&](Tracer&) { return -bigger; }),
              {}};
    };
    return t.scan({x}, {}, round, {.length = 5}).carries[0];
  });
}

std::vector<std::pair<std::string, Graph>> programs() {
  std::vector<std::pair<std::string, Graph>> out;
  for (const ReplayProgram& p : replay_programs())
    if (p.graph.symbols().empty()) out.emplace_back(p.name, p.graph);
  out.emplace_back("gpt", gpt_train_step(small_gpt(2)));
  return out;
}

// ---- every node, step and buffer once

void expect_graph(const Json& j, const Graph& g) {
  ASSERT_EQ(j.at("nodes").size(), g.nodes.size());
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    const Json& node = j.at("nodes")[static_cast<size_t>(i)];
    EXPECT_EQ(node.at("op"), n.op->name);
    ASSERT_EQ(node.at("out").size(), n.out.size());
    for (size_t k = 0; k < n.out.size(); ++k) EXPECT_EQ(node.at("out")[k], n.out[k].to_string());
    ASSERT_EQ(node.contains("in") ? node.at("in").size() : 0, n.in.size());
    for (size_t k = 0; k < n.in.size(); ++k) {
      const Json& in = node.at("in")[k];
      const std::string text =
          in.is_string() ? "%" + in.get<std::string>() : fmt::format("%{}", in.get<int>());
      EXPECT_EQ(text, to_string(n.in[k]));
    }
    EXPECT_EQ(node.value("label", ""), n.origin.label.str());
    const auto inner = bodies(n.attrs);
    ASSERT_EQ(node.contains("bodies") ? node.at("bodies").size() : 0, inner.size());
    for (size_t k = 0; k < inner.size(); ++k) {
      EXPECT_EQ(node.at("bodies")[k].at("field"), inner[k].field);
      expect_graph(node.at("bodies")[k].at("graph"), inner[k].graph);
    }
  }
  EXPECT_EQ(j.at("outputs").size(), g.outputs.size());
}

void expect_program(const Json& j, const Program& p) {
  ASSERT_EQ(j.at("steps").size(), p.steps.size());
  for (size_t i = 0; i < p.steps.size(); ++i) {
    const Json& step = j.at("steps")[i];
    EXPECT_EQ(step.at("label"), p.steps[i].label);
    EXPECT_EQ(step.contains("kernel"), p.steps[i].kernel != nullptr);
    const auto node =
        step.at("node").get<int32_t>();  // for which it runs: the label says its number, too
    ASSERT_TRUE(node >= 0 && node < p.graph.size()) << p.steps[i].label;
    if (p.steps[i].label.starts_with("%")) {
      EXPECT_EQ(p.steps[i].label.substr(0, p.steps[i].label.find(' ')), fmt::format("%{}", node));
    }
    ASSERT_EQ(step.contains("bodies") ? step.at("bodies").size() : 0, p.steps[i].bodies.size());
    for (size_t k = 0; k < p.steps[i].bodies.size(); ++k)
      expect_program(step.at("bodies")[k], *p.steps[i].bodies[k]);
  }
  ASSERT_EQ(j.at("buffers").size(), p.buffers.size());
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    EXPECT_EQ(j.at("buffers")[i].at("bytes"), p.buffers[i].bytes);
    EXPECT_EQ(j.at("buffers")[i].at("first"), p.buffers[i].first);
    EXPECT_EQ(j.at("buffers")[i].at("last"), p.buffers[i].last);
  }
  int32_t next = 0;  // launches are the steps, cut
  for (const Json& launch : j.at("launches")) {
    EXPECT_EQ(launch.at("begin"), next);
    EXPECT_GT(launch.at("end"), next);
    next = launch.at("end").get<int32_t>();
  }
  EXPECT_EQ(next, static_cast<int32_t>(p.steps.size()));
}

TEST(Explain, SaysOfEveryNodeStepAndBufferOnce) {
  const auto backend = backend_for("cpu");
  auto all = programs();
  all.emplace_back("looping", looping());
  ASSERT_GT(all.size(), 5u);
  for (const auto& [name, g] : all) {
    SCOPED_TRACE(name);
    const Json j = explained(g);
    EXPECT_EQ(j.at("format"), "rlx.explain");
    EXPECT_EQ(j.at("version"), 1);
    EXPECT_EQ(j.at("name"), g.name);
    ASSERT_EQ(j.at("stages").size(), 3u);
    expect_graph(stage(j, "mir"), g);
    const GraphModule optimised = lower_to(CompileStage::optimised, g, *backend);
    expect_graph(stage(j, "optimised"), *optimised.as_graph());
    const GraphModule lir =
        lower_to(CompileStage::lir, optimised, *backend, {}, CompileStage::optimised);
    expect_graph(stage(j, "fused"), *lir.as_graph());
    expect_program(j.at("program"), lir.as_lir()->plan());
  }
}

TEST(Explain, StagesBeginWhereTheProgramDoes) {
  const GraphModule hir = GraphModule::define("ffn", [](HirModule& h) {
    const HirNodeId x = h.input("x", {DType::F32, {4, 8}}), w = h.param("w", {DType::F32, {8, 8}});
    return h.named("proj", [&](HirModule& m) { return m.linear(x, w); });
  });
  const Json j = explained(hir);
  ASSERT_EQ(j.at("stages").size(), 4u);
  EXPECT_EQ(j.at("stages")[0].at("stage"), "hir");
  expect_graph(stage(j, "hir"), hir.as_hir()->graph());
  const GraphModule lir = lower_to(CompileStage::lir, hir, *backend_for("cpu"));
  const Json late = explained(lir);
  ASSERT_EQ(late.at("stages").size(), 1u);
  EXPECT_TRUE(late.at("passes").empty());
  EXPECT_EQ(late.at("program"), j.at("program"));
}

// ---- sums agree with the plan

void expect_sums(const Json& p) {
  const Json& buffers = p.at("buffers");
  std::vector<size_t> launch_of;
  for (size_t l = 0; l < p.at("launches").size(); ++l)
    for (int s = p.at("launches")[l].at("begin"); s < p.at("launches")[l].at("end"); ++s)
      launch_of.push_back(l);
  std::vector<int64_t> live(p.at("launches").size(), 0);
  int64_t end = 0, unshared = 0;
  std::vector<size_t> arena;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Json& b = buffers[i];
    if (b.at("place") != "arena" || b.at("first") < 0) continue;
    const int64_t bytes = align_up(std::max(b.at("bytes").get<int64_t>(), int64_t{1}), 64);
    unshared += bytes;
    if (b.contains("shares")) {
      EXPECT_EQ(b.at("offset"), buffers[b.at("shares").get<size_t>()].at("offset"));
      continue;
    }
    arena.push_back(i);
    end = std::max(end, b.at("offset").get<int64_t>() + bytes);
    for (size_t l = launch_of[b.at("first").get<size_t>()];
         l <= launch_of[b.at("last").get<size_t>()]; ++l)
      live[l] += bytes;
  }
  EXPECT_EQ(p.at("arena_bytes"), end);
  EXPECT_EQ(p.at("unshared_bytes"), unshared);
  EXPECT_EQ(p.at("live_bytes").get<std::vector<int64_t>>(), live);
  const int64_t most = live.empty() ? 0 : *std::max_element(live.begin(), live.end());
  EXPECT_EQ(p.at("largest_live_bytes"), most);
  EXPECT_LE(most, end);
  for (size_t a : arena)  // what lives at once lies apart
    for (size_t b : arena) {
      const Json &x = buffers[a], &y = buffers[b];
      const auto launch = [&](const Json& buffer, const char* when) {
        return launch_of[buffer.at(when).get<size_t>()];
      };
      const bool together =
          launch(x, "first") <= launch(y, "last") && launch(y, "first") <= launch(x, "last");
      const bool overlap =
          x.at("offset") < y.at("offset").get<int64_t>() + y.at("bytes").get<int64_t>() &&
          y.at("offset") < x.at("offset").get<int64_t>() + x.at("bytes").get<int64_t>();
      EXPECT_FALSE(a < b && together && overlap) << "b" << a << " and b" << b;
    }
  for (const Json& s : p.at("steps"))
    if (s.contains("bodies"))
      for (const Json& body : s.at("bodies")) expect_sums(body);
}

TEST(Explain, SumsAgreeWithThePlan) {
  for (const auto& [name, g] : programs()) {
    SCOPED_TRACE(name);
    const Json j = explained(g);
    expect_sums(j.at("program"));
    double steps = 0, launches = 0;
    for (const Json& s : j.at("program").at("steps")) steps += s.value("flops", 0.0);
    for (const Json& l : j.at("program").at("launches")) launches += l.at("flops").get<double>();
    EXPECT_NEAR(steps, launches, 1e-9 * steps);
  }
  expect_sums(explained(looping()).at("program"));
}

TEST(Explain, CountsOperationsAndBytes) {
  const Graph g = trace(
      "product", [](Tracer& t) { return t.input("x", {9, 70}).matmul(t.input("w", {70, 130})); });
  const Json p = explained(g).at("program");
  ASSERT_EQ(p.at("launches").size(), 1u);
  EXPECT_EQ(p.at("launches")[0].at("flops"), 2.0 * 9 * 70 * 130);
  EXPECT_EQ(p.at("launches")[0].at("bytes"), 4.0 * (9 * 70 + 70 * 130 + 9 * 130));
  // What a view repeats is read once.
  const Graph h =
      trace("row", [](Tracer& t) { return t.input("x", {9, 70}) + t.input("b", {70}); });
  const Json row = explained(h).at("program");
  EXPECT_EQ(row.at("launches")[0].at("bytes"), 4.0 * (9 * 70 + 70 + 9 * 70));
  const Graph repeated = parse(
      "graph @g {\n  %0 = input() {name=\"b\", shape=[70]} : [70] f32\n"
      "  %1 = broadcast(%0) {shape=[9, 70]} : [9, 70] f32\n  return %1\n}\n");
  EXPECT_EQ(explained(repeated).at("program").at("launches")[0].at("bytes"), 4.0 * (70 + 9 * 70));
}

// ---- passes

TEST(Explain, PassesSayWhatTheyChanged) {
  for (const auto& [name, g] : programs()) {
    SCOPED_TRACE(name);
    const Json j = explained(g);
    const auto pipeline = default_pipeline();
    ASSERT_EQ(j.at("passes").size(), pipeline.size() + 1);
    int64_t nodes = g.size();
    for (const Json& p : j.at("passes")) {
      SCOPED_TRACE(p.at("pass").get<std::string>());
      EXPECT_EQ(p.at("nodes_before"), nodes);
      nodes = p.at("nodes_after").get<int64_t>();
      const int64_t kept =
          p.at("kept").get<int64_t>() + p.at("rewritten").at("count").get<int64_t>();
      EXPECT_EQ(kept + p.at("removed").at("count").get<int64_t>(), p.at("nodes_before"));
      EXPECT_EQ(kept + p.at("added").at("count").get<int64_t>(), nodes);
      for (const char* what : {"rewritten", "added", "removed"}) {
        int64_t sum = 0;
        for (const Json& n : p.at(what).at("nodes")) sum += n[2].get<int64_t>();
        EXPECT_EQ(sum, p.at(what).at("count"));
      }
    }
    EXPECT_EQ(nodes, static_cast<int64_t>(stage(j, "fused").at("nodes").size()));
  }
}

TEST(Explain, ChangesAreThoseOfNodes) {
  const auto text = [](std::string_view body) {
    return parse(fmt::format("graph @g {{\n{}\n}}\n", body));
  };
  const Graph before = text(R"(  %0 = input() {name="x", shape=[4]} : [4] f32
  %1 = neg(%0) : [4] f32
  %2 = neg(%1) : [4] f32
  %3 = exp(%2) : [4] f32
  %4 = tanh(%3) : [4] f32
  return %4)");
  const Graph after = text(R"(  %0 = input() {name="x", shape=[4]} : [4] f32
  %1 = exp(%0) : [4] f32
  %2 = tanh(%1) : [4] f32
  %3 = sin(%2) : [4] f32
  return %3)");
  const Json c = explaining::changes_json(before, after);
  EXPECT_EQ(c.at("kept"), 2);  // x, and tanh, which reads the same exp
  EXPECT_EQ(c.at("rewritten").at("nodes"), Json::parse(R"([["exp", "[4] f32", 1]])"));
  EXPECT_EQ(c.at("added").at("nodes"), Json::parse(R"([["sin", "[4] f32", 1]])"));
  EXPECT_EQ(c.at("removed").at("nodes"), Json::parse(R"([["neg", "[4] f32", 2]])"));
  const Json same = explaining::changes_json(before, before);
  EXPECT_EQ(same.at("kept"), 5);
}

// ---- fusion and dispatch

TEST(Explain, EveryNodeIsInARegionOrHasAReason) {
  for (const auto& [name, g] : programs()) {
    SCOPED_TRACE(name);
    const Json j = explained(g);
    const Json &fusion = j.at("fusion"), &nodes = stage(j, "optimised").at("nodes"),
               &fused = stage(j, "fused").at("nodes");
    std::vector<int> seen(nodes.size(), 0);
    for (const Json& group : fusion.at("groups")) {
      if (group.contains("where")) continue;
      const Json& region = fused.at(group.at("region").get<size_t>());
      ASSERT_EQ(region.at("op"), "region");
      std::multiset<std::string> inside;
      for (const Json& n : region.at("bodies")[0].at("graph").at("nodes"))
        inside.insert(n.at("op"));
      for (const Json& i : group.at("nodes")) {
        ++seen.at(i.get<size_t>());
        EXPECT_TRUE(inside.contains(nodes[i.get<size_t>()].at("op").get<std::string>())) << i;
      }
    }
    for (const Json& a : fusion.at("alone")) {
      if (a.contains("where")) continue;
      EXPECT_EQ(seen.at(a.at("node").get<size_t>())++, 0);
      EXPECT_FALSE(a.at("why").get<std::string>().empty());
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      const std::string op = nodes[i].at("op");
      const bool leaf =
          op == "input" || op == "param" || op == "constant" || op == "iota" || op == "dim_size";
      EXPECT_TRUE(leaf || seen[i] >= 1) << i << " " << op;
    }
    for (const Json& r : fusion.at("refusals")) {
      EXPECT_FALSE(r.at("why").get<std::string>().empty());
      if (r.contains("where")) continue;
      if (r.contains("names")) {  // of a pass before, or of what was made on the way
        for (const Json& n : r.at("names")) EXPECT_FALSE(n.get<std::string>().empty());
        EXPECT_TRUE(r.at("producer") < 0 || r.at("consumer") < 0);
        continue;
      }
      EXPECT_GE(r.at("producer"), 0);
      EXPECT_LT(r.at("producer"), static_cast<int>(nodes.size()));
      EXPECT_LT(r.at("consumer"), static_cast<int>(nodes.size()));
      EXPECT_LT(r.at("producer"), r.at("consumer"));
    }
  }
}

TEST(Explain, RefusalsNameTheNodesOfTheStageBefore) {
  // What a column reduction would take as its prologue is read elsewhere, too.
  const Graph g = trace("two", [](Tracer& t) {
    auto y = t.input("x", {70, 9}).exp();
    return TracedTensors{y.sum({0}), y.tanh()};
  });
  const Json j = explained(g);
  const Json& nodes = stage(j, "optimised").at("nodes");
  ASSERT_FALSE(j.at("fusion").at("refusals").empty());
  for (const Json& r : j.at("fusion").at("refusals")) {
    const Json& consumer = nodes.at(r.at("consumer").get<size_t>());
    const auto reads = consumer.at("in");
    EXPECT_NE(std::find(reads.begin(), reads.end(), r.at("producer")), reads.end()) << r;
  }
}

TEST(Explain, DispatchHasAPathForEveryNode) {
  const Graph g = gpt_train_step(small_gpt(2));
  const Json j = explained(g);
  const Json &paths = j.at("dispatch").at("nodes"), &nodes = stage(j, "fused").at("nodes");
  ASSERT_EQ(paths.size(), nodes.size());
  std::set<std::string> kinds;
  std::set<int> run;  // nodes with a step
  const auto add = [&](const Json& p) {
    for (const Json& s : p.at("steps")) run.insert(s.at("node").get<int>());
  };
  add(j.at("program"));
  if (j.at("program").contains("weights"))  // what is made of weights once
    for (const Json& w : j.at("program").at("weights").at("joined")) add(w.at("program"));
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::string path = paths[i].at("path"), op = nodes[i].at("op");
    kinds.insert(path);
    EXPECT_EQ(path == "region", op == "region");
    EXPECT_EQ(path == "native", paths[i].contains("kernel"));
    const bool runs = path == "region" || path == "native";
    EXPECT_TRUE(!runs || run.contains(static_cast<int>(i))) << i << " " << op;
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"leaf", "native", "region", "view"}));
  std::map<std::string, int> decomposed;
  for (const Json& d : j.at("dispatch").at("decomposed")) {
    ++decomposed[d.at("op").get<std::string>()];
    EXPECT_FALSE(d.at("why").get<std::string>().empty());
  }
  EXPECT_EQ(decomposed["layer_norm"], 2 * 2 + 1);  // two of each layer, one at the end
}

TEST(Explain, KernelsThatRefuseSayWhy) {
  Builder b("masked");
  const Type q{DType::F32, {1, 8, 16}};
  const Values in{b.input("q", q), b.input("k", q), b.input("v", q),
                  b.input("mask", {DType::Bool, {1, 1, 8, 1}})};
  b.output(b.emit(op::attention.def, AttentionAttrs{.num_heads = 2, .has_mask = true}, in)[0]);
  const Graph g = b.finish();
  const auto target = backend_for("cpu")->make_target({});
  const Target::Choice choice = target->choice(g.node(g.outputs[0]), g);
  EXPECT_TRUE(choice.kernel.empty());
  ASSERT_EQ(choice.refused.size(), 1u);
  EXPECT_EQ(choice.refused[0].second, "the mask must not broadcast along the keys");
  const Json decomposed = explained(g).at("dispatch").at("decomposed");
  ASSERT_FALSE(decomposed.empty());
  EXPECT_EQ(decomposed[0].at("op"), "attention");
  EXPECT_EQ(decomposed[0].at("why"), "attention: the mask must not broadcast along the keys");
}

// ---- measuring

TEST(Explain, MeasuresWhereItMayRun) {
  const Graph g = trace("mlp", [](Tracer& t) {
    return t.input("x", {9, 70}).matmul(t.param("w", {70, 130})).tanh();
  });
  EXPECT_TRUE(explained(g).at("measured").is_null());
  EXPECT_TRUE(explained(g).at("limits").is_null());
  ExplainOptions o;
  o.run = true, o.runs = 2;
  o.inputs = {{"x", Tensor::full(DType::F32, {9, 70}, 0.5)}};
  o.limits = MachineLimits{100, 10};
  const Json j = explained(g, o);
  EXPECT_EQ(j.at("measured").at("made_up"), Json::parse(R"(["w"])"));
  EXPECT_EQ(j.at("measured").at("runs"), 2);
  EXPECT_EQ(j.at("limits"), Json::parse(R"({"source": "given", "gflops": 100.0, "gbytes": 10.0})"));
  double sum = 0;
  for (const Json& l : j.at("program").at("launches")) {
    EXPECT_GE(l.at("seconds").get<double>(), 0);
    sum += l.at("seconds").get<double>();
    EXPECT_DOUBLE_EQ(
        l.at("limit_seconds").get<double>(),
        std::max(l.at("flops").get<double>() / 100e9, l.at("bytes").get<double>() / 10e9));
  }
  EXPECT_LE(sum, j.at("measured").at("seconds").get<double>() * (1 + 1e-9));  // of the best of each
  // Where operations are slow they are the limit.
  o.limits = MachineLimits{1, 10};
  const Json slow = explained(g, o);
  ASSERT_FALSE(slow.at("program").at("launches").empty());
  for (const Json& l : slow.at("program").at("launches"))
    EXPECT_DOUBLE_EQ(l.at("limit_seconds").get<double>(), l.at("flops").get<double>() / 1e9);
}

TEST(Explain, SizesComeFromWhatIsGiven) {
  const Graph g =
      trace("rows", [](Tracer& t) { return t.input("x", {Dim::symbol("n"), 8}).tanh(); });
  EXPECT_EQ(code_of_explaining(g, {}), "unbound-dim");
  ExplainOptions o;
  o.inputs = {{"x", Tensor::full(DType::F32, {17, 8}, 0.5)}};
  const Json j = explained(g, o);
  EXPECT_EQ(j.at("environment").at("sizes"), Json::parse(R"({"n": 17})"));
  EXPECT_EQ(stage(j, "mir").at("nodes")[0].at("out")[0], "[?n, 8] f32");
  EXPECT_EQ(stage(j, "fused").at("nodes")[0].at("out")[0], "[17, 8] f32");
  o.inputs.clear();
  o.compile.dims = {{"n", 130}};
  EXPECT_EQ(stage(explained(g, o), "fused").at("nodes")[0].at("out")[0], "[130, 8] f32");
}

TEST(Explain, RefusesWhatMakesNoSense) {
  const Graph g = trace("f", [](Tracer& t) { return t.input("x", {4}).tanh(); });
  EXPECT_EQ(code_of_explaining(g, {.limits = MachineLimits{0, 10}}), "limits");
  EXPECT_EQ(code_of_explaining(g, {.limits = MachineLimits{10, std::nan("")}}), "limits");
  EXPECT_EQ(code_of_explaining(g, {.runs = 0}), "runs");
  EXPECT_EQ(code_of_explaining(g, {.inputs = {{"y", Tensor(DType::F32, {4})}}}), "input-unknown");
  EXPECT_EQ(code_of_explaining(g, {.params = {{"w", Tensor(DType::F32, {4})}}}), "param-unknown");
  EXPECT_EQ(code_of_explaining(g, {.inputs = {{"x", Tensor(DType::I32, {4})}}}), "input-type");
  EXPECT_EQ(code_of_explaining(g, {}, "reference"), "stage");
}

// ---- the page

constexpr std::string_view kHostile =
    R"(</script><script>window.hacked = 1</script><!-- "'`${1}&lt; <img src=x onerror=alert(1)>)";

size_t count(std::string_view text, std::string_view what) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != text.npos; at += what.size()) ++n;
  return n;
}

std::string data_of(const std::string& html) {
  const std::string_view begin = "id=\"data\">";
  const size_t from = html.find(begin) + begin.size();
  return html.substr(from, html.find("</script>", from) - from);
}

TEST(ExplainPage, TakesNamesForText) {
  const std::string hostile(kHostile);
  const Graph g = trace(hostile, [&](Tracer& t) {
    const Scope scope(t, hostile);
    return t.input(hostile, {4}).tanh() * t.param("__proto__", {4});
  });
  const Explanation e = explain(g, "cpu");
  const std::string
      html = e.html(),
      plain = explain(trace("f", [](Tracer& t) { return t.input("x", {4}).tanh(); }), "cpu").html();
  for (std::string_view mark : {"<script", "</script", "<!--", "<img", "window.hacked = 1</"})
    EXPECT_EQ(count(html, mark), count(plain, mark)) << mark;
  EXPECT_EQ(Json::parse(data_of(html)), Json::parse(e.json()));
  EXPECT_EQ(Json::parse(data_of(html)).at("name"), hostile);
  EXPECT_EQ(count(html, "http://") + count(html, "https://"),
            1u);  // the name of SVG; nothing is fetched
}

TEST(ExplainPage, OfATwelveLayerTrainingStepIsSmall) {
  GptConfig c;
  c.layers = 12, c.block = 32, c.batch = 2;
  const Explanation e = explain(gpt_train_step(c), "cpu");
  const Json j = Json::parse(e.json());
  EXPECT_GT(stage(j, "mir").at("nodes").size(), 3000u);
  EXPECT_LT(e.html().size(), 3'000'000u);
}

TEST(ExplainPage, SurvivesTextThatIsNoUtf8) {
  Graph g = trace("f", [](Tracer& t) { return t.input("x", {4}).tanh(); });
  g.nodes[1].origin.label = std::string("\xff\xfe");
  EXPECT_NO_THROW(Json::parse(explain(g, "cpu").json()));
}

// ---- traces

void expect_nested(const Json& events) {
  const auto nanoseconds = [](const Json& us) { return std::llround(us.get<double>() * 1e3); };
  std::vector<std::pair<int64_t, int64_t>> open;
  for (const Json& e : events) {
    if (e.at("ph") == "M") continue;
    EXPECT_EQ(e.at("ph"), "X");
    const int64_t begin = nanoseconds(e.at("ts")), end = begin + nanoseconds(e.at("dur"));
    EXPECT_GE(end, begin);
    while (!open.empty() && open.back().second <= begin) open.pop_back();
    if (!open.empty()) {
      EXPECT_GE(begin, open.back().first);
      EXPECT_LE(end, open.back().second) << e;
    }
    open.emplace_back(begin, end);
  }
}

TEST(RunTraces, StepsLieInsideOfWhatRunsThem) {
  for (const char* device : {"cpu", "reference"}) {
    SCOPED_TRACE(device);
    CompiledGraph f = Session(device).compile(looping());
    RunTrace trace;
    f.run({{"x", Tensor::full(DType::F32, {9, 70}, 0.25)}}, {.trace = &trace});
    EXPECT_EQ(trace.dropped, 0);
    ASSERT_FALSE(trace.spans.empty());
    if (std::string_view(device) == "cpu") {
      const auto inside = std::count_if(trace.spans.begin(), trace.spans.end(),
                                        [](const RunSpan& s) { return s.depth == 1; });
      EXPECT_GE(inside, 5 * 2);  // of each round: the region and the branch
      EXPECT_EQ(inside % 5, 0);
      EXPECT_GE(std::count_if(trace.spans.begin(), trace.spans.end(),
                              [](const RunSpan& s) { return s.depth == 2; }),
                5);
    }
    for (size_t i = 0; i < trace.spans.size(); ++i) {
      const RunSpan& s = trace.spans[i];
      EXPECT_GE(s.seconds, 0);
      for (size_t k = i; k-- > 0;) {  // the one around it is the last before it that is less deep
        if (trace.spans[k].depth >= s.depth) continue;
        EXPECT_GE(s.start, trace.spans[k].start);
        EXPECT_LE(s.start + s.seconds, trace.spans[k].start + trace.spans[k].seconds);
        break;
      }
    }
    const Json j = Json::parse(chrome_trace(trace, {}, trace.began));
    EXPECT_EQ(j.at("traceEvents").size(), trace.spans.size() + 1);
    expect_nested(j.at("traceEvents"));
    trace.spans.clear();
    f.run({{"x", Tensor::full(DType::F32, {9, 70}, 0.25)}});
    EXPECT_TRUE(trace.spans.empty());
  }
}

// ---- the tool

class ExplainTool : public ToolFolder {};

TEST_F(ExplainTool, WritesJsonPagesAndTraces) {
  const std::string file = at("loop.rlx");
  write_file(file, print(looping()));
  const ToolResult json = run_tool(
      {"explain", file, "--json", "--measure", "--runs", "1", "--gflops", "50", "--gbytes", "5"});
  ASSERT_EQ(json.status, 0) << json.err;
  const Json j = Json::parse(json.out);
  EXPECT_EQ(j.at("limits").at("gflops"), 50);
  EXPECT_EQ(j.at("measured").at("made_up"), Json::parse(R"(["x"])"));
  const ToolResult page = run_tool({"explain", file, "--html", at("report.html")});
  ASSERT_EQ(page.status, 0) << page.err;
  EXPECT_NE(page.out.find("fusion: "), std::string::npos);
  EXPECT_EQ(Json::parse(data_of(read_file(at("report.html")))).at("name"), "looping");
  EXPECT_EQ(code_of(run_tool({"explain", file, "--json", "--html", "-"})), "standard-output");
  EXPECT_EQ(code_of(run_tool({"explain", file, "--gflops", "5"})), "limits");
  EXPECT_EQ(code_of(run_tool({"explain", file, "--backend", "reference"})), "stage");
  // A run's trace: what happened around it, and each of its steps.
  write_npy(at("x.npy"), Tensor::full(DType::F32, {9, 70}, 0.25));
  const ToolResult run =
      run_tool({"run", file, "--input", "x=" + at("x.npy"), "--trace", at("t.json")});
  ASSERT_EQ(run.status, 0) << run.err;
  const Json trace = Json::parse(read_file(at("t.json")));
  std::set<std::string> names;
  for (const Json& e : trace.at("traceEvents")) names.insert(e.at("name").get<std::string>());
  for (const char* phase : {"read", "compile", "run"}) EXPECT_TRUE(names.contains(phase)) << phase;
  expect_nested(trace.at("traceEvents"));
}

}  // namespace
}  // namespace rlx::testing
