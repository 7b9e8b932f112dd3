// docs/text.md says what the parser does: its examples parse, and its grammar, read from the page,
// accepts whatever the parser accepts. The programs of examples/ run through the tool.
#include <map>
#include <random>
#include <regex>

#include "../support/random_graph.h"
#include "../support/samples.h"
#include "../support/tool.h"
#include "rlx/base/file.h"
#include "rlx/formats/graph_file.h"
#include "rlx/formats/npy.h"
#include "rlx/ops/core.h"

namespace rlx {
namespace {

namespace fs = std::filesystem;

// The blocks ```kind .. ``` of a page.
std::vector<std::string> blocks(const std::string& page, const std::string& kind) {
  std::vector<std::string> out;
  const std::string open = "```" + kind + "\n";
  for (size_t at = page.find(open); at != page.npos; at = page.find(open, at + 1)) {
    const size_t begin = at + open.size();
    out.push_back(page.substr(begin, page.find("```", begin) - begin));
  }
  return out;
}

std::string text_page() { return read_file(RLX_SOURCE_DIR "/docs/text.md"); }

// ---- grammars

// A rule of an EBNF as a tree.
struct Piece {
  enum class Kind { literal, pattern, rule, sequence, choice, repeat, option } kind;
  std::string text;
  std::regex pattern;
  std::vector<Piece> parts;
};

class Grammar {
 public:
  explicit Grammar(const std::string& ebnf) : in_(ebnf) {
    for (skip(); at_ < in_.size(); skip()) {
      const std::string name = word();
      expect('=');
      rules_.emplace(name, choice());
      expect(';');
    }
  }

  // Whether the rule matches the whole text.
  bool matches(const std::string& rule, const std::string& text) const {
    return any(rules_.at(rule), text, 0,
               [&](size_t end) { return after_space(text, end) == text.size(); });
  }
  const std::map<std::string, Piece>& rules() const { return rules_; }

 private:
  using Then = std::function<bool(size_t)>;

  // ---- reading
  void skip() {
    while (at_ < in_.size() && std::isspace(static_cast<unsigned char>(in_[at_]))) ++at_;
  }
  bool next(char c) {
    skip();
    return at_ < in_.size() && in_[at_] == c;
  }
  void expect(char c) {
    check(next(c), "grammar: expected {} before {}", c, in_.substr(at_, 20));
    ++at_;
  }
  std::string word() {
    skip();
    const size_t begin = at_;
    while (at_ < in_.size() &&
           (std::isalnum(static_cast<unsigned char>(in_[at_])) || in_[at_] == '_'))
      ++at_;
    check(at_ > begin, "grammar: expected a name before {}", in_.substr(at_, 20));
    return in_.substr(begin, at_ - begin);
  }
  std::string until(char end) {
    std::string out;
    for (++at_; in_.at(at_) != end; ++at_) {
      if (in_[at_] == '\\' && in_.at(at_ + 1) == end) ++at_;
      out += in_[at_];
    }
    ++at_;
    return out;
  }
  Piece choice() {
    Piece out{Piece::Kind::choice, "", {}, {sequence()}};
    while (next('|')) {
      ++at_;
      out.parts.push_back(sequence());
    }
    return out;
  }
  Piece sequence() {
    Piece out{Piece::Kind::sequence, "", {}, {}};
    while (!next('|') && !next(')') && !next(']') && !next('}') && !next(';'))
      out.parts.push_back(item());
    return out;
  }
  Piece item() {
    if (next('"')) return {Piece::Kind::literal, until('"'), {}, {}};
    if (next('/')) {
      const std::string text = until('/');
      return {Piece::Kind::pattern, text, std::regex(text), {}};
    }
    for (const auto& [open, close, kind] : {std::tuple{'(', ')', Piece::Kind::sequence},
                                            {'[', ']', Piece::Kind::option},
                                            {'{', '}', Piece::Kind::repeat}})
      if (next(open)) {
        ++at_;
        Piece out{kind, "", {}, {choice()}};
        expect(close);
        return out;
      }
    return {Piece::Kind::rule, word(), {}, {}};
  }

  // ---- matching, with every way tried
  static size_t after_space(const std::string& text, size_t at) {
    while (at < text.size()) {
      if (std::isspace(static_cast<unsigned char>(text[at])))
        ++at;
      else if (text.compare(at, 2, "//") == 0)
        at = std::min(text.find('\n', at), text.size());
      else
        break;
    }
    return at;
  }
  static bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
  }

  bool any(const Piece& p, const std::string& text, size_t at, const Then& then) const {
    switch (p.kind) {
      case Piece::Kind::literal: {
        const size_t begin = after_space(text, at), end = begin + p.text.size();
        if (text.compare(begin, p.text.size(), p.text) != 0) return false;
        if (is_word(p.text.back()) && end < text.size() && is_word(text[end])) return false;
        return then(end);
      }
      case Piece::Kind::pattern: {
        std::smatch found;
        const size_t begin = after_space(text, at);
        return std::regex_search(text.begin() + static_cast<int64_t>(begin), text.end(), found,
                                 p.pattern, std::regex_constants::match_continuous) &&
               then(begin + static_cast<size_t>(found.length()));
      }
      case Piece::Kind::rule:
        return any(rules_.at(p.text), text, at, then);
      case Piece::Kind::sequence:
        return in_order(p.parts, 0, text, at, then);
      case Piece::Kind::choice:
        for (const Piece& part : p.parts)
          if (any(part, text, at, then)) return true;
        return false;
      case Piece::Kind::option:
        return any(p.parts[0], text, at, then) || then(at);
      case Piece::Kind::repeat: {
        // As often as possible: in this language what follows a repetition never begins like it.
        for (size_t end = at;; at = end) {
          if (!any(p.parts[0], text, at, [&](size_t e) {
                end = e;
                return true;
              }))
            return then(at);
        }
      }
    }
    return false;
  }
  bool in_order(const std::vector<Piece>& parts, size_t i, const std::string& text, size_t at,
                const Then& then) const {
    if (i == parts.size()) return then(at);
    return any(parts[i], text, at,
               [&](size_t end) { return in_order(parts, i + 1, text, end, then); });
  }

  std::string in_;
  size_t at_ = 0;
  std::map<std::string, Piece> rules_;
};

const Grammar& grammar() {
  static const Grammar g = [] {
    const auto found = blocks(text_page(), "ebnf");
    check(found.size() == 1, "the page has {} grammars", found.size());
    return Grammar(found[0]);
  }();
  return g;
}

bool parses(const std::string& text, const TextStore* store = nullptr) {
  try {
    parse(text, store);
    return true;
  } catch (const Error& e) {
    EXPECT_NE(e.kind(), ErrorKind::internal) << e.what();
    return false;
  }
}

// ---- the page

TEST(TextPage, ItsExamplesParse) {
  const auto examples = blocks(text_page(), "rlx");
  EXPECT_GE(examples.size(), 4u);
  for (const std::string& text : examples) {
    EXPECT_NO_THROW(parse(text)) << text;
    EXPECT_TRUE(grammar().matches("file", text)) << text;
  }
}

TEST(TextPage, ItsGrammarKnowsTheDtypes) {
  std::vector<std::string_view> names;
  for (const Piece& p : grammar().rules().at("dtype").parts) names.push_back(p.parts[0].text);
  std::vector<std::string_view> known;
  for (const DTypeInfo& d : kDTypes) known.push_back(d.name);
  EXPECT_EQ(names, known);
}

TEST(TextPage, ItsGrammarMatchesWhatIsPrinted) {
  size_t count = 0;
  for (const testing::Sample& s : testing::samples())
    for (const DTypeInfo& d : kDTypes)
      if (auto c = testing::make_case(s, d.dtype)) {
        TextStore store;
        const std::string text = print(c->graph, &store);
        EXPECT_TRUE(grammar().matches("file", text)) << text.substr(0, 1000);
        ++count;
        break;
      }
  EXPECT_GT(count, 300u);
  const std::string named = "constants \"g.rlx.0123456789abcdef.consts\" graph @g {}";
  EXPECT_TRUE(parses(named) && grammar().matches("file", named));
}

TEST(TextPage, ItsGrammarRefusesWhatTheParserRefuses) {
  const std::string good =
      "graph @g {\n  %0 = input() {name=\"x\", shape=[2]} : [2] f32\n  %1 = neg(%0) : [2] f32\n  "
      "return %1\n}";
  ASSERT_TRUE(parses(good) && grammar().matches("file", good));
  const std::pair<const char*, const char*> edits[] = {{"graph", "graphs"},
                                                       {"graph", "Graph"},
                                                       {"@g", "g"},
                                                       {"{\n", "(\n"},
                                                       {"%1 =", "1 ="},
                                                       {"neg(", "neg["},
                                                       {"(%0)", "(%0,)"},
                                                       {"[2] f32\n  return", "[2]\n  return"},
                                                       {"return %1", "return"},
                                                       {"return %1", "return %1,"},
                                                       {"}", "} }"},
                                                       {"name=\"x\"", "name=\"x"},
                                                       {"name=\"x\"", "name=\"\\q\""},
                                                       {"{name", "{, name"},
                                                       {" : [2] f32\n  return", "\n  return"},
                                                       {"shape=[2]", "shape=[2,]"},
                                                       {"shape=[2]", "shape=[+2]"},
                                                       {"return %1", "return %1 update w <- %1"}};
  for (const auto& [from, to] : edits) {
    std::string bad = good;
    bad.replace(bad.find(from), std::strlen(from), to);
    EXPECT_FALSE(parses(bad)) << bad;
    EXPECT_FALSE(grammar().matches("file", bad)) << bad;
  }
  for (const char* number : {"Infinity", "NAN", "NaN(1)", "+1", "1e", "0x1p3", "--1", "1.2.3"}) {
    const std::string text = fmt::format(
        "graph @g {{ %0 = constant() {{value=f64[]{{{}}}}} : [] f64 return %0 }}", number);
    EXPECT_FALSE(parses(text)) << text;
    EXPECT_FALSE(grammar().matches("file", text)) << text;
  }
  for (const char* number :
       {"-0", "1.", ".5", "-1e-3", "inf", "-inf", "nan", "nan:0x7ff8000000000001"}) {
    const std::string text = fmt::format(
        "graph @g {{ %0 = constant() {{value=f64[]{{{}}}}} : [] f64 return %0 }}", number);
    EXPECT_TRUE(parses(text) && grammar().matches("file", text)) << text;
  }
}

// Changed texts: whatever the parser still takes, the grammar takes too.
TEST(TextPage, ItsGrammarMatchesWhateverParses) {
  std::vector<std::string> seeds = blocks(text_page(), "rlx");
  for (uint64_t i = 0; i < 20; ++i) seeds.push_back(print(testing::random_program(i).graph));
  std::erase_if(seeds, [](const std::string& s) { return s.size() > 4000; });
  static const std::vector<std::string> marks = {" ", "\n",      "// x\n",     ",", "%0", "[", "]",
                                                 "{", "}",       "(",          ")", "-",  "1", "?n",
                                                 ":", "@ \"a\"", "from \"b\"", "=", "*",  "+"};
  std::mt19937_64 random(1);
  int taken = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = seeds[random() % seeds.size()];
    for (uint64_t edits = 1 + random() % 2; edits > 0; --edits) {
      const size_t at = random() % text.size();
      if (random() % 2)
        text.insert(at, marks[random() % marks.size()]);
      else
        text.erase(at, 1);
    }
    if (!parses(text)) continue;
    ++taken;
    EXPECT_TRUE(grammar().matches("file", text)) << text;
  }
  EXPECT_GT(taken, 100);
}

// ---- where mistakes are reported

std::string where(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& e) {
    return e.where() + " " + e.message();
  }
  return "fine";
}

TEST(TextErrors, AreReportedOnTheirOwnStatement) {
  const std::string head =
      "graph @g {\n  %0 = input() {name=\"x\", shape=[2]} : [2] f32\n  %1 = input() {name=\"y\", "
      "shape=[3]} : [3] f32\n";
  const std::string tail = "\n  %3 = neg(%0) : [2] f32\n  return %3\n}\n";
  const std::pair<const char*, const char*> cases[] = {
      {"  %2 = add(%0, %1) : [2] f32", "4:8 add: "},
      {"  %2 = add(%0, %1) : [2] f32 @ \"label\"", "4:8 add: "},
      {"  %2 = neg(%0) : [3] f32", "4:18 %2 neg is declared as [3] f32, inferred is [2] f32"},
      {"  %2 = neg(%0) : [2] f31", "4:22 unknown dtype f31; did you mean f32?"},
      {"  %2 = neg(%7) : [2] f32", "4:12 %7 is not defined above"},
      {"  %2 = neg(%0:1) : [2] f32", "4:12 %0 has no result 1"},
      {"  %4 = neg(%0) : [2] f32", "4:3 nodes are numbered in order: expected %2"},
      {"  %2 = sofmax(%0) : [2] f32", "4:8 unknown op sofmax; did you mean softmax?"},
      {"  %2 = softmax(%0) {axes=0} : [2] f32",
       "4:21 softmax has no attribute axes; did you mean axis?"},
      {"  %2 = softmax(%0) {axis=0, axis=0} : [2] f32", "4:29 attribute axis is given twice"},
      {"  %2 = neg(%0 = [2] f32", "4:15 expected ')', found \"= [2] f32\""},
  };
  for (const auto& [statement, message] : cases) {
    const std::string found = where(head + statement + tail);
    EXPECT_TRUE(found.starts_with(message)) << statement << "\n" << found;
  }
}

// ---- all pages

// They speak of what is there: nothing is explained by a text that a reader cannot see.
TEST(Pages, PointAtNothingThatIsMissing) {
  std::vector<fs::path> pages{RLX_SOURCE_DIR "/README.md", RLX_SOURCE_DIR "/ARCHITECTURE.md",
                              RLX_SOURCE_DIR "/CONTRIBUTING.md"};
  for (const char* folder : {"docs", "src/stages", "examples"})
    for (const auto& entry : fs::directory_iterator(fs::path(RLX_SOURCE_DIR) / folder))
      if (entry.path().extension() == ".md" || entry.path().extension() == ".h")
        pages.push_back(entry.path());
  EXPECT_GT(pages.size(), 12u);
  const std::regex file("[A-Za-z0-9_/.-]+\\.md\\b");
  for (const fs::path& page : pages) {
    const std::string text = read_file(page);
    for (const char* word :
         {"specification", "ppendix", "reference implementation", "as the reference",
          "in the reference", "the reference's", "of the reference"})
      EXPECT_EQ(text.find(word), std::string::npos) << page << ": " << word;
    // Pages that it names are there; build/ is made by `make docs`.
    for (std::sregex_iterator at(text.begin(), text.end(), file), end; at != end; ++at) {
      const std::string name = at->str();
      EXPECT_TRUE(name.starts_with("build/") || fs::exists(page.parent_path() / name) ||
                  fs::exists(fs::path(RLX_SOURCE_DIR) / name))
          << page << " names " << name;
    }
  }
  // To who reads that page first the word is either the page of ops or how values are computed.
  const std::string readme = std::regex_replace(
      read_file(pages[0]), std::regex("op reference|reference (backend|evaluator|device|values?)"),
      "");
  EXPECT_EQ(readme.find(" reference"), std::string::npos)
      << readme.substr(readme.find(" reference"), 80);
  for (const char* op : {"matmul", "softmax_cross_entropy", "fft"})
    EXPECT_EQ(testing::run_tool({"ops", op}).out.find("specification"), std::string::npos) << op;
}

// ---- the programs

class Examples : public testing::ToolFolder {};

TEST_F(Examples, RunThroughTheTool) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(RLX_SOURCE_DIR "/examples")) {
    if (entry.path().extension() != ".rlx") continue;
    ++count;
    const std::string file = entry.path().string();
    EXPECT_TRUE(grammar().matches("file", read_file(entry.path()))) << file;
    EXPECT_EQ(testing::run_tool({"verify", file}).status, 0) << file;
    EXPECT_EQ(testing::run_tool({"opt", file}).status, 0) << file;
    const Graph g = load_graph(entry.path());
    testing::Words words{"run", file, "--out", at(entry.path().stem().string())};
    DimBinding dims;
    for (const std::string& s : g.symbols()) dims.emplace(s, 3);
    const Graph bound = rlx::bind(g, dims);
    for (const auto& [option, leaves] :
         {std::pair{"--input", bound.inputs()}, std::pair{"--param", bound.params()}})
      for (Value v : leaves) {
        const std::string name = bound.node(v).get<LeafAttrs>().name;
        write_npy(at(name + ".npy"),
                  Tensor::full(bound.type(v).dtype, bound.type(v).shape.sizes(), 0.5));
        words.insert(words.end(), {option, name + "=" + at(name + ".npy")});
      }
    const testing::ToolResult r = testing::run_tool(words);
    EXPECT_EQ(r.status, 0) << file << ": " << r.err;
  }
  EXPECT_GE(count, 4);
  EXPECT_NEAR(read_npy(at("square_root/output_0.npy")).get_float(0), std::sqrt(2.0), 1e-12);
  EXPECT_NEAR(read_npy(at("softmax/output_0.npy")).get_float(0), 0.25, 1e-6);
}

}  // namespace
}  // namespace rlx
