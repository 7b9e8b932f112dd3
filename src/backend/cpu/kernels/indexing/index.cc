#include "rlx/backend/cpu/kernels/indexing/index.h"

#include "rlx/base/error.h"

namespace rlx::cpu {
namespace {

// Truncates towards zero; anything that is not in (-1, limit) becomes -1 or `limit`, both out of
// range.
template <class F>
int64_t from_float(F value, int64_t limit) {
  if (!(value > F{-1})) return -1;
  return value < static_cast<F>(limit) ? static_cast<int64_t>(value) : limit;
}

int64_t raw(const void* data, DType dtype, int64_t i, int64_t limit) {
  switch (dtype) {
    case DType::I64:
      return static_cast<const int64_t*>(data)[i];
    case DType::I32:
      return static_cast<const int32_t*>(data)[i];
    case DType::U32:
      return static_cast<const uint32_t*>(data)[i];
    case DType::I16:
      return static_cast<const int16_t*>(data)[i];
    case DType::I8:
      return static_cast<const int8_t*>(data)[i];
    case DType::U8:
    case DType::Bool:
      return static_cast<const uint8_t*>(data)[i];
    case DType::F32:
      return from_float(static_cast<const float*>(data)[i], limit);
    case DType::F64:
      return from_float(static_cast<const double*>(data)[i], limit);
    case DType::F16:
    case DType::BF16:
      return from_float(info(dtype).narrow->to_float(static_cast<const uint16_t*>(data)[i]), limit);
    default:
      break;
  }
  fail(ErrorKind::internal, "internal", "an index of dtype {}", dtype);
}

}  // namespace

int64_t Index::operator()(int64_t i) const {
  const int64_t value = raw(data_, dtype_, i, limit_);
  if (value >= 0 && value < limit_) return value;
  if (flag_) __atomic_store_n(flag_, 1u, __ATOMIC_RELAXED);
  return value < 0 ? 0 : limit_ - 1;
}

}  // namespace rlx::cpu
