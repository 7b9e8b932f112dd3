// Text from outside, made fit to be shown; and messages about text.
#pragma once

#include <string>
#include <string_view>

#include "rlx/base/lexer.h"

namespace rlx {

// The text with everything escaped that does something to a terminal instead of standing in it: \n,
// \t and \xNN for control characters, bytes that are not UTF-8 and what changes the direction of
// writing. Characters in `keep` stay. All that comes from files and is shown goes through here;
// quote() escapes the same.
std::string printable(std::string_view text, std::string_view keep = "");

// The length of the valid UTF-8 character, not zero, at the front of a text that is not empty; or 0.
size_t utf8_length(std::string_view s);

// Raises Error(data, "parse") at the next word or mark of `place`, a copy of the lexer that was made
// there. Unlike Lexer::error() it does not say what stands there: the message does.
[[noreturn]] void error_at(Lexer place, const std::string& message);

}  // namespace rlx
