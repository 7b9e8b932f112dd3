#include "rlx/ir/size_hint.h"

#include "rlx/base/error.h"

namespace rlx {

std::string SizeHint::to_string() const {
  std::string out;
  if (max != kNoMax)
    out = min > 0 ? fmt::format("{} to {}", min, max) : fmt::format("at most {}", max);
  else if (min > 0 || multiple_of == 1)
    out = fmt::format("at least {}", min);
  if (multiple_of != 1)
    out += fmt::format("{}multiples of {}", out.empty() ? "" : ", ", multiple_of);
  return out;
}

void check_hint(const std::string& symbol, const SizeHint& hint) {
  const auto& [min, max, multiple_of] = hint;
  user_check(min >= 0, "hint-range", "the hint for ?{} begins at {}; sizes begin at 0", symbol,
             min);
  user_check(multiple_of >= 1, "hint-range", "the hint for ?{} says multiples of {}", symbol,
             multiple_of);
  user_check(min <= max, "hint-range", "the hint for ?{} is from {} to {}, which is no range",
             symbol, min, max);
  user_check(
      min <= max - max % multiple_of, "hint-range", "the hint for ?{}: {} has no multiple of {}",
      symbol,
      max == SizeHint::kNoMax ? fmt::format("from {} on", min) : fmt::format("{} to {}", min, max),
      multiple_of);
}

void check_by_hints(const SizeHints& hints, const std::map<std::string, int64_t>& sizes) {
  for (const auto& [symbol, hint] : hints)
    if (const auto size = sizes.find(symbol); size != sizes.end())
      user_check(hint.allows(size->second), "dim-hint", "?{} = {}: the hint allows {}", symbol,
                 size->second, hint.to_string());
}

}  // namespace rlx
