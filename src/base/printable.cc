#include "rlx/base/printable.h"

#include <algorithm>

namespace rlx {

namespace {

// Characters that stand in a text; those left out control the terminal or turn the writing round.
bool stands_in_text(std::string_view c) {
  if (c.size() == 1) return c[0] >= 0x20 && c[0] != 0x7f;
  if (c.size() == 2) return c >= "\xc2\xa0" && c != "\xd8\x9c";
  const auto between = [&](const char* low, const char* high) { return c >= low && c <= high; };
  return !between("\xe2\x80\x8e", "\xe2\x80\x8f") && !between("\xe2\x80\xa8", "\xe2\x80\xae") &&
         !between("\xe2\x81\xa6", "\xe2\x81\xa9") && c != "\xef\xbb\xbf";
}

void append_printable(std::string& out, std::string_view text, std::string_view keep,
                      std::string_view escaped) {
  while (!text.empty()) {
    const size_t length = utf8_length(text), taken = std::max<size_t>(length, 1);
    const std::string_view c = text.substr(0, taken);
    text.remove_prefix(taken);
    if (taken == 1 && escaped.find(c[0]) != std::string_view::npos)
      (out += '\\') += c;
    else if ((length > 0 && stands_in_text(c)) ||
             (taken == 1 && keep.find(c[0]) != std::string_view::npos))
      out += c;
    else if (c == "\n" || c == "\t")
      out += c == "\n" ? "\\n" : "\\t";
    else
      for (char byte : c) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
}

}  // namespace

std::string printable(std::string_view text, std::string_view keep) {
  std::string out;
  append_printable(out, text, keep, "");
  return out;
}

std::string quote(std::string_view text) {
  std::string out = "\"";
  append_printable(out, text, "", "\"\\");
  return out + '"';
}

void error_at(Lexer place, const std::string& message) {
  try {
    place.done();  // to where the word begins
    place.error(message);
  } catch (const Error& e) {
    throw Error(e.kind(), e.code(), message).at(e.where());
  }
}

}  // namespace rlx
