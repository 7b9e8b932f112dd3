#include "rlx/ir/size_questions.h"

namespace rlx {

bool SizeQuestions::at_most(const Dim& a, const Dim& b) {
  if (const auto answer = known(a, b)) return *answer;
  for (size_t i = 0; i < next_; ++i)
    if (asked_[i].a == a && asked_[i].b == b) return asked_[i].answer;
  if (next_ == asked_.size()) asked_.push_back({a, b, true});
  return asked_[next_++].answer;
}

std::optional<bool> SizeQuestions::known(const Dim& a, const Dim& b) {
  const Dim rest = b - a;
  if (const auto n = rest.static_value()) return *n >= 0;
  if (const auto low = rest.least(); low && *low >= 0) return true;
  if (const auto low = (a - b).least(); low && *low > 0) return false;
  return std::nullopt;
}

}  // namespace rlx
