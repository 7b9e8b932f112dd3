// Errors: one exception class for everything that ends a request.
//
//   user_check(axis < rank, "axis-range",
//              "reduce_sum: axis {} is out of range for {}", axis, type);
//
// Kinds say whose fault it is; codes are stable words that tests and callers may switch on.
// Expected answers ("cannot fuse", "kernel does not apply") are not exceptions: see decision.h.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

namespace rlx {

enum class ErrorKind : uint8_t {
  user,         // the caller asked for something that is not allowed
  data,         // bytes or text from outside are malformed
  unsupported,  // a valid request that this build or device does not serve
  resource,     // memory, disk, a budget
  device,       // a device or a library below us failed
  internal,     // our own invariant is broken
};

std::string_view name(ErrorKind kind);

class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string code, std::string message);

  const char* what() const noexcept override;
  ErrorKind kind() const { return kind_; }
  const std::string& code() const { return code_; }
  const std::string& message() const { return message_; }

  // Where it happened: a node of a graph (`%7 add`), or a byte offset / line:column of a file.
  const std::string& where() const { return where_; }
  Error at(const std::string& where) const;

 private:
  ErrorKind kind_;
  std::string code_;
  std::string message_;
  std::string where_;
  std::string text_;
};

[[noreturn]] void raise(ErrorKind kind, std::string_view code, std::string message);
[[noreturn]] void raise(ErrorKind kind, std::string_view code, fmt::string_view format,
                        fmt::format_args args);

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, std::string_view code, fmt::format_string<Args...> format,
                       Args&&... args) {
  raise(kind, code, format, fmt::make_format_args(args...));
}

// The caller's mistake.
template <class... Args>
void user_check(bool ok, std::string_view code, fmt::format_string<Args...> format,
                Args&&... args) {
  if (!ok) [[unlikely]]
    raise(ErrorKind::user, code, format, fmt::make_format_args(args...));
}

// Malformed bytes or text.
template <class... Args>
void data_check(bool ok, std::string_view code, fmt::format_string<Args...> format,
                Args&&... args) {
  if (!ok) [[unlikely]]
    raise(ErrorKind::data, code, format, fmt::make_format_args(args...));
}

// Our own invariant; never depends on user input.
template <class... Args>
void check(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) [[unlikely]]
    raise(ErrorKind::internal, "internal", format, fmt::make_format_args(args...));
}

}  // namespace rlx
