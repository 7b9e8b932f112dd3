#include "rlx/ir/size_questions.h"

namespace rlx {

namespace {

const SizeHints kNoHints;
thread_local const SizeHints* hints_now = &kNoHints;

}  // namespace

HintScope::HintScope(const SizeHints& hints) : outer_(std::exchange(hints_now, &hints)) {}
HintScope::~HintScope() { hints_now = outer_; }

bool SizeQuestions::at_most(const Dim& a, const Dim& b) {
  if (const auto answer = known(a, b)) return *answer;
  // What was answered answers more: 4 * ?n is too much, and so 8 * ?n is.
  for (size_t i = 0; i < next_; ++i) {
    const Asked& before = asked_[i];
    if (before.answer ? known(a + before.b, b + before.a).value_or(false)
                      : known(before.a + b, before.b + a).value_or(false))
      return before.answer;
  }
  if (next_ == asked_.size()) asked_.push_back({a, b, true});
  return asked_[next_++].answer;
}

std::optional<bool> SizeQuestions::known(const Dim& a, const Dim& b) {
  const Dim rest = b - a;
  if (const auto n = rest.static_value()) return *n >= 0;
  if (const auto low = rest.least(*hints_now); low && *low >= 0) return true;
  if (const auto low = (a - b).least(*hints_now); low && *low > 0) return false;
  return std::nullopt;
}

}  // namespace rlx
