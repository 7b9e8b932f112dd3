// Types of ours in messages: "{}" prints what to_string says, and takes no further specification.
//
//   template <>
//   struct fmt::formatter<rlx::Dim> : rlx::TextFormatter {
//     auto format(const rlx::Dim& d, fmt::format_context& c) const { return put(c, d.to_string()); }
//   };
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace rlx {

// No template: fmt's own formatter of strings would be compiled in every file that prints a shape.
struct TextFormatter {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  static fmt::format_context::iterator put(fmt::format_context& context, std::string_view text);
};

}  // namespace rlx
