// The manners of the rlx tool: what it says about mistakes, where it reads and writes, and that
// nothing in a file reaches the terminal but as text.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>
#include <set>

#include "../support/tool.h"
#include "rlx/base/bytes.h"
#include "rlx/base/printable.h"
#include "rlx/base/suggest.h"
#include "rlx/cli/progress.h"
#include "rlx/formats/checkpoint.h"
#include "rlx/formats/graph_file.h"
#include "rlx/formats/npy.h"
#include "rlx/ir/builder.h"
#include "rlx/models/trainer.h"
#include "rlx/ops/core.h"
#include "rlx/runtime/runtime.h"

namespace rlx::cli {
namespace {

namespace fs = std::filesystem;
using testing::code_of;
using testing::run_tool;
using testing::ToolResult;
using testing::Words;
using Manners = testing::ToolFolder;

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// ---- usage

TEST_F(Manners, UsageErrorsNameTheToolAndTheMistake) {
  const std::pair<Words, std::string> cases[] = {
      {{"trian"}, "rlx: error: there is no command trian; did you mean train? (see rlx --help)\n"},
      {{"xyzzy"}, "rlx: error: there is no command xyzzy (see rlx --help)\n"},
      {{"train", "--stpes", "5"},
       "there is no option --stpes; did you mean --steps? (see rlx train"},
      {{"ops", "--thread=2"}, "there is no option --thread; did you mean --threads? (see rlx ops"},
      {{"bench", "train-stp"}, "there is no command train-stp; did you mean train-step?"},
      {{"print", "a", "b"}, "b is one word too many (see rlx print --help)"},
      {{"print"}, "rlx: error: FILE is required (see rlx print --help)"},
      {{"train"}, "give either --text FILE or --demo (see rlx train --help)"},
      {{"train", "--demo", "--steps", "0"},
       "--steps: expected a whole number of at least 1, got 0 (see rlx train --help)"},
      {{"train", "--demo", "--steps", "1e3"}, "expected a whole number of at least 1, got 1e3"},
      {{"train", "--demo", "--save-every", "-1"}, "expected a whole number of at least 0, got -1"},
      {{"train", "--demo", "--rate", "inf"}, "--rate: expected a number above 0, got inf"},
      {{"train", "--demo", "--temperature", "0"}, "expected a number above 0, got 0"},
      {{"--seed", "-1", "ops"}, "--seed: expected a whole number of at least 0, got -1"},
      {{"--seed", "18446744073709551616", "ops"}, "--seed: expected a whole number"},
      {{"--threads", "1025", "ops"}, "--threads: expected a whole number from 0 to 1024, got 1025"},
  };
  for (const auto& [args, message] : cases) {
    const ToolResult r = run_tool(args);
    EXPECT_EQ(r.status, 2) << message;
    EXPECT_TRUE(r.err.starts_with("rlx: error: ")) << r.err;
    EXPECT_TRUE(has(r.err, message)) << r.err;
    EXPECT_LT(r.err.size(), 200u) << r.err;
    EXPECT_TRUE(r.out.empty()) << r.out;
  }
  EXPECT_EQ(run_tool({"--seed", "18446744073709551615", "ops"}).status, 0);
}

TEST_F(Manners, WordsThatNoFileCanHaveAreNoCrash) {
  for (const std::string& word : {std::string(5000, 'a'), std::string(300, 'b')}) {
    EXPECT_NE(run_tool({"bench", word}).status, 0);
    const ToolResult r = run_tool({"quantise", word, "-o", at("o"), "--data", word});
    EXPECT_EQ(code_of(r), "file-open") << r.err;
  }
  const ToolResult twice = run_tool({"train", "--demo", "--steps", "1", "--steps", "2"});
  EXPECT_TRUE(has(twice.err, "--steps is given more than once")) << twice.err;
}

// What machines read is JSON, whatever names are in it; names that cannot be written are said to be.
TEST_F(Manners, DocumentsHoldAnyName) {
  for (const char* name : {"\x7f", "\xe2\x80\xaex", "\xef\xbb\xbf", "</script><b>"}) {
    Builder b(name);
    b.output(op::neg(b, b.input("x", {DType::F32, {2}})));
    write_file(at("n.rlx"), print(b.finish()));
    const ToolResult r = run_tool({"explain", at("n.rlx"), "--json"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(nlohmann::json::parse(r.out).at("name").get<std::string>(), name);
    const ToolResult page = run_tool({"explain", at("n.rlx"), "--html", "-"});
    const size_t begin = page.out.find("id=\"data\">"), end = page.out.find("</script>", begin);
    ASSERT_NE(begin, std::string::npos);
    const auto data = nlohmann::json::parse(page.out.substr(begin + 10, end - begin - 10));
    EXPECT_EQ(data.at("name").get<std::string>(), name);
  }
  write_file(
      at("z.rlx"),
      "graph @\"a\\x00b\" {\n  %0 = input() {name=\"x\", shape=[2]} : [2] f32\n  return %0\n}\n");
  ASSERT_EQ(run_tool({"verify", at("z.rlx")}).status, 0);
  write_file(at("z.rlxb"), "as it was");
  EXPECT_EQ(code_of(run_tool({"opt", at("z.rlx"), "--passes", "cse", "-o", at("z.rlxb")})), "utf8");
  EXPECT_EQ(read_file(at("z.rlxb")), "as it was");
}

TEST_F(Manners, DeepDocumentsAreRefused) {
  for (const int n : {100, 500'000}) {
    write_file(at("deep.json"), "{\"format\":\"rlx.hir\",\"version\":" + std::string(n, '[') +
                                    std::string(n, ']') + "}");
    EXPECT_EQ(code_of(run_tool({"verify", at("deep.json")})), "json");
  }
}

TEST_F(Manners, QuantisingKeepsWhatItReads) {
  Builder b("w");
  const Value x = b.input("x", {DType::F32, {4, 32}}), y = b.input("y", {DType::F32, {4, 32}});
  b.output(op::matmul(b, op::add(b, x, y), b.param("w", {DType::F32, {32, 8}})));
  write_file(at("w.rlx"), print(b.finish()));
  const NamedTensors params{{"w", Tensor::full(DType::F32, {32, 8}, 0.5)}};
  save_checkpoint(at("w.ckpt"), params);
  const auto quantise = [&](const std::string& out, const std::string& format,
                            const Words& more = {}) {
    return run_tool(testing::with(
        {"quantise", at("w.rlx"), "-o", out, "--params", at("w.ckpt"), "--format", format}, more));
  };
  EXPECT_EQ(code_of(quantise(at("w"), "q8_0")), "file-same");
  EXPECT_TRUE(load_checkpoint(at("w.ckpt")).at("w").same_bits(params.at("w")));
  EXPECT_EQ(code_of(quantise("-", "q8_0")), "standard-output");
  EXPECT_FALSE(fs::exists("-"));
  ASSERT_EQ(quantise(at("q.rlx"), "q8_0").status, 0);
  const std::string before = read_file(at("q.rlx.ckpt"));
  fs::permissions(at("q.rlx"), fs::perms::owner_read);
  EXPECT_NE(quantise(at("q.rlx"), "int4/32").status, 0);
  EXPECT_EQ(read_file(at("q.rlx.ckpt")), before) << "its program is still the old one";
  // A batch that lacks an input is none of the last one's.
  fs::create_directories(at("d/1")), fs::create_directories(at("d/2"));
  for (const char* name : {"d/1/x.npy", "d/1/y.npy"})
    write_npy(at(name), Tensor::full(DType::F32, {4, 32}, 1));
  EXPECT_EQ(code_of(quantise(at("o.rlx"), "int8", {"--data", at("d")})), "calibration-data");
  write_npy(at("d/2/y.npy"), Tensor::full(DType::F32, {4, 32}, 1));
  const ToolResult r = quantise(at("o.rlx"), "int8", {"--data", at("d")});
  EXPECT_EQ(code_of(r), "input-missing") << r.err;
  EXPECT_TRUE(has(r.err, "batch 2")) << r.err;
  fs::remove_all(at("d/2"));
  const ToolResult json = quantise(at("o.rlx"), "int8", {"--data", at("d"), "--json", "-"});
  EXPECT_EQ(nlohmann::json::parse(json.out).at("layers").size(), 1u);
  EXPECT_FALSE(fs::exists("-"));
  EXPECT_TRUE(run_tool({"print", at("w.rlx"), "--svg", "-"}).out.starts_with("<svg"));
  EXPECT_EQ(code_of(run_tool({"run", at("w.rlx"), "--params", "-"})), "standard-input");
  EXPECT_NE(run_tool({"quantise", at("w.rlx"), "-o", at("g.rlx"), "--params", at("w.ckpt"),
                      "--format", "int4/9223372036854775807"})
                .status,
            2);
}

TEST_F(Manners, VersionSaysWhoAnswersForLinearAlgebra) {
  const ToolResult r = run_tool({"--version"});
  EXPECT_EQ(r.status, 0);
  if (!is_available("cpu")) return;
  EXPECT_TRUE(has(r.out, "\nBLAS: /") && has(r.out, "\nLAPACK: /")) << r.out;
}

TEST_F(Manners, FolderErrorsReadLikeOthers) {
  write_file(at("file"), "x");
  write_file(at("m.rlx"),
             "graph @g {\n  %0 = input() {name=\"x\", shape=[1]} : [1] f32\n  return %0\n}\n");
  write_npy(at("x.npy"), Tensor(DType::F32, {1}));
  const Words run{"run", at("m.rlx"), "--input", "x=" + at("x.npy")};
  for (const Words& more : {Words{"--out", at("file/sub")}, Words{"--out", at("file")},
                            Words{"--dump", at("file/sub")}}) {
    const ToolResult r = run_tool(testing::with(run, more));
    EXPECT_EQ(code_of(r), "file-open") << more[0];
    EXPECT_TRUE(has(r.err, "cannot make the folder " + more[1])) << r.err;
  }
}

TEST_F(Manners, AnUnboundDimSaysHowToBindIt) {
  write_file(
      at("m.rlx"),
      "graph @g {\n  %0 = input() {name=\"x\", shape=[?batch]} : [?batch] f32\n  return %0\n}\n");
  const ToolResult r = run_tool({"run", at("m.rlx")});
  EXPECT_EQ(code_of(r), "unbound-dim");
  EXPECT_TRUE(has(r.err, "--dim batch=SIZE")) << r.err;
}

TEST_F(Manners, AWrongNameOrRankIsReportedBeforeMissingSizes) {
  write_file(at("m.rlx"),
             "graph @g {\n  %0 = input() {name=\"rows\", shape=[?n, 2]} : [?n, 2] f32\n"
             "  %1 = param() {name=\"bias\", shape=[?n, 2]} : [?n, 2] f32\n"
             "  %2 = add(%0, %1) : [?n, 2] f32\n  return %2\n}\n");
  write_npy(at("x.npy"), Tensor(DType::F32, {3, 2}));
  write_npy(at("s.npy"), Tensor(DType::F32, {}));
  write_npy(at("i.npy"), Tensor(DType::I32, {3, 2}));
  const std::tuple<std::string, std::string, std::string, std::string> cases[] = {
      {"--input", "rws=x.npy", "input-unknown",
       "there is no input rws; did you mean rows?; the inputs are rows"},
      {"--input", "bias=x.npy", "input-unknown", "there is no input bias; the inputs are rows"},
      {"--param", "bais=x.npy", "param-unknown", "there is no param bais; did you mean bias?"},
      {"--input", "rows=s.npy", "input-type", "input rows is [?n, 2] f32, given is [] f32"},
      {"--param", "bias=s.npy", "param-type", "param bias is [?n, 2] f32, given is [] f32"},
      {"--input", "rows=i.npy", "input-type", "input rows is [?n, 2] f32, given is [3, 2] i32"},
  };
  for (const auto& [option, word, code, message] : cases) {
    const size_t equals = word.find('=');
    const ToolResult r = run_tool(
        {"run", at("m.rlx"), option, word.substr(0, equals + 1) + at(word.substr(equals + 1))});
    EXPECT_EQ(code_of(r), code);
    EXPECT_TRUE(has(r.err, message)) << r.err;
  }
  EXPECT_EQ(run_tool({"run", at("m.rlx"), "--input", "rows=" + at("x.npy"), "--param",
                      "bias=" + at("x.npy")})
                .status,
            0);
}

TEST_F(Manners, AModelThatCannotFitIsRefusedBeforeTheWork) {
  write_file(at("t.txt"), testing::some_text());
  for (const Words& more : {Words{"--layers", "1000000000"}, Words{"--width", "100000000"},
                            Words{"--batch", "1000000000000"}}) {
    const ToolResult r = run_tool(
        testing::with({"train", "--text", at("t.txt"), "--steps", "1", "--sample", "0"}, more));
    EXPECT_EQ(code_of(r), "out-of-memory") << more[0];
    EXPECT_TRUE(has(r.err, "needs at least")) << r.err;
  }
}

TEST_F(Manners, PlannedMemoryIsNeverMoreThanWithoutReuse) {
  if (!is_available("cpu")) GTEST_SKIP();
  for (int depth : {1, 2, 6}) {
    Builder b("g");
    Value x = b.input("x", {DType::F32, {64, 64}});
    const Value w = b.param("w", {DType::F32, {64, 64}});
    for (int i = 0; i < depth; ++i) x = op::softmax(b, op::matmul(b, x, w), {.axis = -1});
    b.output(x);
    const CompiledGraph f = Session("cpu").compile(b.finish());
    EXPECT_LE(f.info().planned_bytes, f.info().unshared_bytes) << depth;
  }
}

// ---- where it reads and writes

constexpr const char* kDouble =
    "graph @g {\n  %0 = input() {name=\"x\", shape=[2]} : [2] f32\n  %1 = add(%0, %0) : [2] f32\n"
    "  return %1\n}\n";

// f with standard input from a file.
ToolResult with_input(const std::string& file, const Words& args) {
  const int before = ::dup(STDIN_FILENO), now = ::open(file.c_str(), O_RDONLY);
  ::dup2(now, STDIN_FILENO);
  const ToolResult r = run_tool(args);
  ::dup2(before, STDIN_FILENO);
  ::close(before);
  ::close(now);
  return r;
}

TEST_F(Manners, AHyphenIsStandardInput) {
  write_file(at("m.rlx"), kDouble);
  write_npy(at("x.npy"), Tensor::from<float>({2}, {1, 2}));
  EXPECT_TRUE(has(with_input(at("m.rlx"), {"print", "-"}).out, "%1 = add(%0, %0)"));
  EXPECT_TRUE(has(with_input(at("m.rlx"), {"verify", "-"}).out, "is valid"));
  EXPECT_TRUE(has(with_input(at("m.rlx"), {"opt", "-", "--passes", "cse"}).out, "add"));
  EXPECT_TRUE(has(with_input(at("m.rlx"), {"run", "-", "--input", "x=" + at("x.npy")}).out, "2 4"));
  EXPECT_TRUE(has(with_input(at("x.npy"), {"run", at("m.rlx"), "--input", "x=-"}).out, "2 4"));
  EXPECT_EQ(code_of(with_input(at("m.rlx"), {"run", "-", "--input", "x=-"})), "standard-input");
  write_file(at("bad.rlx"), "graph");
  EXPECT_TRUE(has(with_input(at("bad.rlx"), {"print", "-"}).err, "standard input: "));
}

TEST_F(Manners, AHyphenIsStandardOutput) {
  write_file(at("m.rlx"), kDouble);
  write_npy(at("x.npy"), Tensor::from<float>({2}, {1, 2}));
  const fs::path before = fs::current_path();
  fs::current_path(folder);
  const ToolResult opt = run_tool({"opt", "m.rlx", "--passes", "cse", "-o", "-"}),
                   plain = run_tool({"opt", "m.rlx", "--passes", "cse"}),
                   run = run_tool({"run", "m.rlx", "--input", "x=x.npy", "--out", "-"}),
                   train = run_tool({"train", "--demo", "--out", "-"});
  fs::current_path(before);
  EXPECT_EQ(opt.out, plain.out);
  EXPECT_TRUE(has(run.out, "2 4")) << run.err;
  EXPECT_EQ(train.status, 2);
  EXPECT_FALSE(fs::exists(at("-")));
}

TEST_F(Manners, NanHasNoSign) {
  write_file(at("m.rlx"), kDouble);
  write_npy(at("x.npy"), Tensor::from<float>({2}, {-std::nanf(""), std::nanf("")}));
  const ToolResult r = run_tool({"run", at("m.rlx"), "--input", "x=" + at("x.npy")});
  EXPECT_TRUE(has(r.out, " nan nan\n")) << r.out;
}

TEST_F(Manners, HelpThatCannotBeWrittenIsAnError) {
  if (!fs::exists(testing::tool_path())) GTEST_SKIP() << "no tool beside the tests";
  for (const Words& args : {Words{"--help"}, Words{"train", "--help"}, Words{"--version"}}) {
    const ToolResult r =
        testing::start_tool(args, [] { ::dup2(::open("/dev/full", O_WRONLY), STDOUT_FILENO); });
    EXPECT_EQ(code_of(r), "output") << args[0];
    EXPECT_EQ(testing::start_tool(args).status, 0);
  }
}

// ---- two runs

// A process that has a folder's lock until it is killed.
class Holder {
 public:
  explicit Holder(const std::string& out) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    child_ = ::fork();
    if (child_ == 0) {
      const LockFile lock(out + "/.train.lock");
      if (::write(ready[1], "x", 1) != 1) _exit(99);
      for (;;) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    for (int fd : ready) ::close(fd);
  }
  ~Holder() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

 private:
  pid_t child_;
};

TEST_F(Manners, TwoRunsDoNotShareAFolder) {
  if (!fs::exists(testing::tool_path())) GTEST_SKIP() << "no tool beside the tests";
  write_file(at("t.txt"), testing::some_text());
  const Words first = testing::tiny_training(at("t.txt"), at("a"));
  const Words again = testing::with(first, {"--resume", at("a/train.ckpt")});
  ASSERT_EQ(testing::start_tool(first).status, 0);
  const size_t written = files("a");
  const std::string checkpoint = read_file(at("a/train.ckpt"));
  {
    const Holder other(at("a"));
    for (const Words& words : {first, again}) {
      const ToolResult r = testing::start_tool(words);
      EXPECT_EQ(code_of(r), "running");
      EXPECT_TRUE(has(r.err, "another rlx train writes to " + at("a"))) << r.err;
    }
    EXPECT_EQ(read_file(at("a/train.ckpt")), checkpoint);
    EXPECT_EQ(testing::start_tool(testing::tiny_training(at("t.txt"), at("b"))).status, 0);
  }
  // What was killed holds nothing.
  EXPECT_EQ(testing::start_tool(again).status, 0);
  EXPECT_EQ(testing::start_tool(first).status, 0);
  EXPECT_EQ(files("a"), written) << "no lock stays behind";
}

TEST_F(Manners, InputsThatAreNoFilesAreRefused) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  write_file(at("m.rlx"), kDouble);
  for (const std::string& input : {at("pipe"), std::string("/dev/null")}) {
    EXPECT_EQ(code_of(run_tool({"print", input})), "file-open");
    EXPECT_EQ(code_of(run_tool({"run", at("m.rlx"), "--input", "x=" + input})), "file-open");
    EXPECT_EQ(code_of(run_tool({"train", "--text", input})), "file-open");
  }
}

TEST_F(Manners, WhatIsPrintedIsTheWholeProgram) {
  Builder b("g");
  const Value x = b.input("x", {DType::F32, {600}});
  Tensor c(DType::F32, {600});
  for (int64_t i = 0; i < 600; ++i) c.set_float(i, static_cast<double>(i));
  b.output(op::add(b, x, b.constant(c)));
  const Graph g = b.finish();
  save_graph(at("m.rlx"), g);
  EXPECT_TRUE(parse(run_tool({"opt", at("m.rlx"), "--passes", "cse"}).out) == g);
  EXPECT_TRUE(parse(run_tool({"print", at("m.rlx")}).out) == g);
}

TEST_F(Manners, ResultsAreWrittenIntoWhatStandsThere) {
  write_file(at("m.rlx"), kDouble);
  fs::create_directory(at("far"));
  write_file(at("far/g.rlx"), "old");
  fs::create_symlink("far/g.rlx", at("link.rlx"));
  EXPECT_EQ(run_tool({"opt", at("m.rlx"), "-o", at("link.rlx")}).status, 0);
  EXPECT_TRUE(fs::is_symlink(at("link.rlx")));
  EXPECT_EQ(load_graph(at("far/g.rlx")).name, "g");
  fs::permissions(at("far/g.rlx"), fs::perms::owner_read);
  const ToolResult r = run_tool({"opt", at("m.rlx"), "-o", at("link.rlx")});
  EXPECT_EQ(code_of(r), "file-open");
  EXPECT_TRUE(has(r.err, "it is read-only")) << r.err;
}

// ---- what reaches the terminal

// No control characters other than line ends and tabs, one byte or two long; nothing that is not UTF-8.
bool harmless(const std::string& text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) return false;
    if (byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0)
      return false;
  }
  return is_utf8(text) && text.find("\xe2\x80\xae") == std::string::npos;
}

TEST_F(Manners, NothingInAFileControlsTheTerminal) {
  const std::string evil =
      "\x1b]0;owned\a\x1b[2J\xc2\x9b"
      "31m\xff\xe2\x80\xae\r\b\x7f";
  std::string escaped;
  for (char c : evil) escaped += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  const std::string program = fmt::format(
      "graph @\"{0}\" {{\n  %0 = input() {{name=\"{0}\", shape=[2]}} : [2] f32 @ \"{0}\"\n"
      "  %1 = param() {{name=\"w{0}\", shape=[2]}} : [2] f32\n"
      "  %2 = add(%0, %1) : [2] f32 @ \"{0}\" from \"{0}\"\n  return %2\n"
      "  update \"w{0}\" <- %2\n}}\n",
      escaped);
  write_npy(at("x.npy"), Tensor::from<float>({2}, {1, 2}));
  for (const std::string& text :
       {program, evil + program, "graph @" + evil, std::string(kDouble) + evil}) {
    write_file(at("m.rlx"), text);
    for (const Words& args :
         {Words{"print", at("m.rlx")}, Words{"verify", at("m.rlx")},
          Words{"opt", at("m.rlx"), "--report"}, Words{"opt", at("m.rlx"), "--passes", evil},
          Words{"run", at("m.rlx")}, Words{"run", at("m.rlx"), "--dim", evil},
          Words{"run", at("m.rlx"), "--input", evil + "=" + at("x.npy"), "--param",
                "w" + evil + "=" + at("x.npy"), "--explain"},
          Words{evil}, Words{"print", evil},
          Words{"run", at("m.rlx"), "--input", "x=" + at("m.rlx")}}) {
      const ToolResult r = run_tool(args);
      EXPECT_TRUE(harmless(r.out)) << args[0] << " " << quote(r.out);
      EXPECT_TRUE(harmless(r.err)) << args[0] << " " << quote(r.err);
    }
  }
  write_file(at("m.rlx"), program);
  EXPECT_EQ(load_graph(at("m.rlx")).name, evil);
  EXPECT_TRUE(parse(print(load_graph(at("m.rlx")))) == load_graph(at("m.rlx")));
}

// Only output.cc may write to the terminal; CLI11 prints the help.
TEST(Output, HasOneDoor) {
  for (const auto& entry : fs::directory_iterator(RLX_SOURCE_DIR "/src/cli")) {
    const std::string name = entry.path().filename().string(), text = read_file(entry.path());
    if (name == "output.cc") continue;
    for (const char* word :
         {"fmt::print", "printf", "std::cout", "std::cerr", "fputs", "putchar", "fputc", "fwrite"})
      EXPECT_FALSE(has(text, word)) << name << " has " << word;
  }
}

TEST(Printable, EscapesWhatIsNotText) {
  EXPECT_EQ(printable("plain, Größe 日本 \xf0\x9f\x99\x82"), "plain, Größe 日本 \xf0\x9f\x99\x82");
  EXPECT_EQ(printable("a\x1b[0m\n"), "a\\x1b[0m\\n");
  EXPECT_EQ(printable("a\tb\nc\r", "\n\t"), "a\tb\nc\\x0d");
  EXPECT_EQ(printable("\xc2\x9b \x9b \xc3"), "\\xc2\\x9b \\x9b \\xc3");
  EXPECT_EQ(printable("\xe2\x80\xae \xe2\x81\xa6 \xe2\x80\xa8 \xef\xbb\xbf"),
            "\\xe2\\x80\\xae \\xe2\\x81\\xa6 \\xe2\\x80\\xa8 \\xef\\xbb\\xbf");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text = std::string("x") + static_cast<char>(byte) + "y";
    EXPECT_EQ(Lexer(quote(text)).quoted(), text) << byte;
  }
}

TEST(Progress, TheLineFitsTheTerminal) {
  const std::string text = "step 12/1200  3.210 bits/char  12,345 tokens/s  1:05 left";
  for (size_t width = 0; width < 120; ++width)
    for (double share : {0.0, 0.5, 1.0})
      EXPECT_LT(progress_line(share, text, width).size(), std::max<size_t>(width, 1));
  EXPECT_EQ(progress_line(0.5, "step 1/2", 80), "[############............] step 1/2");
  EXPECT_EQ(progress_line(0.5, "step 1/2", 20), "[####....] step 1/2");
  EXPECT_EQ(progress_line(0.5, "step 1/2", 12), "step 1/2");
  EXPECT_EQ(progress_line(0.5, "step 1/2", 5), "step");
}

// ---- misspellings

TEST(DidYouMean, TheNearest) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("softmxa", "softmax"), 1u);
  EXPECT_EQ(edit_distance("ab", "ba"), 1u);
  const std::vector<std::string_view> names{"softmax", "softmin", "softplus", "add"};
  EXPECT_EQ(did_you_mean("sofmax", names), "; did you mean softmax?");
  EXPECT_EQ(did_you_mean("softmx", names), "; did you mean softmax?");
  EXPECT_EQ(did_you_mean("ad", names), "; did you mean add?");
  EXPECT_EQ(did_you_mean("xyzzy", names), "");
  EXPECT_EQ(did_you_mean("", names), "");
  EXPECT_EQ(did_you_mean(std::string(10000, 'x'), names), "");
}

// ---- the sample

TEST(SamplePrompt, IsWholeLinesOfUnseenText) {
  const Corpus c = make_corpus(testing::some_text(), 64);
  const std::string prompt = c.decode(sample_prompt(c, 64));
  EXPECT_TRUE(prompt.starts_with("line ") && prompt.ends_with("\n")) << prompt;
  EXPECT_LE(prompt.size(), 32u);
  EXPECT_TRUE(has(c.decode(c.validation), prompt));
  const Corpus one_line = make_corpus(std::string(3000, 'x'), 64);
  EXPECT_EQ(sample_prompt(one_line, 64).size(), 32u);
}

TEST(SamplePrompt, IsWhatTheModelGoesOnFrom) {
  std::string text;
  for (int i = 0; i < 600; ++i) text += "abcd\n";
  const Corpus c = make_corpus(text, 16);
  GptConfig config;
  config.vocab = c.vocab(), config.width = 32, config.layers = 1, config.heads = 2;
  config.block = 16, config.batch = 8, config.steps = 60, config.warmup = 5, config.rate = 1e-2;
  Trainer trainer(c, config, {.seed = 1, .threads = 1});
  while (trainer.step_number() < config.steps) trainer.step();
  const auto tokens = [&](const std::string& s) {
    std::vector<int32_t> out;
    for (char byte : s) out.push_back(c.token_of(byte));
    return out;
  };
  EXPECT_EQ(c.decode(trainer.sample(tokens("abcd\nabc"), 7, 0.1)), "d\nabcd\n");
  EXPECT_EQ(c.decode(trainer.sample(tokens("abcd\na"), 3, 0.1)), "bcd");
}

TEST(SampleTemperature, DecidesHowFarFromTheLikeliest) {
  const Corpus c = make_corpus(testing::some_text(), 16);
  GptConfig config;
  config.vocab = c.vocab(), config.width = 16, config.layers = 1, config.heads = 2;
  config.block = 16, config.batch = 2, config.steps = 5, config.warmup = 1;
  Trainer trainer(c, config, {.seed = 1, .threads = 1});
  const std::vector<int32_t> prompt = sample_prompt(c, 16);
  const auto cold = trainer.sample(prompt, 20, 1e-6);
  EXPECT_EQ(trainer.sample(prompt, 20, 1e-7), cold);
  EXPECT_NE(trainer.sample(prompt, 20, 1e6), cold);
}

// ---- batches

// At a rate that changes nothing, the loss tells which rows a step read: others in every step, the same for one seed.
TEST(Batches, AreOthersInEveryStep) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += static_cast<char>('a' + i * 7919 % 1009 % 23);
  const Corpus c = make_corpus(text, 16);
  GptConfig config;
  config.vocab = c.vocab(), config.width = 16, config.layers = 1, config.heads = 2;
  config.block = 16, config.batch = 2, config.steps = 5, config.warmup = 1, config.rate = 1e-30;
  std::vector<std::vector<float>> losses;
  for (uint64_t seed : {1, 1, 2}) {
    Trainer trainer(c, config, {.seed = seed, .threads = 1});
    while (trainer.step_number() < config.steps) trainer.step();
    losses.push_back(trainer.history.training);
    std::set<float> distinct(losses.back().begin(), losses.back().end());
    EXPECT_EQ(distinct.size(), losses.back().size()) << seed;
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_NE(losses[0], losses[2]);
}

}  // namespace
}  // namespace rlx::cli
