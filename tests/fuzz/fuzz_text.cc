// Mutated graph texts: the parser answers with a graph that prints and parses back, compiles and
// runs, or with an Error.
#include <algorithm>
#include <cctype>

#include "../support/random_graph.h"
#include "../support/samples.h"
#include "fuzz.h"
#include "rlx/ir/verify.h"
#include "rlx/ops/core.h"
#include "run_program.h"

namespace rlx::fuzz {
namespace {

// Words, numbers and single characters.
std::vector<std::string> tokens_of(const std::string& s) {
  auto word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
  };
  std::vector<std::string> out;
  for (size_t i = 0; i < s.size();) {
    size_t end = i + 1;
    if (word(s[i]))
      while (end < s.size() && word(s[end])) ++end;
    out.push_back(s.substr(i, end - i));
    i = end;
  }
  return out;
}

std::string join(const std::vector<std::string>& tokens) {
  std::string out;
  for (const std::string& t : tokens) out += t;
  return out;
}

bool is_number(const std::string& t) {
  return std::isdigit(static_cast<unsigned char>(t[0])) || (t.size() > 1 && t[0] == '-');
}

const std::string& random_word(Random& r) {
  static const std::vector<std::string> words = [] {
    std::vector<std::string> list = {
        "graph",  "return", "update", "input",       "constant",
        "param",  "true",   "false",  "none",        "?n",
        "2*?n+1", "[]",     "floor",  "floor(?n/2)", "floor((?m+3*?n+1)/4)",
        "{",      "}",      "\"",     "%",           "@"};
    for (const auto& e : op_table().entries()) {
      list.emplace_back(e.op->name);
      for (const FieldInfo& f : e.op->attr_type->fields) list.emplace_back(f.name);
    }
    for (const DTypeInfo& d : kDTypes) list.emplace_back(d.name);
    return list;
  }();
  return words[pick(r, words.size())];
}

std::string mutate_tokens(Random& r, const std::string& s) {
  std::vector<std::string> t = tokens_of(s);
  if (t.empty()) return s;
  const size_t at = pick(r, t.size());
  switch (pick(r, 5)) {
    case 0: {  // another number, near `at`
      for (size_t k = 0; k < t.size(); ++k)
        if (std::string& n = t[(at + k) % t.size()]; is_number(n)) {
          n = bad_numbers()[pick(r, bad_numbers().size())];
          break;
        }
      break;
    }
    case 1:
      for (size_t k = 0; k < t.size(); ++k)
        if (std::string& w = t[(at + k) % t.size()];
            std::isalpha(static_cast<unsigned char>(w[0]))) {
          w = random_word(r);
          break;
        }
      break;
    case 2:
      t.erase(t.begin() + static_cast<int64_t>(at));
      break;
    case 3:
      std::swap(t[at], t[pick(r, t.size())]);
      break;
    default:
      t.insert(t.begin() + static_cast<int64_t>(at), random_word(r));
      break;
  }
  return join(t);
}

std::string mutate_lines(Random& r, const std::string& s, const std::string& other) {
  auto split = [](const std::string& text) {
    std::vector<std::string> lines;
    for (size_t i = 0; i < text.size();) {
      const size_t end = std::min(text.find('\n', i), text.size() - 1) + 1;
      lines.push_back(text.substr(i, end - i));
      i = end;
    }
    return lines;
  };
  std::vector<std::string> a = split(s), b = split(other);
  if (a.empty() || b.empty()) return s;
  const size_t at = pick(r, a.size());
  switch (pick(r, 4)) {
    case 0:
      a.erase(a.begin() + static_cast<int64_t>(at));
      break;
    case 1:
      a.insert(a.begin() + static_cast<int64_t>(at), b[pick(r, b.size())]);
      break;
    case 2:
      std::swap(a[at], a[pick(r, a.size())]);
      break;
    default:
      a[at] = b[pick(r, b.size())];
      break;
  }
  return join(a);
}

std::string mutate(Random& r, const std::string& s, const std::vector<std::string>& seeds) {
  const size_t dice = pick(r, 20);
  if (dice < 11) return mutate_tokens(r, s);
  if (dice < 15) return mutate_lines(r, s, seeds[pick(r, seeds.size())]);
  if (dice < 16) {  // brackets, many deep
    const std::string open =
        std::vector<std::string>{"[", "{", "(", "graph @a {", "2*"}[pick(r, 5)];
    std::string deep;
    for (size_t n = pick(r, 4000); n > 0; --n) deep += open;
    std::string out = s;
    return out.insert(pick(r, s.size()), deep);
  }
  return mutate_bytes(r, s);
}

void target(const std::string& text) {
  const Graph g = parse(text);
  verify(g);
  TextStore store;
  const std::string again = print(g, &store);
  if (!(parse(again, &store) == g))
    fail(ErrorKind::internal, "round-trip", "parse(print(g)) differs from g");
  compile_and_run_some(g);
}

std::vector<std::string> seeds() {
  std::vector<std::string> out;
  for (const testing::Sample& s : testing::samples())
    for (const DTypeInfo& d : kDTypes)
      if (auto c = testing::make_case(s, d.dtype)) {
        out.push_back(print(c->graph));
        break;
      }
  for (uint64_t i = 0; i < 40; ++i) {
    std::string text = print(testing::random_program(i).graph);
    if (text.size() < 20000) out.push_back(std::move(text));
  }
  Builder b("symbols");
  const Dim n = Dim::symbol("n"), m = Dim::symbol("m");
  b.output(
      op::add(b, b.input("x", {DType::F32, {2 * n * m + 1, n}}), b.input("y", {DType::F32, {n}})));
  const Dim half = floor_div(3 * n + m + 1, 2);
  b.output(op::slice(b, b.input("z", {DType::F32, {floor_div(half * half + m, 5), half}}),
                     {{}, {}, {3, 2}}));
  out.push_back(print(b.finish()));
  return out;
}

}  // namespace
}  // namespace rlx::fuzz

int main(int argc, char** argv) {
  return rlx::fuzz::run({rlx::fuzz::seeds(), rlx::fuzz::mutate, rlx::fuzz::target}, argc, argv);
}
