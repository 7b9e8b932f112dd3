#include "rlx/explain/page.h"

#include "rlx/base/printable.h"
#include "rlx/explain/explain.h"
#include "rlx/explain/graph_json.h"

namespace rlx {

namespace explaining {

namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : printable(text))
    out += c == '&'   ? "&amp;"
           : c == '<' ? "&lt;"
           : c == '>' ? "&gt;"
           : c == '"' ? "&quot;"
                      : std::string(1, c);
  return out;
}

// In a script element nothing but "</script" and "<!--" means anything; in JSON '<' stands in strings only.
std::string in_script(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (char c : json) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

void put(std::string& page, std::string_view mark, std::string_view text) {
  const size_t at = page.find(mark);
  check(at != page.npos, "the page lacks {}", mark);
  page.replace(at, mark.size(), text);
}

}  // namespace

std::string page(std::string_view title, std::string_view json) {
  std::string out(kPageHtml);
  put(out, "/*STYLE*/", kPageCss);
  put(out, "/*SCRIPT*/", fmt::format("{}{}{}{}", kPageJs, kLayoutJs, kGraphJs, kTablesJs));
  put(out, "<!--TITLE-->", escaped(title));
  put(out, "\"DATA\"", in_script(json));  // last: nothing is looked for in it
  return out;
}

}  // namespace explaining

std::string Explanation::html() const {
  const auto document = explaining::Json::parse(json_);
  return explaining::page(document.at("name").get<std::string>(), json_);
}

}  // namespace rlx
