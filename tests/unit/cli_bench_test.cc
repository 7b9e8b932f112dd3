// rlx bench FILE: what it says of a program, and what it refuses.
#include <nlohmann/json.hpp>

#include "../support/tool.h"
#include "rlx/base/file.h"
#include "rlx/formats/npy.h"

namespace rlx::cli {
namespace {

using testing::run_tool;
using testing::ToolResult;
using testing::Words;
using CliBench = testing::ToolFolder;
using Json = nlohmann::json;

// 2 * 300 * 32 * 48 operations in its product, and one step more, which fuses with nothing.
constexpr std::string_view kModel = R"(graph @"small" {
  %0 = input() {name="x", shape=[?n, 32]} : [?n, 32] f32
  %1 = param() {name="w", shape=[32, 48]} : [32, 48] f32
  %2 = matmul(%0, %1) : [?n, 48] f32
  %3 = sort(%2) {axis=1} : [?n, 48] f32
  return %3
}
)";

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_F(CliBench, SaysWhatAProgramTakes) {
  write_file(at("m.rlx"), kModel);
  const ToolResult r = run_tool({"bench", at("m.rlx"), "--dim", "n=300", "--runs", "3"});
  ASSERT_EQ(r.status, 0) << r.err;
  for (const char* part : {"\"small\": cpu on ", " in 2 launches", "a run: ", "(median of 3; ",
                           "measured now", "the values of 2 inputs and parameters", "of limit"})
    EXPECT_TRUE(has(r.out, part)) << part << "\n" << r.out;
  EXPECT_TRUE(has(r.out, "matmul")) << r.out;
  EXPECT_TRUE(has(r.out, "sort")) << r.out;
}

TEST_F(CliBench, JsonIsThatOfExplainMeasured) {
  write_file(at("m.rlx"), kModel);
  write_npy(at("x.npy"), Tensor(DType::F32, {300, 32}));
  const ToolResult r = run_tool({"bench", at("m.rlx"), "--input", "x=" + at("x.npy"), "--dim",
                                 "n=300", "--runs", "5", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const Json j = Json::parse(r.out), &measured = j.at("measured"), &run = measured.at("run");
  EXPECT_EQ(measured.at("runs"), 5);
  EXPECT_EQ(measured.at("made_up"), Json({"w"}));
  EXPECT_GT(run.at("least"), 0.0);
  EXPECT_LE(run.at("least"), run.at("low"));
  EXPECT_LE(run.at("low"), run.at("median"));
  EXPECT_LE(run.at("median"), run.at("high"));
  double flops = 0;
  for (const Json& step : j.at("program").at("steps"))
    if (step.at("kernel").get<std::string>().starts_with("matmul"))
      flops += step.at("flops").get<double>();
  EXPECT_EQ(flops, 2.0 * 300 * 32 * 48);
}

TEST_F(CliBench, LimitsAreOfTheMachine) {
  const ToolResult r = run_tool({"bench", "--limits", "--threads", "1"});
  ASSERT_EQ(r.status, 0) << r.err;
  const Json j = Json::parse(r.out);
  for (const char* name : {"gflops", "read_gbytes", "copy_gbytes"})
    EXPECT_GT(j.at(name).get<double>(), 0) << name;
}

TEST_F(CliBench, Refuses) {
  write_file(at("m.rlx"), kModel);
  const std::pair<Words, std::string> cases[] = {
      {{at("m.rlx"), "--limits"}, "--limits is of the machine, not of "},
      {{"--json"}, "--input, --param, --dim and --json belong to a FILE"},
      {{"--dim", "n=3"}, "belong to a FILE"},
      {{at("m.rlx"), "--runs", "0"}, "expected a whole number from 1 to 1000000, got 0"},
      {{"train-sep"}, "there is no command train-sep; did you mean train-step?"},
  };
  for (const auto& [words, text] : cases) {
    const ToolResult r = run_tool(testing::with({"bench"}, words));
    EXPECT_EQ(r.status, 2) << words[0];
    EXPECT_TRUE(has(r.err, text)) << r.err;
    EXPECT_EQ(r.out, "");
  }
  EXPECT_EQ(run_tool({"bench", at("none.rlx")}).status, 1);
  const ToolResult unbound = run_tool({"bench", at("m.rlx")});
  EXPECT_EQ(testing::code_of(unbound), "unbound-dim");
  EXPECT_TRUE(has(unbound.err, "--dim n=SIZE")) << unbound.err;
}

}  // namespace
}  // namespace rlx::cli
