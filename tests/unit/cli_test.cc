// The rlx tool: what each command prints, writes and refuses.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <chrono>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "../support/tool.h"
#include "rlx/cli/tool.h"
#include "rlx/formats/checkpoint.h"
#include "rlx/formats/graph_file.h"
#include "rlx/formats/npy.h"
#include "rlx/formats/plot.h"
#include "rlx/models/corpus.h"
#include "rlx/models/trigram.h"
#include "rlx/ops/core.h"
#include "rlx/runtime/runtime.h"

namespace rlx::cli {
namespace {

namespace fs = std::filesystem;

using testing::code_of;
using testing::some_text;
using testing::with;
using Result = testing::ToolResult;
using Tool = testing::ToolFolder;

Result rlx_tool(const testing::Words& args) { return testing::run_tool(args); }
testing::Words tiny(const std::string& text, const std::string& out) {
  return testing::tiny_training(text, out);
}

// y = log(x @ w) with a symbolic batch, and an update of w.
const char* kModel = R"(graph @"model" {
  %0 = input() {name="x", shape=[?b, 2]} : [?b, 2] f32
  %1 = param() {name="../w", shape=[2, 1]} : [2, 1] f32
  %2 = matmul(%0, %1) : [?b, 1] f32
  %3 = log(%2) : [?b, 1] f32
  %4 = add(%1, %1) : [2, 1] f32
  return %3
  update "../w" <- %4
}
)";

// ---- usage

TEST_F(Tool, Usage) {
  EXPECT_EQ(rlx_tool({}).status, 2);
  EXPECT_EQ(rlx_tool({"nonsense"}).status, 2);
  EXPECT_EQ(rlx_tool({"ops", "--nonsense"}).status, 2);
  EXPECT_EQ(rlx_tool({"ops", "--json", "--markdown"}).status, 2);
  EXPECT_EQ(rlx_tool({"--threads", "-1", "ops"}).status, 2);
  EXPECT_EQ(rlx_tool({"train"}).status, 2);
  EXPECT_EQ(rlx_tool({"train", "--demo", "--text", "x"}).status, 2);
  EXPECT_EQ(rlx_tool({"opt"}).status, 2);
  EXPECT_EQ(rlx_tool({"run", "x", "--backend", "tpu"}).status, 2);
  const Result version = rlx_tool({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_EQ(version.out.substr(0, 4), "rlx ");
}

TEST_F(Tool, OpsShowsThePageOfOne) {
  const Result page = rlx_tool({"ops", "softmax_cross_entropy"});
  EXPECT_EQ(page.status, 0);
  EXPECT_NE(page.out.find("`softmax_cross_entropy(logits, labels)`"), std::string::npos)
      << page.out;
  const Result unknown = rlx_tool({"ops", "softmax_cross_enthalpy"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_NE(unknown.err.find("op-unknown"), std::string::npos) << unknown.err;
  EXPECT_NE(rlx_tool({"ops", "sofmax"}).err.find("; did you mean softmax?"), std::string::npos);
}

TEST_F(Tool, EveryCommandHasAnExample) {
  for (const char* command :
       {"ops", "print", "verify", "opt", "quantise", "run", "train", "bench"}) {
    const Result r = rlx_tool({command, "--help"});
    EXPECT_EQ(r.status, 0) << command;
    EXPECT_NE(r.out.find("Example:\n  rlx " + std::string(command)), std::string::npos) << r.out;
  }
  EXPECT_NE(rlx_tool({"bench", "train-step", "--help"}).out.find("Example:"), std::string::npos);
}

TEST_F(Tool, FailuresHaveAMessageAndStatusOne) {
  for (const auto& args :
       std::vector<std::vector<std::string>>{{"print", at("none.rlx")},
                                             {"verify", at("none.rlx")},
                                             {"opt", at("none.rlx")},
                                             {"run", at("none.rlx")},
                                             {"train", "--text", at("none.txt")},
                                             {"bench", "train-step", "--dir", at("none")}}) {
    const Result r = rlx_tool(args);
    EXPECT_EQ(r.status, 1) << args[0];
    EXPECT_TRUE(r.err.starts_with("rlx: error: ")) << r.err;
    EXPECT_TRUE(r.out.empty() || args[0] == "bench") << r.out;
  }
}

TEST_F(Tool, RunRefusesWhatIsNoAssignment) {
  write_file(at("m.rlx"), kModel);
  for (const std::vector<std::string>& args : {std::vector<std::string>{"--input", "x"},
                                               {"--input", "x="},
                                               {"--param", "=x.npy"},
                                               {"--dim", "b=2", "--dim", "b=3"},
                                               {"--dim", "b=-1"},
                                               {"--hint", "b=8"},
                                               {"--hint", "b=.."},
                                               {"--hint", "b=8../"},
                                               {"--hint", "b=8..9..10"},
                                               {"--hint", "b=..99999999999999999999"},
                                               {"--hint", "b=x..9"}}) {
    std::vector<std::string> all{"run", at("m.rlx")};
    all.insert(all.end(), args.begin(), args.end());
    EXPECT_EQ(code_of(rlx_tool(all)), "assignment") << args[1];
  }
}

TEST_F(Tool, QuantiseStoresAndRuns) {
  write_file(at("m.rlx"), R"(graph @"m" {
  %0 = input() {name="x", shape=[?n, 32]} : [?n, 32] f32
  %1 = param() {name="w", shape=[32, 2]} : [32, 2] f32
  %2 = matmul(%0, %1) : [?n, 2] f32
  return %2
}
)");
  Tensor w(DType::F32, {32, 2}), x(DType::F32, {3, 32});
  for (int64_t i = 0; i < 64; ++i) w.set_float(i, std::sin(static_cast<double>(i)));
  for (int64_t i = 0; i < 96; ++i) x.set_float(i, std::cos(static_cast<double>(i)));
  fs::create_directories(at("data/0"));
  write_npy(at("data/0/x.npy"), x);
  write_npy(at("x.npy"), x);
  save_checkpoint(at("m.ckpt"), {{"w", w}});
  const std::vector<std::string> given{"quantise", at("m.rlx"), "--params", at("m.ckpt")};
  const auto quantised = [&](std::vector<std::string> more) {
    more.insert(more.begin(), given.begin(), given.end());
    return rlx_tool(more);
  };
  const Result r = quantised({"-o", at("q.rlx"), "--data", at("data"), "--json", at("q.json")});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("int8"), std::string::npos) << r.out;
  EXPECT_EQ(nlohmann::json::parse(read_file(at("q.json")))["layers"][0]["format"], "int8");
  const Result run =
      rlx_tool({"run", at("q.rlx"), "--params", at("q.rlx.ckpt"), "--input", "x=" + at("x.npy")});
  EXPECT_EQ(run.status, 0) << run.err;
  const Result blocks =
      quantised({"-o", at("b.rlx"), "--format", "q8_0", "--input", "x=" + at("x.npy")});
  EXPECT_EQ(blocks.status, 0) << blocks.err;
  EXPECT_EQ(load_checkpoint(at("b.rlx.ckpt")).count("w.q8_0"), 1u);
  EXPECT_EQ(code_of(quantised({"-o", at("c.rlx")})), "calibration-data");
  EXPECT_EQ(code_of(quantised({"-o", at("c.rlx"), "--format", "q9"})), "quant-format");
  EXPECT_EQ(code_of(quantised({"-o", at("c.rlx"), "--layer", "v=float"})), "policy-layer");
  EXPECT_EQ(code_of(quantised({"-o", at("c.rlx"), "--op", "exp=float"})), "policy-op");
  EXPECT_EQ(code_of(quantised({"-o", at("c.rlx"), "--data", at("none")})), "file-open");
  EXPECT_EQ(code_of(quantised({"-o", at("c.rlx"), "--data", at("data"), "--method", "max"})),
            "calibration-method");
  EXPECT_FALSE(fs::exists(at("c.rlx")));
}

TEST_F(Tool, DimsAreNamedAsGraphsShowThem) {
  write_file(at("n.rlx"), R"(graph @"n" {
  %0 = input() {name="x", shape=[?n, ?k]} : [?n, ?k] f32
  %1 = tanh(%0) : [?n, ?k] f32
  return %1
}
)");
  for (const char* dim : {"n=3", "?n=3"}) {
    const auto r = rlx_tool({"print", at("n.rlx"), "--dim", dim});
    EXPECT_NE(r.out.find("tanh(%0) : [3, ?k] f32"), std::string::npos) << r.out << r.err;
  }
  const auto lowered =
      rlx_tool({"lower", at("n.rlx"), "--to", "optimised", "--dim", "?n=3", "--dim", "?k=4"});
  EXPECT_NE(lowered.out.find("[3, 4] f32"), std::string::npos) << lowered.out << lowered.err;
  EXPECT_EQ(code_of(rlx_tool({"print", at("n.rlx"), "--dim", "m=3"})), "dim-unknown");
  EXPECT_EQ(code_of(rlx_tool({"print", at("n.rlx"), "--dim", "?n=x"})), "assignment");
  const auto two = rlx_tool({"run", at("n.rlx"), "--dim", "n=7", "k=2"});
  EXPECT_NE(two.err.find("k=2 is one word too many; an option stands before each value: --dim k=2"),
            std::string::npos)
      << two.err;
}

TEST_F(Tool, RunRefusesTwoParametersInOneFile) {
  write_file(at("m.rlx"), R"(graph @"two" {
  %0 = param() {name="w/1", shape=[1]} : [1] f32
  %1 = param() {name="w:1", shape=[1]} : [1] f32
  update "w/1" <- %1
  update "w:1" <- %0
}
)");
  write_npy(at("w.npy"), Tensor(DType::F32, {1}));
  EXPECT_EQ(code_of(rlx_tool({"run", at("m.rlx"), "--out", at("out"), "--param",
                              "w/1=" + at("w.npy"), "--param", "w:1=" + at("w.npy")})),
            "file-name");
  EXPECT_FALSE(fs::exists(at("out")));
}

TEST_F(Tool, BenchRefusesWrongFoldersAndCommands) {
  auto refused = [&] {
    return code_of(rlx_tool({"bench", "train-step", "--json", "--dir", at("")}));
  };
  auto config = [](int batches) {
    return fmt::format(R"({{"vocab": 2, "width": 2, "layers": 1, "heads": 1, "block": 2, "batch": 1,
                            "steps": 1000, "batches": {}}})",
                       batches);
  };
  write_file(at("config.json"), "{}");
  EXPECT_EQ(refused(), "bench-config");
  write_file(at("config.json"), config(0));
  EXPECT_EQ(refused(), "bench-config");
  write_file(at("config.json"), config(1));
  for (const char* name : {"x_0.npy", "y_0.npy"}) write_npy(at(name), Tensor(DType::I32, {1, 3}));
  EXPECT_EQ(refused(), "bench-config");
  for (const char* name : {"x_0.npy", "y_0.npy"}) write_npy(at(name), Tensor(DType::I32, {1, 2}));
  std::istringstream commands("dance\n");
  std::streambuf* const before = std::cin.rdbuf(commands.rdbuf());
  EXPECT_EQ(refused(), "bench-command");
  std::cin.rdbuf(before);
}

// ---- ops

TEST_F(Tool, OpsAsJson) {
  const Result r = rlx_tool({"ops", "--json"});
  ASSERT_EQ(r.status, 0);
  const auto table = nlohmann::json::parse(r.out);
  const std::set<std::string> answers{"native", "generated", "derived", "not-applicable",
                                      "missing"};
  EXPECT_EQ(table.at("ops").size(), op_table().entries().size());
  for (const auto& op : table.at("ops")) {
    EXPECT_EQ(op.size(), 16u) << op;
    EXPECT_EQ(op.at("stage"), op.at("family") == "hir" ? "hir" : "mir") << op;
    for (const char* column : {"infer", "eval", "decompose", "jvp", "vjp", "vmap", "text", "cpu"}) {
      const std::string answer = op.at(column);
      EXPECT_TRUE(answers.contains(answer)) << answer;
      EXPECT_NE(answer, "missing") << op.at("name") << " " << column;
      if (answer == "not-applicable") {
        EXPECT_TRUE(op.at("reasons").contains(column)) << op.at("name");
      }
    }
    for (const auto& a : op.at("attributes"))
      EXPECT_TRUE(a.at("name").is_string() && a.at("type").is_string() &&
                  a.at("default").is_string());
  }
}

TEST_F(Tool, OpsAsTextAndMarkdown) {
  const Result text = rlx_tool({"ops"}), markdown = rlx_tool({"ops", "--markdown"});
  for (const OpTable::Entry& e : op_table().entries()) {
    EXPECT_NE(text.out.find("\n" + std::string(e.op->name) + " "), std::string::npos) << e.op->name;
    EXPECT_NE(markdown.out.find("\n### " + std::string(e.op->name) + "\n"), std::string::npos)
        << e.op->name;
  }
}

// ---- graphs

TEST_F(Tool, PrintAndVerify) {
  write_file(at("m.rlx"), kModel);
  EXPECT_EQ(rlx_tool({"print", at("m.rlx")}).out, kModel);
  const Result r = rlx_tool({"verify", at("m.rlx")});
  EXPECT_EQ(r.status, 0);
  EXPECT_NE(r.out.find("inputs: x [?b, 2] f32"), std::string::npos) << r.out;
  write_file(at("bad.rlx"), "graph @g {\n  %0 = log(%1) : [] f32\n}\n");
  const Result bad = rlx_tool({"verify", at("bad.rlx")});
  EXPECT_EQ(bad.status, 1);
  EXPECT_NE(bad.err.find("bad.rlx"), std::string::npos) << bad.err;
}

// A program with blocks: printed and optimised as it is written, lowered and run.
TEST_F(Tool, Blocks) {
  const std::string text = R"(graph @"m" {
  %0 = input() {name="x", shape=[3, 2]} : [3, 2] f32
  %1 = param() {name="w", shape=[2, 1]} : [2, 1] f32
  %2 = hir_linear(%0, %1) {activation=relu} : [3, 1] f32 @ "proj"
  return %2
}
)";
  write_file(at("m.rlx"), text);
  EXPECT_EQ(rlx_tool({"print", at("m.rlx")}).out, text);
  EXPECT_EQ(rlx_tool({"opt", at("m.rlx"), "--passes", "cse"}).out, text);
  EXPECT_NE(rlx_tool({"verify", at("m.rlx")}).out.find("3 nodes"), std::string::npos);
  const Result drawn = rlx_tool({"print", at("m.rlx"), "--svg", at("m.svg")});
  EXPECT_EQ(drawn.status, 0) << drawn.err;
  EXPECT_EQ(drawn.out, "");
  const std::string svg = read_file(at("m.svg"));
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.find("class=\"block\"") != svg.npos) << svg;
  const std::string mir = rlx_tool({"lower", at("m.rlx"), "--to", "mir"}).out;
  EXPECT_NE(mir.find("relu(%2) : [3, 1] f32 @ \"proj\" from \"hir:h2\""), mir.npos) << mir;
  EXPECT_EQ(rlx_tool({"lower", at("m.rlx"), "--to", "hir", "-o", at("m.json")}).status, 0);
  EXPECT_EQ(rlx_tool({"print", at("m.json")}).out, text);
  write_npy(at("x.npy"), Tensor::from<float>({3, 2}, {1, 0, 0, 1, 1, -1}));
  write_npy(at("w.npy"), Tensor::from<float>({2, 1}, {1, 2}));
  for (const char* file : {"m.rlx", "m.json"}) {
    const Result r = rlx_tool({"run", at(file), "--input", "x=" + at("x.npy"), "--param",
                               "w=" + at("w.npy"), "--out", at("out")});
    ASSERT_EQ(r.status, 0) << r.err;
    const Tensor y = read_npy(at("out") + "/output_0.npy");
    for (int64_t i = 0; i < 3; ++i)
      EXPECT_EQ(y.get_float(i), (std::array{1.0, 2.0, 0.0})[static_cast<size_t>(i)]);
  }
}

TEST_F(Tool, Opt) {
  write_file(at("m.rlx"), R"(graph @g {
  %0 = input() {name="x", dtype=f32, shape=[2]} : [2] f32
  %1 = neg(%0) : [2] f32
  %2 = neg(%1) : [2] f32
  %3 = mul(%2, %0) : [2] f32
  %4 = reduce_sum(%3) {axes=[0]} : [] f32
  return %4
}
)");
  EXPECT_EQ(rlx_tool({"opt", at("m.rlx"), "--passes", "simplify"}).out.find("neg"),
            std::string::npos);
  const Result r = rlx_tool({"opt", at("m.rlx"), "--passes", "grad(wrt=x),simplify,cse", "-o",
                             at("g.rlx"), "--report", "--dump", at("dump")});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(r.out.empty());
  EXPECT_EQ(load_graph(at("g.rlx")).name, "g_grad");
  EXPECT_GE(files("dump"), 4u);
  EXPECT_EQ(rlx_tool({"opt", at("m.rlx"), "--passes", "simplfy", "-o", at("h.rlx")}).status, 1);
  EXPECT_FALSE(fs::exists(at("h.rlx")));
  const Result printed = rlx_tool({"opt", at("m.rlx")}),
               dash = rlx_tool({"opt", at("m.rlx"), "-o", "-"});
  EXPECT_TRUE(dash.out.starts_with("graph @"));
  EXPECT_EQ(dash.out, printed.out);
  EXPECT_FALSE(fs::exists("-"));
  EXPECT_NE(rlx_tool({"opt", "--list"}).out.find("simplify"), std::string::npos);
}

TEST_F(Tool, RunOnBothBackends) {
  write_file(at("m.rlx"), kModel);
  write_npy(at("x.npy"), Tensor::from<float>({3, 2}, {1, 0, 0, 1, 1, 1}));
  write_npy(at("w.npy"), Tensor::from<float>({2, 1}, {1, 2}));
  std::vector<std::string> backends{"reference"};
  if (is_available("cpu")) backends.push_back("cpu");
  for (const std::string& backend : backends) {
    const Result r =
        rlx_tool({"run", at("m.rlx"), "--input", "x=" + at("x.npy"), "--param",
                  "../w=" + at("w.npy"), "--out", at(backend), "--backend", backend, "--explain"});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("kernels"), std::string::npos);
    const Tensor y = read_npy(at(backend) + "/output_0.npy");
    EXPECT_EQ(y.sizes(), (Ints{3, 1}));
    EXPECT_NEAR(y.get_float(2), std::log(3.0), 1e-6);
    EXPECT_EQ(read_npy(at(backend) + "/param__._w.npy").get_float(1),
              4);  // no way out of the folder
    EXPECT_EQ(files(backend), 2u);
  }
  const Result shown = rlx_tool(
      {"run", at("m.rlx"), "--input", "x=" + at("x.npy"), "--param", "../w=" + at("w.npy")});
  EXPECT_NE(shown.out.find("output 0: [3, 1] f32 0 "), std::string::npos) << shown.out;
}

TEST_F(Tool, RunRefuses) {
  write_file(at("m.rlx"), kModel);
  write_npy(at("x.npy"), Tensor::from<float>({1, 2}, {-1, 0}));
  write_npy(at("w.npy"), Tensor::from<float>({2, 1}, {1, 2}));
  write_file(at("broken.npy"), "not an array");
  const std::string x = "x=" + at("x.npy"), w = "../w=" + at("w.npy"), out = at("out");
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--input", x}, "never set"},
      {{"--param", w}, "?b"},
      {{"--param", w, "--dim", "b=1"}, "never set"},
      {{"--input", x, "--param", w, "--dim", "b=2"},
       "axis 0 of input \"x\" is ?b, given is 1; with ?b = 2 by the sizes given it must be 2"},
      {{"--input", x, "--param", w, "--dim", "b=many"}, "expected a size"},
      {{"--input", x, "--param", w, "--dim", "c=1"}, "no dim ?c"},
      {{"--input", x, "--param", w, "--hint", "b=4"}, "as in b=8..512/8"},
      {{"--input", x, "--param", w, "--hint", "c=4.."}, "no dim ?c; it has ?b"},
      {{"--input", x, "--param", w, "--hint", "b=9..8"}, "?b is from 9 to 8"},
      {{"--input", x, "--param", w, "--hint", "b=/0"}, "multiples of 0"},
      {{"--input", x, "--param", w, "--hint", "b=4..512/4"},
       "?b = 1: the hint allows 4 to 512, multiples of 4"},
      {{"--input", x, "--param", w, "--hint", "b=2.."}, "?b = 1: the hint allows at least 2"},
      {{"--input", x, "--param", w, "--hint", "b=..0"}, "?b = 1: the hint allows at most 0"},
      {{"--input", x, "--param", w, "--hint", "b=/2"}, "?b = 1: the hint allows multiples of 2"},
      {{"--input", x, "--input", x}, "given twice"},
      {{"--input", "x"}, "expected NAME=VALUE"},
      {{"--input", x, "--param", w, "--input", "z=" + at("x.npy")},
       "there is no input z; the inputs are x"},
      {{"--input", "x=" + at("broken.npy")}, "not an .npy file"},
      {{"--input", x, "--param", w, "--check-nan"}, "NaN"},
  };
  for (const auto& [more, message] : cases) {
    std::vector<std::string> args{"run", at("m.rlx"), "--out", out};
    args.insert(args.end(), more.begin(), more.end());
    const Result r = rlx_tool(args);
    EXPECT_EQ(r.status, 1) << message;
    EXPECT_NE(r.err.find(message), std::string::npos) << r.err;
    EXPECT_FALSE(fs::exists(out)) << message;
  }
}

// Names may have a = in them; what is given one by one goes before the checkpoint, wherever it stands.
TEST_F(Tool, RunTakesParametersFromACheckpointAndOneByOne) {
  write_file(at("m.rlx"), R"(graph @"m" {
  %0 = input() {name="x=1", shape=[2]} : [2] f32
  %1 = param() {name="a", shape=[2]} : [2] f32
  %2 = param() {name="a=b", shape=[2]} : [2] f32
  return %0, %1, %2
}
)");
  save_checkpoint(at("m.ckpt"), {{"a", Tensor::from<float>({2}, {1, 2})},
                                 {"a=b", Tensor::from<float>({2}, {3, 4})}});
  write_npy(at("five.npy"), Tensor::from<float>({2}, {5, 6}));
  write_npy(at("seven.npy"), Tensor::from<float>({2}, {7, 8}));
  const testing::Words run{"run", at("m.rlx"), "--input", "x=1=" + at("seven.npy")};
  const testing::Words kept{"--params", at("m.ckpt")};
  const testing::Words a{"--param", "a=" + at("five.npy")}, b{"--param", "a=b=" + at("five.npy")};
  const auto outputs = [&](const std::string& first, const std::string& second) {
    return "output 0: [2] f32 7 8\noutput 1: [2] f32 " + first + "\noutput 2: [2] f32 " + second +
           "\n";
  };
  EXPECT_EQ(rlx_tool(with(run, kept)).out, outputs("1 2", "3 4"));
  EXPECT_EQ(rlx_tool(with(with(run, kept), a)).out, outputs("5 6", "3 4"));
  EXPECT_EQ(rlx_tool(with(with(run, b), kept)).out, outputs("1 2", "5 6"));
  EXPECT_EQ(rlx_tool(with(with(run, a), with(kept, b))).out, outputs("5 6", "5 6"));
  EXPECT_EQ(rlx_tool(with(with(run, b), a)).out, outputs("5 6", "5 6"));
}

// -0 + 0 is 0, unless values may change.
TEST_F(Tool, FastMathIsAskedFor) {
  write_file(at("m.rlx"),
             "graph @g {\n  %0 = input() {name=\"x\", shape=[2]} : [2] f32\n"
             "  %1 = constant() {value=f32[]{0}} : [] f32\n  %2 = add(%0, %1) : [2] f32\n"
             "  return %2\n}\n");
  write_npy(at("x.npy"), Tensor::from<float>({2}, {-0.f, 1}));
  const std::vector<std::string> plain{"run", at("m.rlx"), "--input", "x=" + at("x.npy")};
  std::vector<std::string> fast = plain;
  fast.emplace_back("--fast-math");
  EXPECT_EQ(rlx_tool(plain).out, "output 0: [2] f32 0 1\n");
  EXPECT_EQ(rlx_tool(fast).out, "output 0: [2] f32 -0 1\n");
}

// Symbols get their sizes from parameters as well as from inputs.
TEST_F(Tool, GivenTensorsBindDims) {
  write_file(at("m.rlx"),
             "graph @g {\n  %0 = param() {name=\"w\", shape=[?n]} : [?n] f32\n"
             "  %1 = add(%0, %0) : [?n] f32\n  return %1\n}\n");
  write_npy(at("w.npy"), Tensor::from<float>({3}, {1, 2, 4}));
  EXPECT_EQ(rlx_tool({"run", at("m.rlx"), "--param", "w=" + at("w.npy")}).out,
            "output 0: [3] f32 2 4 8\n");
}

// ---- train

TEST_F(Tool, TrainReports) {
  write_file(at("t.txt"), some_text());
  const Result r = rlx_tool(tiny(at("t.txt"), at("a")));
  ASSERT_EQ(r.status, 0) << r.err;
  for (const char* part :
       {"---- how this model goes on", "this model", "Kneser-Ney", "tokens per second",
        "kernels before and after", "memory planned", "memory measured"})
    EXPECT_NE(r.out.find(part), std::string::npos) << part << "\n" << r.out;
  const std::string svg = read_file(at("a/loss.svg"));
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  EXPECT_NE(svg.find("validation"), std::string::npos);
  EXPECT_NE(svg.find("trigram"), std::string::npos);
  const std::string dashed = "stroke-dasharray=\"6 4\" points=\"";
  const size_t baseline = svg.find(dashed);
  ASSERT_NE(baseline, std::string::npos);
  EXPECT_TRUE(std::isdigit(static_cast<unsigned char>(svg[baseline + dashed.size()])))
      << "the baseline is in the picture";
  EXPECT_EQ(files("a"), 2u);
}

TEST_F(Tool, ResumeContinuesBitForBit) {
  write_file(at("t.txt"), some_text());
  ASSERT_EQ(rlx_tool(tiny(at("t.txt"), at("a"))).status, 0);
  auto first = tiny(at("t.txt"), at("b")), second = first;
  first.insert(first.end(), {"--stop-at", "3"});
  ASSERT_EQ(rlx_tool(first).status, 0);
  EXPECT_EQ(load_checkpoint(at("b/train.ckpt")).at("run/training").elements(), 3);
  second.insert(second.end(), {"--resume", at("b/train.ckpt")});
  ASSERT_EQ(rlx_tool(second).status, 0);
  EXPECT_TRUE(read_file(at("a/train.ckpt")) == read_file(at("b/train.ckpt")));
  EXPECT_EQ(read_file(at("a/loss.svg")), read_file(at("b/loss.svg")));
}

// Parameters stay f32; in f16 the scale of the loss is part of the state, and so is what was skipped.
TEST_F(Tool, TrainsInMixedPrecision) {
  write_file(at("t.txt"), some_text());
  for (const std::string precision : {"bf16", "f16"}) {
    const std::string whole = at(precision), half = at(precision + "_half");
    auto args = tiny(at("t.txt"), whole), first = tiny(at("t.txt"), half);
    for (auto* a : {&args, &first}) a->insert(a->end(), {"--precision", precision});
    auto second = first;
    const Result r = rlx_tool(args);
    ASSERT_EQ(r.status, 0) << r.err;
    const std::string row = "precision of products" + std::string(28, ' ') + precision;
    EXPECT_NE(r.out.find(row), std::string::npos) << r.out;
    EXPECT_EQ(r.out.find("0, 65536") != std::string::npos, precision == "f16") << r.out;
    first.insert(first.end(), {"--stop-at", "3"});
    ASSERT_EQ(rlx_tool(first).status, 0);
    second.insert(second.end(), {"--resume", half + "/train.ckpt"});
    ASSERT_EQ(rlx_tool(second).status, 0);
    EXPECT_TRUE(read_file(whole + "/train.ckpt") == read_file(half + "/train.ckpt")) << precision;
    for (const auto& [name, value] : load_checkpoint(whole + "/train.ckpt"))
      if (name.starts_with("state/")) {
        EXPECT_TRUE(value.dtype() == DType::F32 || value.dtype() == DType::I32) << name;
      }
    const Result other =
        rlx_tool(with(tiny(at("t.txt"), at("e")), {"--resume", whole + "/train.ckpt"}));
    EXPECT_EQ(code_of(other), "resume");
    EXPECT_NE(other.err.find("another precision: " + precision + ", not f32"), std::string::npos)
        << other.err;
  }
  EXPECT_EQ(rlx_tool({"train", "--demo", "--precision", "f64"}).status, 2);
}

// With a scale of 2^40 every gradient overflows f16: the steps that are left change nothing but the scale.
TEST_F(Tool, StepsThatOverflowAreSkipped) {
  write_file(at("t.txt"), some_text());
  const auto args = with(tiny(at("t.txt"), at("a")), {"--precision", "f16"});
  ASSERT_EQ(rlx_tool(with(args, {"--stop-at", "3"})).status, 0);
  NamedTensors before = load_checkpoint(at("a/train.ckpt"));
  EXPECT_EQ(before.at("state/loss_scale.good_steps").get_int(0), 3);
  before["state/loss_scale"] = Tensor::scalar(DType::F32, 0x1p40);
  save_checkpoint(at("large.ckpt"), before);
  const Result r = rlx_tool(with(args, {"--resume", at("large.ckpt")}));
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("3, 137438953472"), std::string::npos) << r.out;
  NamedTensors after = load_checkpoint(at("a/train.ckpt"));
  EXPECT_EQ(after.at("state/loss_scale").get_float(0), 0x1p37);
  EXPECT_EQ(after.at("state/loss_scale.skipped_steps").get_int(0), 3);
  EXPECT_EQ(after.at("state/step").get_int(0), 3);
  EXPECT_EQ(after.at("run/training").elements(), 6);
  for (const auto& [name, value] : before) {
    if (name.starts_with("state/") && !name.starts_with("state/loss_scale")) {
      EXPECT_TRUE(value.same_bits(after.at(name))) << name;
    }
  }
}

// Written before there was a choice.
TEST_F(Tool, CheckpointsWithoutAPrecisionAreF32) {
  write_file(at("t.txt"), some_text());
  const auto args = tiny(at("t.txt"), at("a"));
  ASSERT_EQ(rlx_tool(with(args, {"--stop-at", "3"})).status, 0);
  NamedTensors old = load_checkpoint(at("a/train.ckpt"));
  const Tensor all = old.at("run/fingerprint");
  old["run/fingerprint"] =
      Tensor::from<int64_t>({12}, {all.data<int64_t>(), all.data<int64_t>() + 12});
  save_checkpoint(at("old.ckpt"), old);
  EXPECT_EQ(rlx_tool(with(args, {"--resume", at("old.ckpt")})).status, 0);
  const Result r = rlx_tool(with(args, {"--precision", "bf16", "--resume", at("old.ckpt")}));
  EXPECT_NE(r.err.find("another precision: f32, not bf16"), std::string::npos) << r.err;
}

TEST_F(Tool, RunsAndLowersInMixedPrecision) {
  write_file(at("m.rlx"),
             "graph @g {\n  %0 = input() {name=\"x\", shape=[1, 2]} : [1, 2] f32\n"
             "  %1 = constant() {value=f32[2, 1]{1, 1}} : [2, 1] f32\n"
             "  %2 = matmul(%0, %1) : [1, 1] f32\n  return %2\n}\n");
  write_npy(at("x.npy"), Tensor::from<float>({1, 2}, {256, 1}));
  const std::vector<std::string> plain{"run", at("m.rlx"), "--input", "x=" + at("x.npy")};
  EXPECT_EQ(rlx_tool(plain).out, "output 0: [1, 1] f32 257\n");
  EXPECT_EQ(rlx_tool(with(plain, {"--precision", "bf16"})).out, "output 0: [1, 1] f32 256\n");
  EXPECT_EQ(rlx_tool(with(plain, {"--precision", "auto_mixed"})).out, "output 0: [1, 1] f32 257\n");
  const Result r = rlx_tool(with(plain, {"--precision", "bfloat"}));
  EXPECT_EQ(code_of(r), "precision");
  EXPECT_NE(r.err.find("there is no precision policy"), std::string::npos) << r.err;
  EXPECT_NE(rlx_tool({"lower", at("m.rlx"), "--to", "optimised", "--precision", "f16"})
                .out.find("[1, 1] f16"),
            std::string::npos);
}

TEST_F(Tool, ResumeRefusesWhatDoesNotFit) {
  write_file(at("t.txt"), some_text());
  auto args = tiny(at("t.txt"), at("a"));
  ASSERT_EQ(rlx_tool(args).status, 0);
  args.insert(args.end(), {"--resume", at("a/train.ckpt"), "--seed", "7"});
  const Result seed = rlx_tool(args);
  EXPECT_EQ(code_of(seed), "resume");
  EXPECT_NE(seed.err.find("another seed: 1, not 7"), std::string::npos) << seed.err;
  for (const auto& [option, value, message] :
       {std::tuple{"--steps", "7", "another steps: 6, not 7"},
        std::tuple{"--rate", "0.25", "another rate: 0.004, not 0.25"},
        std::tuple{"--batch", "5", "another batch: 4, not 5"}}) {
    auto changed = tiny(at("t.txt"), at("e"));
    const auto at_option = std::ranges::find(changed, option);
    if (at_option == changed.end())
      changed.insert(changed.end(), {option, value});
    else
      at_option[1] = value;
    changed.insert(changed.end(), {"--resume", at("a/train.ckpt")});
    const Result r = rlx_tool(changed);
    EXPECT_EQ(code_of(r), "resume");
    EXPECT_NE(r.err.find(message), std::string::npos) << r.err;
  }
  save_checkpoint(at("other.ckpt"), {{"w", Tensor(DType::F32, {1})}});
  auto other = tiny(at("t.txt"), at("c"));
  other.insert(other.end(), {"--resume", at("other.ckpt")});
  EXPECT_EQ(code_of(rlx_tool(other)), "resume");
  // Before anything is compiled: this model could not be.
  for (const char* name : {"missing.ckpt", "t.txt"}) {
    auto early = tiny(at("t.txt"), at("e"));
    const auto width = std::find(early.begin(), early.end(), "--width");
    ASSERT_NE(width, early.end());
    *(width + 1) = "1000000000";
    early.insert(early.end(), {"--resume", at(name)});
    const std::string code = code_of(rlx_tool(early));
    EXPECT_TRUE(code == "file-open" || code == "checkpoint-magic") << code;
  }
  write_file(at("short.txt"), "abc");
  EXPECT_EQ(code_of(rlx_tool(tiny(at("short.txt"), at("d")))), "text-short");
}

TEST_F(Tool, TrainSaysWhenItDiverges) {
  write_file(at("t.txt"), some_text());
  fs::create_directory(at("a"));
  for (const char* steps :
       {"6", "1"}) {  // seen in the loss of a step, in that of the last validation
    auto args = tiny(at("t.txt"), at("a"));
    args[6] = steps;
    write_file(at("a/train.ckpt"), "the one before");
    args.insert(args.end(), {"--rate", "1e30"});
    const Result r = rlx_tool(args);
    EXPECT_EQ(code_of(r), "diverged");
    EXPECT_NE(r.err.find("training has diverged"), std::string::npos) << r.err;
    EXPECT_EQ((r.out + r.err).find("nan"), std::string::npos) << r.out << r.err;
    EXPECT_EQ(read_file(at("a/train.ckpt")), "the one before");
  }
}

class Stopped : public Tool, public ::testing::WithParamInterface<std::pair<int, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Signals, Stopped,
                         ::testing::Values(std::pair{SIGINT, "interrupted"},
                                           std::pair{SIGTERM, "terminated"}));

TEST_P(Stopped, EndsWithinASecondAndCanGoOn) {
  const auto [signal, word] = GetParam();
  const fs::path tool = testing::tool_path();
  if (!fs::exists(tool)) GTEST_SKIP() << "no tool beside the tests";
  write_file(at("t.txt"), some_text());
  auto args = tiny(at("t.txt"), at("a"));
  args[6] = "1000000";
  args.insert(args.end(), {"--save-every", "1"});
  const pid_t child = fork();
  if (child == 0) {
    std::vector<char*> argv{const_cast<char*>(tool.c_str())};
    for (std::string& a : args) argv.push_back(a.data());
    argv.push_back(nullptr);
    if (!freopen(at("err").c_str(), "w", stderr)) _exit(99);
    execv(tool.c_str(), argv.data());
    _exit(99);
  }
  for (int i = 0; i < 1000 && !fs::exists(at("a/train.ckpt")); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_TRUE(fs::exists(at("a/train.ckpt")));
  const auto start = std::chrono::steady_clock::now();
  kill(child, signal);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + signal);
  EXPECT_NE(read_file(at("err")).find(fmt::format("\nrlx: {}\n", word)), std::string::npos);
  EXPECT_EQ(files("a"), 1u) << "only the checkpoint";
  EXPECT_GT(load_checkpoint(at("a/train.ckpt")).at("run/training").elements(), 0);
}

// ---- parts

TEST(TrigramModel, ProbabilitiesSumToOne) {
  const std::vector<int32_t> text{0, 1, 2, 0, 1, 3, 2, 1, 0, 1, 2, 2, 2, 0};
  const Trigram m(text, 5, {0.3, 0.6, 0.7});
  for (int32_t a = 0; a < 5; ++a)
    for (int32_t b = 0; b < 5; ++b) {
      double sum = 0;
      for (int32_t c = 0; c < 5; ++c) {
        EXPECT_GT(m.probability(a, b, c), 0);
        sum += m.probability(a, b, c);
      }
      EXPECT_NEAR(sum, 1, 1e-12);
    }
}

TEST(TrigramModel, LearnsWhatTwoCharactersTell) {
  std::vector<int32_t> text;
  for (int i = 0; i < 3000; ++i) text.push_back(i % 3);
  EXPECT_LT(Trigram::fit(text, 3).bits_per_token(text), 0.05);
}

TEST(CorpusOfBytes, SplitsAndDecodes) {
  const std::string text = some_text();
  const Corpus c = make_corpus(text, 16);
  EXPECT_EQ(c.train.size() + c.validation.size(), text.size());
  EXPECT_NEAR(static_cast<double>(c.validation.size()), static_cast<double>(text.size()) / 10, 10);
  EXPECT_EQ(c.decode({c.train.begin(), c.train.begin() + 20}), text.substr(0, 20));
  EXPECT_EQ(c.token_of('\x01'), -1);
}

TEST(Plot, MeansDoNotLag) {
  std::vector<double> line;
  for (int i = 0; i < 50; ++i) line.push_back(10 - 0.125 * i);
  EXPECT_EQ(centred_means(line, 10), line);
  EXPECT_EQ(centred_means({1, 4, 1, 4, 1}, 1), (std::vector<double>{1, 2, 3, 2, 1}));
  EXPECT_TRUE(centred_means({}, 10).empty());
}

TEST(Plot, Ticks) {
  EXPECT_EQ(axis_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(axis_ticks(1.2, 2.9, 4), (std::vector<double>{1.5, 2, 2.5}));
}

}  // namespace
}  // namespace rlx::cli
