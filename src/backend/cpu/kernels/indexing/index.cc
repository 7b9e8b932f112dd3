#include "rlx/backend/cpu/kernels/indexing/index.h"

#include <algorithm>
#include <type_traits>

#include "rlx/backend/cpu/kernels/visit_dtype.h"

namespace rlx::cpu {
namespace {

// Truncates towards zero; anything that is not in (-1, limit) becomes -1 or `limit`, both out of
// range.
int64_t from_float(double value, int64_t limit) {
  if (!(value > -1)) return -1;
  return value < 0x1p53 ? std::min(static_cast<int64_t>(value), limit) : limit;
}

template <class T>
int64_t whole_number(T value, int64_t) {
  return static_cast<int64_t>(value);
}
int64_t whole_number(float value, int64_t limit) { return from_float(value, limit); }
int64_t whole_number(double value, int64_t limit) { return from_float(value, limit); }
int64_t whole_number(f16_t value, int64_t limit) {
  return from_float(Element<f16_t>::get(value), limit);
}
int64_t whole_number(bf16_t value, int64_t limit) {
  return from_float(Element<bf16_t>::get(value), limit);
}
int64_t whole_number(bool_t value, int64_t) { return value.byte; }

int64_t clamped(int64_t value, int64_t limit) {
  return value < 0 ? 0 : value < limit ? value : limit - 1;
}

}  // namespace

int64_t Index::operator()(int64_t i) const {
  int64_t row;
  read(i, 1, &row);
  return row;
}

void Index::read(int64_t first, int64_t n, int64_t* rows) const {
  bool wrong = false;
  visit_dtype(dtype_, [&]<class T>() {
    if constexpr (std::is_same_v<T, c64_t>) {
      fail(ErrorKind::internal, "internal", "an index of dtype {}", dtype_);
    } else {
      const T* const from = static_cast<const T*>(data_) + first;
      for (int64_t i = 0; i < n; ++i) {
        rows[i] = whole_number(from[i], limit_);
        wrong |= static_cast<uint64_t>(rows[i]) >= static_cast<uint64_t>(limit_);
      }
    }
  });
  if (!wrong) return;
  if (flag_) __atomic_store_n(flag_, 1u, __ATOMIC_RELAXED);
  for (int64_t i = 0; i < n; ++i) rows[i] = clamped(rows[i], limit_);
}

}  // namespace rlx::cpu
