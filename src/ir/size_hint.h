// SizeHint: what is known of a symbol's size before the size is.
//
//   CompileOptions options{.hints = {{"n", {.min = 8, .max = 512, .multiple_of = 8}}}};
//
// A program never needs one. With one, fewer forms of kernels are made (size_questions.h), and other sizes are refused.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>

namespace rlx {

struct SizeHint {
  static constexpr int64_t kNoMax = std::numeric_limits<int64_t>::max();
  int64_t min = 0, max = kNoMax, multiple_of = 1;

  bool allows(int64_t size) const { return size >= min && size <= max && size % multiple_of == 0; }
  // The smallest and the largest size that is allowed. Of 0 nothing is computed, so least() is then 1.
  int64_t least() const {
    return std::max<int64_t>(min + (multiple_of - min % multiple_of) % multiple_of, 1);
  }
  int64_t most() const { return max == kNoMax ? max : max - max % multiple_of; }
  std::string to_string() const;  // "8 to 512, multiples of 8"
  bool operator==(const SizeHint&) const = default;
};

using SizeHints = std::map<std::string, SizeHint>;  // by symbol

// Raises Error(user, "hint-range") for a hint that allows no size.
void check_hint(const std::string& symbol, const SizeHint& hint);
// Raises Error(user, "dim-hint") for sizes that their hints do not allow; those without a hint are right.
void check_by_hints(const SizeHints& hints, const std::map<std::string, int64_t>& sizes);

}  // namespace rlx
