#include "error_sites.h"

#include <algorithm>
#include <cctype>
#include <optional>

namespace rlx::testing {

namespace {

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)); }
bool is_word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// The end of the string (raw ones too) or character literal that begins at `at`.
size_t skip_quoted(std::string_view s, size_t at) {
  const char quote = s[at];
  if (quote == '"' && at > 0 && s[at - 1] == 'R') {
    const size_t open = s.find('(', at);
    const std::string close = ")" + std::string(s.substr(at + 1, open - at - 1)) + "\"";
    return std::min(s.find(close, at), s.size() - close.size()) + close.size();
  }
  for (++at; at < s.size() && s[at] != quote; ++at) at += s[at] == '\\';
  return std::min(at + 1, s.size());
}

// An apostrophe between digits or letters separates digits (1'000).
bool begins_quoted(std::string_view s, size_t at) {
  return s[at] == '"' || (s[at] == '\'' && (at == 0 || !is_word_char(s[at - 1])));
}

// Comments become spaces; lines stay where they are.
std::string without_comments(std::string_view s) {
  std::string out(s);
  for (size_t at = 0; at < s.size();) {
    if (begins_quoted(s, at)) {
      at = skip_quoted(s, at);
    } else if (s.substr(at, 2) == "//" || s.substr(at, 2) == "/*") {
      const bool line = s[at + 1] == '/';
      const size_t close = s.find(line ? "\n" : "*/", at + 2);
      const size_t end = close == s.npos ? s.size() : close + (line ? 0 : 2);
      for (; at < end; ++at)
        if (s[at] != '\n') out[at] = ' ';
    } else {
      ++at;
    }
  }
  return out;
}

// Words of lower-case letters and digits, joined by hyphens; the first begins with a letter.
bool is_code(const std::string& text) {
  const auto is_word = [](char c) { return ('a' <= c && c <= 'z') || ('0' <= c && c <= '9'); };
  if (text.empty() || text[0] < 'a' || text[0] > 'z' || !is_word(text.back())) return false;
  for (size_t i = 1; i < text.size(); ++i)
    if (!is_word(text[i]) && (text[i] != '-' || text[i - 1] == '-')) return false;
  return true;
}

// The strings among the arguments that begin at `at`, neighbours joined. One that begins an argument of the call itself
// is `direct`.
struct Literal {
  std::string text;
  bool direct;
};
std::vector<Literal> arguments(std::string_view s, size_t at) {
  std::vector<Literal> out;
  char before = '(';  // the last character that is no space
  for (int depth = 1; at < s.size() && depth > 0;) {
    if (begins_quoted(s, at)) {
      const size_t end = skip_quoted(s, at);
      const std::string text(s.substr(at + 1, end - at - 2));
      if (before == '"')
        out.back().text += text;
      else if (s[at] == '"')
        out.push_back({text, depth == 1 && (before == '(' || before == ',')});
      before = s[at];
      at = end;
      continue;
    }
    const char c = s[at++];
    depth += c == '(' || c == '[' || c == '{';
    depth -= c == ')' || c == ']' || c == '}';
    if (!is_space(c)) before = c;
  }
  return out;
}

// Source text to what it stands for.
std::string unescaped(const std::string& s) {
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '\\' && i + 1 < s.size()) ++i;
    out += s[i];
  }
  return out;
}

// The function whose parameters the text before `at` lists; empty when it does not.
std::string function_of_parameter(std::string_view s, size_t at) {
  for (int depth = 0; at > 0;) {
    const char c = s[--at];
    if (c == ';' || c == '{' || c == '}') return "";
    depth += c == ')';
    depth -= c == '(';
    if (depth >= 0) continue;
    size_t end = at;
    while (end > 0 && is_space(s[end - 1])) --end;
    size_t begin = end;
    while (begin > 0 && is_word_char(s[begin - 1])) --begin;
    return std::string(s.substr(begin, end - begin));
  }
  return "";
}

// The site that the arguments from `at` on make, when one of them is a code.
std::optional<ErrorSite> read_site(std::string_view text, size_t at) {
  const std::vector<Literal> literals = arguments(text, at);
  for (size_t i = 0; i < literals.size(); ++i)
    if (literals[i].direct && is_code(literals[i].text))
      return ErrorSite{"", 0, literals[i].text,
                       i + 1 < literals.size() ? unescaped(literals[i + 1].text) : ""};
  return std::nullopt;
}

}  // namespace

void ErrorScan::add(const std::string& file, std::string_view source) {
  const std::string& text = sources_.emplace_back(Source{file, without_comments(source)}).text;
  for (std::string_view parameter :
       {"std::string_view code", "std::string code", "const std::string& code"})
    for (size_t at = text.find(parameter); at != text.npos; at = text.find(parameter, at + 1)) {
      const size_t end = at + parameter.size();
      const std::string function =
          end < text.size() && is_word_char(text[end]) ? "" : function_of_parameter(text, at);
      if (!function.empty()) raising_.insert(function);
    }
}

std::vector<ErrorSite> ErrorScan::sites() const {
  std::vector<ErrorSite> out;
  for (const auto& [file, text] : sources_) {
    int line = 1;
    std::string word;
    for (size_t at = 0; at < text.size();) {
      const size_t start = at;
      at = begins_quoted(text, at) ? skip_quoted(text, at) : at + 1;
      line += static_cast<int>(std::count(text.begin() + static_cast<int64_t>(start),
                                          text.begin() + static_cast<int64_t>(at), '\n'));
      const char c = text[start];
      if (is_word_char(c)) {
        if (start == 0 || !is_word_char(text[start - 1])) word.clear();
        word += c;
        continue;
      }
      if (c == '(' && raising_.contains(word))
        if (auto site = read_site(text, at)) {
          site->file = file, site->line = line;
          out.push_back(std::move(*site));
        }
      if (!is_space(c)) word.clear();
    }
  }
  return out;
}

bool may_format_to(std::string_view format, std::string_view message) {
  size_t found = 0;
  std::string part;
  auto next = [&] {
    const size_t at = message.find(part, found);
    found = at + part.size();
    part.clear();
    return at != message.npos;
  };
  for (size_t i = 0; i < format.size(); ++i) {
    const std::string_view two = format.substr(i, 2);
    if (two == "{{" || two == "}}") {
      part += format[i++];
    } else if (format[i] == '{') {
      if (!next()) return false;
      i = std::min(format.find('}', i), format.size());
    } else {
      part += format[i];
    }
  }
  return next();
}

}  // namespace rlx::testing
