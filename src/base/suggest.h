// What a misspelt name probably means.
//
//   fail(..., "unknown op {}{}", name, did_you_mean(name, names));   // "; did you mean softmax?"
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rlx {

// How many letters must be put in, left out, replaced or swapped with their neighbour (each letter
// at most once) to make one word the other.
size_t edit_distance(std::string_view a, std::string_view b);

// The nearest candidate, the first of equals, as the end of a message; empty where none is near: at
// most a third of the word's letters are wrong, and at least one may be.
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates);

}  // namespace rlx
