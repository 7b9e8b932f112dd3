#include "rlx/base/bytes.h"

#include "rlx/base/printable.h"

namespace rlx {

size_t utf8_length(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char c = byte(0);
  if (c < 0x80) return c != 0 ? 1 : 0;
  const size_t n = c >= 0xc2 && c < 0xe0   ? 2
                   : c >= 0xe0 && c < 0xf0 ? 3
                   : c >= 0xf0 && c < 0xf5 ? 4
                                           : 0;
  if (n == 0 || s.size() < n) return 0;
  for (size_t i = 1; i < n; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  if ((c == 0xe0 && byte(1) < 0xa0) || (c == 0xed && byte(1) > 0x9f))
    return 0;  // overlong; surrogates
  if ((c == 0xf0 && byte(1) < 0x90) || (c == 0xf4 && byte(1) > 0x8f))
    return 0;  // overlong; past the end
  return n;
}

bool is_utf8(std::string_view s) {
  while (!s.empty()) {
    const size_t n = utf8_length(s);
    if (n == 0) return false;
    s.remove_prefix(n);
  }
  return true;
}

void ByteReader::error_at(size_t offset, std::string_view code, const std::string& message) const {
  throw Error(ErrorKind::data, std::string(code), fmt::format("{}: {}", what_, message))
      .at(fmt::format("byte {}", offset));
}

uint64_t ByteReader::varint() {
  uint64_t out = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const uint8_t byte = u8();
    if (shift == 63 && byte > 1) break;
    out |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte >= 0x80) continue;
    if (byte == 0 && shift > 0) break;
    return out;
  }
  error("varint", "a number is not in its shortest form, or is larger than 64 bits");
}

void ByteWriter::varint(uint64_t v) {
  for (; v >= 0x80; v >>= 7) u8(static_cast<uint8_t>(v | 0x80));
  u8(static_cast<uint8_t>(v));
}

void ByteWriter::text(std::string_view s) {
  user_check(is_utf8(s), "utf8", "{} cannot be written: it is not UTF-8, or has a zero in it",
             quote(s));
  varint(s.size());
  raw(s.data(), s.size());
}

int64_t ByteReader::signed_varint() {
  const uint64_t v = varint();
  return static_cast<int64_t>(v >> 1 ^ (~(v & 1) + 1));
}

std::string_view ByteReader::text() {
  const size_t start = at_;
  const std::string_view out = take(varint());
  if (!is_utf8(out)) error_at(start, "utf8", "a text is not UTF-8, or has a zero in it");
  return out;
}

}  // namespace rlx
