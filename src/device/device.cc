#include "rlx/device/device.h"

#include <algorithm>
#include <charconv>

#include "rlx/base/error.h"
#include "rlx/base/hash.h"

namespace rlx {

Device::Device(std::string_view text) {
  const size_t colon = text.find(':');
  kind = text.substr(0, colon);
  const bool is_word = !kind.empty() && std::all_of(kind.begin(), kind.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
  bool is_number = true;
  if (colon != std::string_view::npos) {
    const char *begin = text.data() + colon + 1, *end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(begin, end, ordinal);
    is_number = begin != end && error == std::errc() && rest == end && ordinal >= 0;
  }
  user_check(is_word && is_number, "device-name",
             "\"{}\" names no device; names look like \"cpu\" and \"cuda:1\"", text);
}

std::string name(const Device& d) {
  return d.ordinal == 0 ? d.kind : fmt::format("{}:{}", d.kind, d.ordinal);
}

uint64_t hash(const Device& d) {
  return mix(hash_bytes(d.kind.data(), d.kind.size(), 0), static_cast<uint64_t>(d.ordinal));
}

}  // namespace rlx
