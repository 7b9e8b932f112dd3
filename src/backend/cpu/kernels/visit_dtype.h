// Calls a generic lambda with the storage type (element.h) of a dtype.
//
//   visit_dtype(dtype, [&]<class S>() { run<S>(...); });
#pragma once

#include <utility>

#include "rlx/backend/cpu/kernels/element.h"
#include "rlx/base/error.h"
#include "rlx/ir/dtype.h"

namespace rlx::cpu {

// Those that are computed with as floats.
template <class F>
decltype(auto) visit_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::F32:
      return f.template operator()<float>();
    case DType::F64:
      return f.template operator()<double>();
    case DType::F16:
      return f.template operator()<f16_t>();
    case DType::BF16:
      return f.template operator()<bf16_t>();
    default:
      fail(ErrorKind::internal, "internal", "{} is not a float", dtype);
  }
}

template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::F32:
    case DType::F16:
    case DType::BF16:
    case DType::F64:
      return visit_float(dtype, std::forward<F>(f));
    case DType::I8:
      return f.template operator()<int8_t>();
    case DType::I16:
      return f.template operator()<int16_t>();
    case DType::I32:
      return f.template operator()<int32_t>();
    case DType::I64:
      return f.template operator()<int64_t>();
    case DType::U8:
      return f.template operator()<uint8_t>();
    case DType::U32:
      return f.template operator()<uint32_t>();
    case DType::Bool:
      return f.template operator()<bool_t>();
    case DType::C64:
      return f.template operator()<c64_t>();
    case DType::F8E4M3FN:  // kernels only move these
    case DType::F8E5M2:
      return f.template operator()<uint8_t>();
  }
  __builtin_unreachable();
}

}  // namespace rlx::cpu
