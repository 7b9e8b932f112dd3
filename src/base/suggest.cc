#include "rlx/base/suggest.h"

#include <algorithm>

namespace rlx {

size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table of distances between the beginnings of both words.
  std::vector<size_t> before, above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::move(above);
    above = std::move(row);
    row.assign(b.size() + 1, i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates) {
  constexpr size_t kLongest = 100;  // a longer one comes from no keyboard, and the table is square
  if (word.size() > kLongest) return {};
  size_t best = std::max<size_t>(1, word.size() / 3) + 1;
  std::string_view nearest;
  for (std::string_view c : candidates) {
    if (c.empty() || c.size() > word.size() + best || word.size() > c.size() + best) continue;
    const size_t distance = edit_distance(word, c);
    if (distance < best && distance < c.size()) best = distance, nearest = c;
  }
  return nearest.empty() ? "" : "; did you mean " + std::string(nearest) + "?";
}

}  // namespace rlx
