// ByteReader: a cursor over bytes from outside. Every length is compared with the bytes left before
// use.
//
//   ByteReader r(bytes, "checkpoint w.ckpt");
//   uint32_t n = r.u32();  std::string_view name = r.take(n);
//
// Raises Error(data, "truncated") where the bytes end too early; r.error(...) raises with the
// place, "byte 17".
#pragma once

#include <bit>
#include <cstring>
#include <string>
#include <string_view>

#include "rlx/base/checked.h"
#include "rlx/ir/tensor.h"

namespace rlx {

static_assert(std::endian::native == std::endian::little,
              "files are little-endian and read as they are");

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

  template <class... Args>
  [[noreturn]] void error(std::string_view code, fmt::format_string<Args...> format,
                          Args&&... args) const {
    error_at(at_, code, fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void error_at(size_t offset, std::string_view code,
                             const std::string& message) const {
    throw Error(ErrorKind::data, std::string(code), fmt::format("{}: {}", what_, message))
        .at(fmt::format("byte {}", offset));
  }

 private:
  template <class T>
  T number() {
    T out;
    take(sizeof(T)).copy(reinterpret_cast<char*>(&out), sizeof(T));
    return out;
  }
  std::string_view bytes_;
  std::string what_;
  size_t at_ = 0;
};

// Elements and bytes of a tensor of these sizes, or nullopt: a negative size, more elements than
// 2^53 or more bytes than 2^48 (counting a zero as one, so that no product on the way overflows).
std::optional<int64_t> checked_tensor_bytes(DType dtype, const Ints& sizes);

// The tensor made of the bytes at the reader's place. A bool that is neither 0 nor 1 raises "bool".
Tensor read_tensor_data(ByteReader& r, DType dtype, Ints sizes);

}  // namespace rlx
