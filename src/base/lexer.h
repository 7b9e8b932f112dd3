// Lexer: a cursor over text with line and column, for the IR parser and attribute values.
//
//   Lexer lex("axes=[0, 1]");
//   lex.word();  lex.expect("=");  ...
//
// Every mistake raises Error(data) with code "parse" and where() == "line:column".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "rlx/base/error.h"

namespace rlx {

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  bool done();                       // only white space and comments are left
  bool peek(std::string_view mark);  // the next characters are `mark`
  bool accept(std::string_view mark);
  void expect(std::string_view mark);
  std::string_view word();  // [A-Za-z_][A-Za-z0-9_.]*
  bool at_word();
  std::string quoted();            // "..." with \" \\ \n \t \xNN
  int64_t integer();               // optional minus, decimal
  double number();                 // decimal, inf, -inf, nan, nan:0x<bits>
  std::string_view until_space();  // letters and digits up to anything else
  size_t remaining() const { return text_.size() - at_; }

  [[noreturn]] void error(std::string message);

  // Nesting guard: input must not drive recursion deeper than this.
  static constexpr int kMaxDepth = 64;
  int depth = 0;

 private:
  void skip_space();
  std::string_view text_;
  size_t at_ = 0;
};

std::string quote(std::string_view text);
std::string number_text(double value);  // reads back to the same bits

}  // namespace rlx
