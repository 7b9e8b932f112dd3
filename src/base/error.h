// Errors: one exception class for everything that ends a request.
//
//   user_check(axis < rank, "axis-range",
//              "reduce_sum: axis {} is out of range for {}", axis, type);
//
// Kinds say whose fault it is; codes are stable words that tests and callers may switch on.
// Expected answers ("cannot fuse", "kernel does not apply") are not exceptions: see decision.h.
//
// Memory that runs out is Error(resource, "out-of-memory") too: what the library calls from outside
// goes through within_memory(), which turns std::bad_alloc into it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

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
  // Copies share what they say: an exception is copied where there may be no memory.
  Error(const Error&) noexcept = default;
  Error& operator=(const Error&) noexcept = default;

  const char* what() const noexcept override;
  const std::string& text() const { return says_->text; }  // as what(), zeros in names included
  ErrorKind kind() const { return says_->kind; }
  const std::string& code() const { return says_->code; }
  const std::string& message() const { return says_->message; }

  // Where it happened: a node of a graph (`%7 add`), or a byte offset / line:column of a file.
  const std::string& where() const { return says_->where; }
  Error at(const std::string& where) const;

 private:
  struct Says {
    ErrorKind kind;
    std::string code, message, where, text;
  };
  std::shared_ptr<const Says> says_;
};

[[noreturn]] void raise(ErrorKind kind, std::string_view code, std::string message);
[[noreturn]] void raise_out_of_memory();  // allocates nothing
[[noreturn]] void raise(ErrorKind kind, std::string_view code, fmt::string_view format,
                        fmt::format_args args);

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, std::string_view code, fmt::format_string<Args...> format,
                       Args&&... args) {
  raise(kind, code, format, fmt::make_format_args(args...));
}

// What f returns; an allocation that fails in it is Error(resource, "out-of-memory").
template <class F>
decltype(auto) within_memory(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const std::bad_alloc&) {
    raise_out_of_memory();
  } catch (const std::length_error&) {  // a container of more elements than can be addressed
    raise_out_of_memory();
  }
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
