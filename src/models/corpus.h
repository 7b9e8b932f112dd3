// A text as tokens: one per distinct byte; nine tenths to train on, one tenth to validate.
//
//   Corpus c = make_corpus(read_file("shakespeare.txt"), 128);
//   c.train[i] < c.vocab();  c.byte_of[token]
//
// The text is cut into ten equal parts, and the last tenth of each part validates: contiguous
// blocks from all over.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace rlx {

struct Corpus {
  std::vector<int32_t> train, validation;
  std::string byte_of;  // token -> byte, ascending
  uint64_t hash = 0;    // of the text
  int64_t vocab() const { return static_cast<int64_t>(byte_of.size()); }
  int32_t token_of(char byte) const;  // -1 when the text does not have it
  std::string decode(const std::vector<int32_t>& tokens) const;
};

// Raises Error(user, "text-short") when a part has no room for `block` + 1 tokens.
Corpus make_corpus(std::string_view text, int64_t block);

// The project's own documents and sources (*.md, *.h, *.cc below the folder that holds this
// program), in the order of their paths. Raises Error(user, "demo-source") when the sources are not
// there.
std::string demo_text();

}  // namespace rlx
