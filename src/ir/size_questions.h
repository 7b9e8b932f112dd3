// SizeQuestions: decisions that depend on sizes, taken before the sizes are known.
//
// Whoever cuts a program into kernels asks "is this size at most that one?". Where the polynomials tell, they answer.
// Where they do not, both ways are gone: what asks is run once for every sequence of answers, and when the sizes are
// known the one whose answers are right is taken. Hints of sizes (size_hint.h) answer some questions more.
//
//   auto ways = all_answers([&](SizeQuestions& q) { return cut(region, q); });   // at least one
//   const Cut& cut = at(ways, sizes);
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "rlx/base/error.h"
#include "rlx/ir/shape.h"

namespace rlx {

// While one lives, these hints and no others are those of the program that this thread compiles: what is asked meanwhile is
// answered by them, too. They must outlive it.
class HintScope {
 public:
  explicit HintScope(const SizeHints& hints);
  ~HintScope();
  HintScope(const HintScope&) = delete;

 private:
  const SizeHints* outer_;
};

class SizeQuestions {
 public:
  struct Asked {
    Dim a, b;
    bool answer = false;  // a <= b
    bool holds(const DimBinding& sizes) const { return is_at_most(a, b, sizes) == answer; }
  };

  SizeQuestions() = default;
  // Gives these answers first, then yes.
  explicit SizeQuestions(std::vector<Asked> script) : asked_(std::move(script)) {}

  // Whether a <= b. Symbols are taken for sizes of at least 1; what is made by the answer must be right for 0, too.
  bool at_most(const Dim& a, const Dim& b);
  bool less(const Dim& a, const Dim& b) { return at_most(a + Dim(1), b); }

  const std::vector<Asked>& asked() const { return asked_; }
  // What is certain, by the hints of the scope; nullopt: it depends on the sizes.
  static std::optional<bool> known(const Dim& a, const Dim& b);
  static bool is_at_most(const Dim& a, const Dim& b, const DimBinding& sizes) {
    return a.bind(sizes).value() <= b.bind(sizes).value();
  }

 private:
  std::vector<Asked> asked_;
  size_t next_ = 0;
};

template <class T>
struct SizeWay {
  std::vector<SizeQuestions::Asked> asked;
  T made;
};

// One per sequence of answers. More than kMaxWays raise Error(unsupported): there is no code for all sizes then, but for
// each its own.
inline constexpr size_t kMaxWays = 64;
template <class Make>
auto all_answers(Make&& make) {
  std::vector<SizeWay<decltype(make(std::declval<SizeQuestions&>()))>> ways;
  std::vector<SizeQuestions::Asked> script;
  for (;;) {
    SizeQuestions q(script);
    auto made = make(q);
    script = q.asked();
    ways.push_back({script, std::move(made)});
    if (ways.size() > kMaxWays)
      throw Error(ErrorKind::unsupported, "size-ways",
                  fmt::format("sizes decide about more than {} ways to run one kernel", kMaxWays));
    while (!script.empty() && !script.back().answer) script.pop_back();  // both were given
    if (script.empty()) return ways;
    script.back().answer = false;
  }
}

template <class T>
const T& at(const std::vector<SizeWay<T>>& ways, const DimBinding& sizes) {
  const auto holds = [&](const SizeQuestions::Asked& asked) { return asked.holds(sizes); };
  const auto right = std::find_if(ways.begin(), ways.end(), [&](const SizeWay<T>& way) {
    return std::all_of(way.asked.begin(), way.asked.end(), holds);
  });
  check(right != ways.end(), "no way for these sizes");
  return right->made;
}

}  // namespace rlx
