// Checked arithmetic: sizes that come from users or files never wrap silently.
#pragma once

#include <cstdint>
#include <optional>

#include "rlx/base/error.h"

namespace rlx {

inline std::optional<int64_t> checked_mul(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

inline std::optional<int64_t> checked_add(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

// a*b, or an error that names what was being computed.
inline int64_t mul_or_fail(int64_t a, int64_t b, std::string_view what) {
  auto r = checked_mul(a, b);
  user_check(r.has_value(), "size-overflow", "{}: {} * {} does not fit in 64 bits", what, a, b);
  return *r;
}

inline int64_t add_or_fail(int64_t a, int64_t b, std::string_view what) {
  auto r = checked_add(a, b);
  user_check(r.has_value(), "size-overflow", "{}: {} + {} does not fit in 64 bits", what, a, b);
  return *r;
}

// len bytes at off lie inside size bytes; the one form of this test.
inline bool in_range(uint64_t off, uint64_t len, uint64_t size) {
  return len <= size && off <= size - len;
}

inline int64_t align_up(int64_t n, int64_t alignment) {
  const int64_t over = n % alignment;
  return over ? add_or_fail(n, alignment - over, "size") : n;
}

// For a >= 0 and b > 0; never overflows.
inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

}  // namespace rlx
