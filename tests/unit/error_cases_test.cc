// Every error has a case: the rows of tests/errors raise what they say, each message of the ops' checks has a row, each
// code that the sources raise is named by a test, and each rule of the verifier has a graph that breaks it and one that
// keeps it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "../support/error_sites.h"
#include "../support/samples.h"
#include "rlx/ir/verify.h"
#include "rlx/ops/region.h"

namespace rlx::testing {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The files below `folder` with one of these extensions, by name.
std::vector<fs::path> files_of(const fs::path& folder, const std::set<std::string>& extensions) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (extensions.contains(entry.path().extension().string())) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

// ---- the rows -----------------------------------------------------------------------------------

// op {attributes} operand types ! code
struct ErrorRow {
  std::string where, op, attrs, code;
  Types operands;
};

ErrorRow read_row(const TextRow& row) {
  ErrorRow out{.where = row.where};
  const size_t name = row.text.find_first_of(" \n");
  out.op = row.text.substr(0, name);
  std::string rest = row.text.substr(name + 1);
  if (rest[0] == '{') {
    out.attrs = rest.substr(0, bracketed(rest));
    rest = rest.substr(out.attrs.size());
  }
  const size_t mark = rest.find("! ");
  check(mark != std::string::npos, "{}: a row ends in ! code", row.where);
  out.code = rest.substr(mark + 2);
  Reader r{Lexer(std::string_view(rest).substr(0, mark)), nullptr, nullptr};
  while (!r.lex.done()) {
    Type& t = out.operands.emplace_back();
    Codec<DType>::read(r, t.dtype);
    Codec<Shape>::read(r, t.shape);
  }
  return out;
}

const std::vector<ErrorRow>& error_rows() {
  static const std::vector<ErrorRow> all = [] {
    register_sample_ops();
    std::vector<ErrorRow> out;
    for (const TextRow& row : read_rows(RLX_SOURCE_DIR "/tests/errors"))
      out.push_back(read_row(row));
    return out;
  }();
  return all;
}

// What the row raises on a graph that has its operands; the graph stays as it was.
std::optional<Error> raised_by(const ErrorRow& row) {
  const OpDef* op = op_table().find(row.op);
  check(op != nullptr, "{}: unknown op {}", row.where, row.op);
  Builder b("row");
  Values in;
  for (size_t i = 0; i < row.operands.size(); ++i)
    in.push_back(b.input(std::to_string(i), row.operands[i]));
  const Graph before = b.graph();
  std::optional<Error> error;
  try {
    b.emit(*op, read_attrs(*op, row.attrs), in);
  } catch (const Error& e) {
    error = e;
    EXPECT_TRUE(b.graph() == before) << row.where << ": the graph has changed";
  }
  return error;
}

TEST(ErrorRows, RaiseWhatTheySay) {
  for (const ErrorRow& row : error_rows()) {
    SCOPED_TRACE(row.where + " " + row.op);
    const auto error = raised_by(row);
    EXPECT_TRUE(error.has_value()) << "no error; expected " << row.code;
    if (!error) continue;
    EXPECT_EQ(error->code(), row.code) << error->what();
    EXPECT_EQ(name(error->kind()), "user") << error->what();
    EXPECT_NE(error->message().find(row.op), std::string::npos)
        << "the message does not name the op: " << error->what();
  }
}

// ---- coverage -----------------------------------------------------------------------------------

std::vector<ErrorSite> project_sites() {
  ErrorScan scan;
  const fs::path root = RLX_SOURCE_DIR;
  for (const fs::path& p : files_of(root / "src", {".h", ".cc"}))
    scan.add(p.lexically_relative(root).string(), read_text(p));
  return scan.sites();
}

// A code that rows raise has a row for each of its messages in the ops' and the builder's checks. Other codes of these
// files are raised when a graph is run or transformed, or an op registered; files of helpers have functions on builders.
TEST(ErrorRows, EveryMessageOfAnOpHasOne) {
  std::multimap<std::string, std::string> raised;  // code -> message
  for (const ErrorRow& row : error_rows())
    if (const auto e = raised_by(row)) raised.emplace(e->code(), e->message());
  for (const ErrorSite& site : project_sites()) {
    const bool is_check = site.file.starts_with("src/ops/") || site.file == "src/ir/builder.cc";
    if (!is_check || site.file.ends_with("_helpers.cc")) continue;
    const auto [begin, end] = raised.equal_range(site.code);
    EXPECT_TRUE(begin == end ||
                std::any_of(begin, end,
                            [&](const auto& r) { return may_format_to(site.message, r.second); }))
        << site.file << ":" << site.line << ": no row of tests/errors raises " << site.code << ": "
        << site.message;
  }
}

// The codes that no test can raise on purpose.
const std::map<std::string_view, std::string_view> kNotRaisable{
    {"internal", "an invariant of ours is broken"},
    {"out-of-memory", "the machine has no memory left"},
    {"llvm", "LLVM fails"},
    {"onednn", "oneDNN fails"},
    {"lapack", "the library is missing, or a matrix has more than 2^31 rows"},
    {"cpu", "on machines without AVX2"},
    {"no-kernel", "every op has a kernel, a scalar form or a decomposition"},
    {"demo-source", "the program must lie outside of the sources"},
};

// What tests say: the text of all of them but this one, which lists codes without raising them.
std::string text_of_tests() {
  std::string out;
  const fs::path root = RLX_SOURCE_DIR "/tests";
  for (const fs::path& p : files_of(root, {".cc", ".h", ".py"}))
    if (p.filename() != "error_cases_test.cc") out += read_text(p);
  return out;
}

// Whether the tests name the code in quotes. A code without a hyphen may be any word: there the text before it must
// speak of codes, errors or refusals.
bool is_named(const std::string& tests, const std::string& code) {
  const std::string quoted = '"' + code + '"';
  for (size_t at = tests.find(quoted); at != tests.npos; at = tests.find(quoted, at + 1)) {
    if (code.find('-') != code.npos) return true;
    const size_t near = std::min<size_t>(at, 150);
    std::string before = tests.substr(at - near, near);
    std::transform(before.begin(), before.end(), before.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    for (const char* talk : {"code", "error", "refus"})
      if (before.find(talk) != before.npos) return true;
  }
  return false;
}

// The sites whose code is named neither by a test nor by a row, one of each code.
std::vector<ErrorSite> uncovered(const std::vector<ErrorSite>& sites, const std::string& tests,
                                 const std::vector<ErrorRow>& rows) {
  std::set<std::string_view> seen;
  for (const ErrorRow& r : rows) seen.insert(r.code);
  std::vector<ErrorSite> out;
  for (const ErrorSite& s : sites)
    if (seen.insert(s.code).second && !kNotRaisable.contains(s.code) && !is_named(tests, s.code))
      out.push_back(s);
  return out;
}

TEST(ErrorCodes, EachHasACase) {
  const std::vector<ErrorSite> sites = project_sites();
  EXPECT_GT(sites.size(), 400u) << "the scan finds too little";
  for (const ErrorSite& s : uncovered(sites, text_of_tests(), error_rows()))
    ADD_FAILURE() << s.file << ":" << s.line << ": no test raises " << s.code;
  for (const auto& [code, reason] : kNotRaisable)
    EXPECT_TRUE(
        std::any_of(sites.begin(), sites.end(), [&](const ErrorSite& s) { return s.code == code; }))
        << code << " is listed but nothing raises it";
}

TEST(ErrorCodes, TheScanFindsThem) {
  ErrorScan scan;
  scan.add("check.h",
           "void refuse(int x, std::string_view code, std::string why);\n"
           "struct Message { std::string code; };\n");
  scan.add("use.cc",
           "// refuse(1, \"in-comment\", \"no\");\n"
           "const char* text = \"refuse(2, \\\"in-string\\\")\";\n"
           "void f(int n) {\n"
           "  if (n == 1'000) refuse(n, \"too-large\",\n"
           "                         fmt::format(\"n is {}, \" \"at most {}\", n, 999));\n"
           "  refuse(name == \"odd\", \"too-odd\", \"no {{}} here\");\n"
           "  other(n, \"not-raised\");\n"
           "}\n");
  const std::vector<ErrorSite> sites = scan.sites();
  ASSERT_EQ(sites.size(), 2u);
  EXPECT_EQ(
      fmt::format("{}:{} {}: {}", sites[0].file, sites[0].line, sites[0].code, sites[0].message),
      "use.cc:4 too-large: n is {}, at most {}");
  EXPECT_EQ(sites[1].code, "too-odd");

  const auto open = uncovered(sites, R"(EXPECT_EQ(code, "too-odd");)", {});
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].code, "too-large");
  EXPECT_TRUE(uncovered(sites, R"("too-odd")", {{.code = "too-large"}}).empty());
  EXPECT_FALSE(is_named(R"(b.input("rank", type);)", "rank"));
  EXPECT_TRUE(is_named(R"(expect_error("rank", f);)", "rank"));

  EXPECT_TRUE(may_format_to(sites[0].message, "f: n is 1000, at most 999 (operands: none)"));
  EXPECT_FALSE(may_format_to(sites[0].message, "at most 999, n is 1000"));
  EXPECT_TRUE(may_format_to(sites[1].message, "no {} here"));
}

// ---- the verifier -------------------------------------------------------------------------------

// y = x + w, and w is updated with y.
Graph sum_graph() {
  Builder b("sum");
  const Type type{DType::F32, {2}};
  const Value x = b.input("x", type), w = b.param("w", type);
  const Value y = op::add(b, x, w);
  b.output(y);
  b.update("w", y);
  return b.finish();
}

// A region around a region .. around the identity.
Graph nested_graph(int depth) {
  Builder b("nested");
  Value x = b.input("x", {DType::F32, {}});
  if (depth > 0) x = op::region(b, x, {nested_graph(depth - 1)});
  b.output(x);
  return std::move(b.mutable_graph());
}

// A change that breaks one rule of a graph that keeps all.
struct VerifyCase {
  std::string_view rule, what;
  void (*change)(Graph&);
  Graph (*keeps)() = sum_graph;
};

void set_dtype(Node& leaf, DType dtype) {
  auto attrs = leaf.get<LeafAttrs>();
  attrs.dtype = leaf.out[0].dtype = dtype;
  leaf.attrs = attrs;
}

void set_body(Graph& g, Graph body) { g.nodes[1].attrs = RegionAttrs{std::move(body)}; }

const VerifyCase kVerifyCases[] = {
    {"operand-order", "a node that uses itself", [](Graph& g) { g.nodes[2].in[0] = {2, 0}; }},
    {"operand-order", "a result that there is not", [](Graph& g) { g.nodes[2].in[1] = {0, 1}; }},
    {"arity", "a sum of one operand", [](Graph& g) { g.nodes[2].in.pop_back(); }},
    {"arity", "a sum of three operands", [](Graph& g) { g.nodes[2].in.push_back({0, 0}); }},
    {"dtype", "a sum of bools",
     [](Graph& g) { set_dtype(g.nodes[0], DType::Bool), set_dtype(g.nodes[1], DType::Bool); }},
    {"attributes", "those of another op", [](Graph& g) { g.nodes[2].attrs = AxisAttrs{}; }},
    {"attributes", "a negative size",
     [](Graph& g) { g.nodes[0].attrs = LeafAttrs{"x", DType::F32, {-1}}; }},
    {"attributes", "shapes that do not broadcast",
     [](Graph& g) {
       g.nodes[0].attrs = LeafAttrs{"x", DType::F32, {3}};
       g.nodes[0].out[0].shape = {3};
     }},
    {"result-type", "another dtype", [](Graph& g) { g.nodes[2].out[0].dtype = DType::F64; }},
    {"result-type", "one result too many", [](Graph& g) { g.nodes[2].out.push_back({}); }},
    {"output-value", "an output that there is not", [](Graph& g) { g.outputs.push_back({9, 0}); }},
    {"output-value", "an update that there is not", [](Graph& g) { g.updates[0].value = {9, 0}; }},
    {"leaf-name", "one name twice",
     [](Graph& g) { g.nodes[1].attrs = LeafAttrs{"x", DType::F32, {2}}; }},
    {"leaf-name", "no name", [](Graph& g) { g.nodes[0].attrs = LeafAttrs{"", DType::F32, {2}}; }},
    {"update-target", "an input", [](Graph& g) { g.updates[0].param = "x"; }},
    {"update-target", "twice", [](Graph& g) { g.updates.push_back(g.updates[0]); }},
    {"update-target", "a value of another type",
     [](Graph& g) { set_dtype(g.nodes[1], DType::F64); }},
    {"body", "a body with an update", [](Graph& g) { set_body(g, sum_graph()); },
     [] { return nested_graph(1); }},
    {"body", "a body with a parameter",
     [](Graph& g) {
       Graph body = sum_graph();
       body.updates.clear();
       set_body(g, std::move(body));
     },
     [] { return nested_graph(1); }},
    {"body", "one level too deep", [](Graph& g) { g = nested_graph(Lexer::kMaxDepth + 1); },
     [] { return nested_graph(Lexer::kMaxDepth); }},
};

std::set<std::string> broken_rules(const Graph& g) {
  std::set<std::string> out;
  for (const Violation& v : violations(g)) {
    EXPECT_FALSE(v.where.empty() || v.message.empty()) << v.rule;
    out.insert(v.rule);
  }
  return out;
}

TEST(Verifier, EveryRuleHasAGraphThatBreaksItAndOneThatKeepsIt) {
  std::set<std::string_view> tried;
  for (const VerifyCase& c : kVerifyCases) {
    SCOPED_TRACE(fmt::format("{}: {}", c.rule, c.what));
    Graph g = c.keeps();
    EXPECT_TRUE(broken_rules(g).empty());
    EXPECT_NO_THROW(verify(g));
    c.change(g);
    EXPECT_TRUE(broken_rules(g).contains(std::string(c.rule)));
    tried.insert(c.rule);
  }
  for (const VerifyRule& rule : verify_rules())
    EXPECT_TRUE(tried.contains(rule.id)) << rule.id << " has no case";
  for (std::string_view rule : tried)
    EXPECT_TRUE(std::any_of(verify_rules().begin(), verify_rules().end(),
                            [&](const VerifyRule& r) { return r.id == rule; }))
        << rule << " is no rule";
}

TEST(Verifier, RaisesTheFirstViolation) {
  Graph g = sum_graph();
  g.outputs.push_back({9, 0});
  auto raised = [&](std::string_view stage) {
    try {
      verify(g, stage);
    } catch (const Error& e) {
      return e;
    }
    return Error(ErrorKind::internal, "none", "");
  };
  const Error user = raised(""), internal = raised("simplify");
  EXPECT_EQ(user.code(), "output-value");
  EXPECT_EQ(user.kind(), ErrorKind::user);
  EXPECT_EQ(user.where(), "outputs");
  EXPECT_EQ(internal.kind(), ErrorKind::internal);
  EXPECT_TRUE(internal.message().starts_with("after simplify: ")) << internal.message();
}

}  // namespace
}  // namespace rlx::testing
