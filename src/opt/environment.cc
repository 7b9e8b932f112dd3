#include "rlx/opt/environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "rlx/base/error.h"

namespace rlx::opt {

bool environment_flag(const char* name) {
  const char* const value = std::getenv(name);
  if (!value) return false;
  std::string text(value);
  std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return !text.empty() && text != "0" && text != "false" && text != "off" && text != "no";
}

int64_t environment_number(const char* name, int64_t otherwise) {
  const char* const value = std::getenv(name);
  if (!value || !*value) return otherwise;
  const std::string text(value);
  int64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  user_check(status == std::errc() && end == text.data() + text.size(), "environment",
             "{} is a whole number, not \"{}\"", name, text);
  return number;
}

}  // namespace rlx::opt
