// Every public name of the documents that this system is built from: a row in tests/names/rows.tsv says what it is called here
// and which test calls it for its behaviour. The names themselves are in tests/names/*.txt, made by extract.py.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "../support/expect_error.h"
#include "rlx/build.h"
#include "rlx/compile.h"
#include "rlx/front/trace.h"
#include "rlx/ops/core.h"
#include "rlx/ops/evaluate.h"
#include "rlx/opt.h"
#include "rlx/runtime/runtime.h"

namespace rlx {
namespace {

namespace fs = std::filesystem;

const fs::path kTests = fs::path(RLX_SOURCE_DIR) / "tests";
const std::string kDocuments[] = {"graph", "special", "module", "optimizer", "tracer"};

std::vector<std::string> lines_of(const fs::path& path) {
  std::vector<std::string> out;
  std::ifstream in(path);
  EXPECT_TRUE(in) << path;
  for (std::string line; std::getline(in, line);)
    if (!line.empty() && line[0] != '#') out.push_back(line);
  return out;
}

struct NameRow {
  std::string document, name, ours, test;
};

std::vector<NameRow> rows() {
  std::vector<NameRow> out;
  for (const std::string& line : lines_of(kTests / "names" / "rows.tsv")) {
    std::vector<std::string> cells;
    std::stringstream text(line);
    for (std::string cell; std::getline(text, cell, '\t');) cells.push_back(cell);
    EXPECT_EQ(cells.size(), 4u) << line;
    if (cells.size() == 4) out.push_back({cells[0], cells[1], cells[2], cells[3]});
  }
  return out;
}

// "passes_test.cc:Runner.Dumps", "test_ops.py:test_add": all there are.
std::set<std::string> tests_there_are() {
  static const std::regex cc(R"(^TEST(?:_P|_F)?\((\w+), *(\w+)\))"), py(R"(^\s*def (test_\w+)\()");
  std::set<std::string> out;
  for (const char* folder : {"unit", "long", "python"})
    for (const auto& entry : fs::directory_iterator(kTests / folder)) {
      const std::string file = entry.path().filename().string();
      const bool is_cc = file.ends_with("_test.cc");
      if (!is_cc && !file.ends_with(".py")) continue;
      for (const std::string& line : lines_of(entry.path())) {
        std::smatch found;
        if (is_cc && std::regex_search(line, found, cc))
          out.insert(fmt::format("{}:{}.{}", file, found[1].str(), found[2].str()));
        else if (!is_cc && std::regex_search(line, found, py))
          out.insert(fmt::format("{}:{}", file, found[1].str()));
      }
    }
  return out;
}

TEST(PublicNames, EachHasARowWithATest) {
  const std::set<std::string> tests = tests_there_are();
  std::set<std::pair<std::string, std::string>> seen;
  int waiting = 0;
  for (const NameRow& r : rows()) {
    SCOPED_TRACE(r.document + ": " + r.name);
    EXPECT_TRUE(seen.emplace(r.document, r.name).second) << "has two rows";
    if (r.test.starts_with("waiting: ")) {
      EXPECT_GT(r.test.size(), 9u);
      fmt::print("waiting: {} {} ({})\n", r.document, r.name, r.test.substr(9));
      ++waiting;
    } else if (r.test.starts_with("dropped: ")) {
      EXPECT_GT(r.test.size(), 9u) << "no reason";
    } else {
      EXPECT_FALSE(r.ours.empty()) << "no name of ours";
      EXPECT_TRUE(tests.contains(r.test)) << "no such test: " << r.test;
    }
  }
  for (const std::string& document : kDocuments) {
    std::set<std::string> names;
    for (const std::string& name : lines_of(kTests / "names" / (document + ".txt"))) {
      names.insert(name);
      EXPECT_TRUE(seen.contains({document, name})) << document << ": " << name << " has no row";
    }
    for (const auto& [row_document, name] : seen)
      if (row_document == document) {
        EXPECT_TRUE(names.contains(name)) << document << " has no name " << name;
      }
  }
  fmt::print("{} names, {} waiting\n", seen.size(), waiting);
}

// ---- what no other test calls

Type f32_type(Shape shape) { return {DType::F32, std::move(shape)}; }

TEST(PublicNames, GraphsAreValues) {
  GraphBuilder g("g");
  g.set_outputs({g.exp(g.input("x", f32_type({3})))});
  const Graph a = g.finish();
  Graph copy = a;
  EXPECT_EQ(copy, a);
  copy.name = "other";
  copy.outputs.push_back(copy.outputs[0]);
  EXPECT_FALSE(copy == a);
  EXPECT_EQ(a.name, "g");
  EXPECT_EQ(a.outputs.size(), 1u);
  EXPECT_EQ(parse(print(a)), a);
  const MirModule mir(a);
  EXPECT_EQ(Graph(mir), a);
  const GraphModule module(a), again = module;
  EXPECT_EQ(Graph(again), a);
  EXPECT_EQ(*module.as_graph(), a);
}

TEST(PublicNames, StagesAreValues) {
  for (GraphStage stage : {GraphStage::hir, GraphStage::mir, GraphStage::lir}) {
    const GraphStage copy = stage;
    EXPECT_EQ(copy, stage);
  }
  GraphModule m = GraphModule::from_mir(MirModule("m"));
  const GraphModule before = m;
  m.input("x", f32_type({2}));
  EXPECT_EQ(m.len(), 1u);
  EXPECT_EQ(before.len(), 0u);
  EXPECT_EQ(m.name(), "m");
  EXPECT_TRUE(m.to_string().starts_with("mir @graph @\"m\"")) << m.to_string();
  EXPECT_TRUE(m.inspect().starts_with("mir @m"));
}

TEST(PublicNames, ModulesAreWrittenAtEveryStage) {
  GraphModule m = GraphModule::hir("m");
  EXPECT_EQ(m.as_mir_mut(), nullptr);
  EXPECT_EQ(m.as_graph_mut(), nullptr);
  const HirNodeId x = m.input("x", f32_type({2, 8}));
  m.as_hir_mut()->node_mut(x).origin.label = "in";
  m.set_hir_outputs({m.named("act", [&](HirModule& h) { return h.mir(op::exp, {x}); })});
  EXPECT_EQ(m.as_hir()->node(x).origin.label, "in");
  m = std::move(m).lower();
  m.as_graph_mut()->name = "renamed";
  EXPECT_EQ(m.name(), "renamed");
  m = lower_to(CompileStage::lir, std::move(m), *backend_for("cpu"));
  ASSERT_TRUE(m.as_lir()->has_plan());
  m.as_graph_mut()->name = "again";
  EXPECT_EQ(m->name, "again");
  EXPECT_FALSE(m.as_lir()->has_plan());  // it was made for another graph
  EXPECT_TRUE(std::move(m).into_lir().has_value());
}

TEST(PublicNames, BlocksOfAModule) {
  GraphModule m = GraphModule::hir("layer");
  const auto in = [&](Shape s) { return m.input(fmt::format("x{}", m.len()), f32_type(s)); };
  const HirNodeId x = in({1, 2, 8}), w = in({8, 8}), v = in({8});
  const auto type = [&](HirNodeId id) { return m.as_hir()->shape(id).to_string(); };
  const Type same = f32_type({1, 2, 8});
  EXPECT_EQ(type(m.linear(x, w, v, Activation::gelu, same)), "[1, 2, 8] f32");
  EXPECT_EQ(type(m.linear_fused(x, w, v, {}, same)), "[1, 2, 8] f32");
  const auto [first, second] = m.shared_linear_pair(x, w, w, same);
  EXPECT_EQ(type(first), type(second));
  EXPECT_EQ(type(m.swiglu_ffn(x, w, w, w, same)), "[1, 2, 8] f32");
  EXPECT_EQ(type(m.residual_rms_norm(x, x, v, v, 1e-5, same)), "[1, 2, 8] f32");
  EXPECT_EQ(type(m.rms_norm(x, v, v, 1e-5, same)), "[1, 2, 8] f32");
  EXPECT_EQ(type(m.attention(x, x, x, {}, 2, 4, AttentionMask::causal(), same)), "[1, 2, 8] f32");
  EXPECT_EQ(type(m.rope(x, in({2, 2}), in({2, 2}), 4, 4, same)), "[1, 2, 8] f32");
  EXPECT_EQ(type(m.depthwise_conv1d_causal(x, in({8, 1, 1, 3}), in({1, 2, 8}), 3, same)),
            "[1, 2, 8] f32");
  const HirNodeId q = in({1, 2, 1, 4}), gate = in({1, 2, 1}), state = in({1, 1, 4, 4});
  EXPECT_EQ(type(m.gated_delta_net(q, q, q, gate, gate, 4)), "[1, 2, 1, 4] f32");
  EXPECT_EQ(type(m.gated_delta_net_carry(q, q, q, gate, gate, state, 4)), "[1, 2, 1, 4] f32");
  EXPECT_EQ(type(m.hir_mir(op::exp, {x}, same)), "[1, 2, 8] f32");
  EXPECT_EQ(type(GraphModule::block(*m.as_hir_mut(), "named",
                                    [&](HirModule& h) { return h.mir(op::exp, {x}); })),
            "[1, 2, 8] f32");
  EXPECT_EQ(m.as_hir()->nodes().back().origin.label, "named");
  const HirNodeId y = m.linear(x, w);
  const GraphModule done = std::move(m).finish_hir(y);
  EXPECT_EQ(done.as_hir()->outputs(), (HirModule::Ids{y}));
  GraphModule from = GraphModule::from_hir(*done.as_hir());
  EXPECT_TRUE(std::move(from).into_hir().has_value());
  EXPECT_EQ(GraphModule::from_graph(Graph(done)).stage(), GraphStage::mir);
}

TEST(PublicNames, TheTracersOwnMethods) {
  const Graph g = trace("t", [](Tracer& t) -> TracedTensors {
    auto x = t.input_dyn("x", {Dim::symbol("n"), 4});
    auto w = t.param("w", {4, 4}), v = t.param("v", {4});
    auto rows = t.input("rows", {3}, DType::I32);
    return {t.softmax(t.layer_norm(t.matmul(x, w), v, v, 1e-3), 0), t.gather(w, rows, 1),
            w.reshape({2, 2, 4}).transpose({2, 0, 1})};
  });
  EXPECT_EQ(g.symbols(), std::vector<std::string>{"n"});
  EXPECT_EQ(g.output_types()[1].shape, (Shape{4, 3}));
  EXPECT_EQ(g.output_types()[2].shape, (Shape{4, 2, 2}));
  const Graph same = trace("t", [](Tracer& t) -> TracedTensors {
    auto x = t.input("x", {Dim::symbol("n"), 4});
    auto w = t.param("w", {4, 4}), v = t.param("v", {4});
    auto rows = t.input("rows", {3}, DType::I32);
    return {x.matmul(w).layer_norm(v, v, 1e-3).softmax(0), w.gather(rows, 1),
            w.reshape({2, 2, 4}).permute({2, 0, 1})};
  });
  EXPECT_EQ(g, same);
}

TEST(PublicNames, TracedTensorsAreHandles) {
  const Graph g = trace("t", [](Tracer& t) {
    const TracedTensor a = t.input("a", {2, 3}), copy = a;
    EXPECT_EQ(a.rank(), 2);
    EXPECT_EQ(copy.shape(), (Shape{2, 3}));
    return ((a + copy) - a * copy) / -a + a.relu() + a.silu() + a.narrow(1, 0, 1);
  });
  Tensor x(DType::F32, {2, 3});
  for (int64_t i = 0; i < 6; ++i) x.set_float(i, 1 + static_cast<double>(i));
  const Tensor y = evaluate(g, {{"a", x}}).outputs[0];
  const double a = 6;
  EXPECT_NEAR(y.get_float(5), (2 * a - a * a) / -a + a + a / (1 + std::exp(-a)) + 4, 1e-5);
}

// The documents' own test of the tracer: what it writes fuses by the named pass.
TEST(PublicNames, TraceProducesAFuseableGraph) {
  const Graph graph = trace("fuseable", [](Tracer& t) {
    auto x = t.input("x", {4, 15, 384}), w = t.param("w", {384, 1536}), b = t.param("b", {1536});
    return (t.matmul(x, w) + b).gelu();
  });
  ASSERT_EQ(graph.size(), 6);
  const Graph fused = opt::FuseMatMulBiasAct().run(graph);
  EXPECT_EQ(fused.size(), 4);
  EXPECT_EQ(fused.node(fused.outputs[0]).op->name, "fused_matmul_bias_act");
}

}  // namespace
}  // namespace rlx
