// ByteReader and ByteWriter: numbers, texts and blocks in bytes that come from outside or go there.
//
//   ByteReader r(bytes, "checkpoint w.ckpt");
//   uint32_t n = r.u32();  std::string_view name = r.take(n);
//
// Every length is compared with the bytes left before use. Raises Error(data, "truncated") where
// the bytes end too early; r.error(...) raises with the place, "byte 17". Little-endian.
#pragma once

#include <bit>
#include <cstring>
#include <string>
#include <string_view>

#include "rlx/base/error.h"

namespace rlx {

static_assert(std::endian::native == std::endian::little,
              "files are little-endian and read as they are");

class OpTable;

// Of the language that graphs are written in, as text and as bytes; ir/text.h says what a version changed.
inline constexpr int kLanguageVersion = 2;

// Valid UTF-8 without zero characters.
bool is_utf8(std::string_view s);

class ByteReader {
 public:
  ByteReader(std::string_view bytes, std::string what) : bytes_(bytes), what_(std::move(what)) {}

  size_t offset() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }
  bool done() const { return left() == 0; }

  std::string_view take(uint64_t n) {
    if (n > left()) error("truncated", "{} bytes are wanted, {} are left", n, left());
    const std::string_view out = bytes_.substr(at_, static_cast<size_t>(n));
    at_ += static_cast<size_t>(n);
    return out;
  }
  uint8_t u8() { return number<uint8_t>(); }
  uint16_t u16() { return number<uint16_t>(); }
  uint32_t u32() { return number<uint32_t>(); }
  uint64_t u64() { return number<uint64_t>(); }
  double f64() { return number<double>(); }
  uint64_t varint();        // groups of seven bits, least first, in the shortest form
  int64_t signed_varint();  // 0, -1, 1, -2 .. as 0, 1, 2, 3 ..
  std::string_view text();  // a varint and that many bytes of UTF-8

  template <class... Args>
  [[noreturn]] void error(std::string_view code, fmt::format_string<Args...> format,
                          Args&&... args) const {
    error_at(at_, code, fmt::vformat(format, fmt::make_format_args(args...)));
  }
  [[noreturn]] void error_at(size_t offset, std::string_view code,
                             const std::string& message) const;

  // For graphs inside graphs: the ops they may use, the version of the language they are written in
  // (ir/text.h), and how deep the reader is.
  const OpTable* table = nullptr;
  int version = kLanguageVersion;
  int depth = 0;

 private:
  template <class T>
  T number() {
    T out{};
    take(sizeof(T)).copy(reinterpret_cast<char*>(&out), sizeof(T));
    return out;
  }
  std::string_view bytes_;
  std::string what_;
  size_t at_ = 0;
};

class ByteWriter {
 public:
  std::string out;

  void raw(const void* data, size_t size) { out.append(static_cast<const char*>(data), size); }
  void u8(uint8_t v) { raw(&v, sizeof v); }
  void u32(uint32_t v) { raw(&v, sizeof v); }
  void u64(uint64_t v) { raw(&v, sizeof v); }
  void f64(double v) { raw(&v, sizeof v); }
  void varint(uint64_t v);
  void signed_varint(int64_t v) {
    varint(static_cast<uint64_t>(v) << 1 ^ static_cast<uint64_t>(v >> 63));
  }
  void text(std::string_view s);  // Error(user, "utf8") for what ByteReader::text refuses
};

}  // namespace rlx
