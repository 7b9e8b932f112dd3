// Every number in the text of every sample row, one at a time, becomes one at which sizes, offsets and counts go wrong.
// Inference answers with a graph that prints and parses back, or with an Error that blames the data; under UBSan it
// also shows that no arithmetic overflowed on the way.
#include <gtest/gtest.h>

#include <cctype>

#include "../support/samples.h"
#include "rlx/ir/verify.h"
#include "rlx/ops/core.h"

namespace rlx {
namespace {

constexpr const char* kHostile[] = {
    "0", "-1", "2147483648", "4611686018427387904", "9223372036854775807", "-9223372036854775808"};

struct Span {
  size_t at, size;
};

// Whole numbers that stand alone: not parts of names, of decimal fractions or of references such as %3.
std::vector<Span> whole_numbers(const std::string& text) {
  auto digit = [&](size_t i) {
    return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i]));
  };
  auto part_of_word = [&](size_t i) {
    const char c = i < text.size() ? text[i] : ' ';
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '%';
  };
  std::vector<Span> out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!digit(i) || (i > 0 && part_of_word(i - 1))) continue;
    size_t end = i;
    while (digit(end)) ++end;
    const size_t begin = i > 0 && text[i - 1] == '-' ? i - 1 : i;
    if (!part_of_word(end)) out.push_back({begin, end - begin});
    i = end;
  }
  return out;
}

void expect_graph_or_error(const std::string& text) {
  try {
    const Graph g = parse(text);
    verify(g);
    TextStore store;
    const std::string again = print(g, &store);
    EXPECT_TRUE(parse(again, &store) == g) << text;
  } catch (const Error& e) {
    EXPECT_NE(e.kind(), ErrorKind::internal) << e.what() << "\n" << text;
  } catch (const std::exception& e) {
    ADD_FAILURE() << "not an Error: " << e.what() << "\n" << text;
  }
}

TEST(HostileNumbers, InferenceAnswersWithAGraphOrAnError) {
  int64_t tried = 0;
  for (const testing::Sample& s : testing::samples())
    for (const DTypeInfo& d : kDTypes)
      if (const auto c = testing::make_case(s, d.dtype)) {
        const std::string text = print(c->graph);
        for (const Span& n : whole_numbers(text))
          for (const char* hostile : kHostile) {
            std::string changed = text;
            expect_graph_or_error(changed.replace(n.at, n.size, hostile));
            ++tried;
          }
        break;
      }
  EXPECT_GT(tried, 10000);
  RecordProperty("tried", std::to_string(tried));
}

}  // namespace
}  // namespace rlx
