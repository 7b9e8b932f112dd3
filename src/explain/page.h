// The page that shows an explanation: page/page.html with its style, its script and the document in it.
#pragma once

#include <string>
#include <string_view>

namespace rlx::explaining {

// The files of page/, as cmake/EmbedText.cmake has them in the library.
extern const std::string_view kPageHtml, kPageCss, kPageJs, kLayoutJs, kGraphJs, kTablesJs;

// `title` may be anything; `json` must be a JSON document.
std::string page(std::string_view title, std::string_view json);

}  // namespace rlx::explaining
