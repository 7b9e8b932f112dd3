#include "rlx/base/lexer.h"

#include <bit>
#include <cctype>
#include <charconv>
#include <cmath>

namespace rlx {

namespace {
bool word_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool word_part(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
}
}  // namespace

void Lexer::skip_space() {
  while (at_ < text_.size()) {
    if (std::isspace(static_cast<unsigned char>(text_[at_]))) {
      ++at_;
    } else if (text_.substr(at_).starts_with("//")) {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else {
      return;
    }
  }
}

bool Lexer::done() {
  skip_space();
  return at_ == text_.size();
}

bool Lexer::peek(std::string_view mark) {
  skip_space();
  if (!text_.substr(at_).starts_with(mark)) return false;
  // A word must end where the mark ends.
  const size_t end = at_ + mark.size();
  return !(word_part(mark.back()) && end < text_.size() && word_part(text_[end]));
}

bool Lexer::accept(std::string_view mark) {
  if (!peek(mark)) return false;
  at_ += mark.size();
  return true;
}

void Lexer::expect(std::string_view mark) {
  if (!accept(mark)) error(fmt::format("expected '{}'", mark));
}

bool Lexer::at_word() {
  skip_space();
  return at_ < text_.size() && word_start(text_[at_]);
}

std::string_view Lexer::word() {
  if (!at_word()) error("expected a name");
  const size_t start = at_;
  while (at_ < text_.size() && word_part(text_[at_])) ++at_;
  return text_.substr(start, at_ - start);
}

std::string Lexer::quoted() {
  expect("\"");
  std::string out;
  for (;;) {
    if (at_ >= text_.size() || text_[at_] == '\n') error("unterminated string");
    const char c = text_[at_++];
    if (c == '"') return out;
    if (c != '\\') {
      out += c;
      continue;
    }
    if (at_ >= text_.size()) error("unterminated string");
    const char escape = text_[at_++];
    if (escape == 'n')
      out += '\n';
    else if (escape == 't')
      out += '\t';
    else if (escape == '"' || escape == '\\')
      out += escape;
    else if (escape == 'x' && at_ + 2 <= text_.size()) {
      unsigned byte = 0;
      auto [end, status] = std::from_chars(text_.data() + at_, text_.data() + at_ + 2, byte, 16);
      if (status != std::errc() || end != text_.data() + at_ + 2) error("bad \\x escape");
      out += static_cast<char>(byte);
      at_ += 2;
    } else {
      error("unknown escape in string");
    }
  }
}

int64_t Lexer::integer() {
  skip_space();
  int64_t value = 0;
  auto [end, status] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
  if (status == std::errc::result_out_of_range) error("integer does not fit in 64 bits");
  if (status != std::errc()) error("expected an integer");
  at_ = static_cast<size_t>(end - text_.data());
  return value;
}

double Lexer::number() {
  skip_space();
  const bool negative = text_.substr(at_).starts_with("-");
  std::string_view rest = text_.substr(at_ + negative);
  if (rest.starts_with("inf")) {
    at_ += negative + 3;
    return negative ? -INFINITY : INFINITY;
  }
  if (rest.starts_with("nan:0x")) {
    at_ += negative + 6;
    uint64_t bits = 0;
    auto [end, status] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), bits, 16);
    if (status != std::errc()) error("bad NaN bits");
    at_ = static_cast<size_t>(end - text_.data());
    return std::bit_cast<double>(bits);
  }
  if (rest.starts_with("nan")) {
    at_ += negative + 3;
    return std::bit_cast<double>(0x7ff8000000000000ull);
  }
  // from_chars() also knows Infinity, NAN(..) and the like.
  if (rest.empty() || !(std::isdigit(static_cast<unsigned char>(rest[0])) || rest[0] == '.'))
    error("expected a number");
  double value = 0;
  auto [end, status] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
  if (status == std::errc::result_out_of_range) error("number does not fit in a double");
  if (status != std::errc()) error("expected a number");
  at_ = static_cast<size_t>(end - text_.data());
  return value;
}

std::string_view Lexer::until_space() {
  const size_t start = at_;
  while (at_ < text_.size() && word_part(text_[at_])) ++at_;
  return text_.substr(start, at_ - start);
}

void Lexer::error(std::string message) {
  size_t line = 1, column = 1;
  for (size_t i = 0; i < at_ && i < text_.size(); ++i) {
    if (text_[i] == '\n')
      ++line, column = 1;
    else
      ++column;
  }
  std::string_view rest = text_.substr(std::min(at_, text_.size()), 20);
  if (size_t newline = rest.find('\n'); newline != std::string_view::npos)
    rest = rest.substr(0, newline);
  std::string found = rest.empty() ? std::string("the end") : quote(rest);
  throw Error(ErrorKind::data, "parse", fmt::format("{}, found {}", message, found))
      .at(fmt::format("{}:{}", line, column));
}

std::string number_text(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  if (std::isnan(value))
    return bits == 0x7ff8000000000000ull ? "nan" : fmt::format("nan:0x{:x}", bits);
  return fmt::format("{}", value);
}

}  // namespace rlx
