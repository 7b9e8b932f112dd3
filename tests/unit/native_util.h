// Typed buffers for the tests of the native kernels: values go in and come out as double (or
// complex).
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "rlx/backend/cpu/kernels/isa.h"
#include "rlx/ir/dtype.h"

namespace rlx::cpu::testing {

using Value = std::complex<double>;

// 64-byte-aligned bytes with a guard zone behind them, so that a kernel that writes too far is
// caught.
class Bytes {
 public:
  explicit Bytes(size_t size)
      : size_(size), data_(static_cast<uint8_t*>(std::aligned_alloc(64, room(size)))) {
    std::memset(data_.get(), kGuard, room(size));
  }
  uint8_t* data() { return data_.get(); }
  const uint8_t* data() const { return data_.get(); }
  size_t size() const { return size_; }
  bool guard_intact() const {
    for (size_t i = size_; i < room(size_); ++i) {
      if (data_.get()[i] != kGuard) return false;
    }
    return true;
  }

 private:
  struct Free {
    void operator()(uint8_t* p) const { std::free(p); }
  };
  static constexpr uint8_t kGuard = 0xA5;
  static size_t room(size_t size) { return (size + 63) / 64 * 64 + 256; }
  size_t size_;
  std::unique_ptr<uint8_t, Free> data_;
};

class TypedBuffer {
 public:
  TypedBuffer(DType dtype, int64_t count)
      : dtype_(dtype), count_(count), bytes_(static_cast<size_t>(count) * size_of(dtype)) {}

  void* data() { return bytes_.data(); }
  const void* data() const { return bytes_.data(); }
  int64_t size() const { return count_; }
  DType dtype() const { return dtype_; }
  bool guard_intact() const { return bytes_.guard_intact(); }
  bool same_bits(const TypedBuffer& o) const {
    return std::memcmp(data(), o.data(), bytes_.size()) == 0;
  }

  Value get(int64_t i) const {
    switch (dtype_) {
      case DType::F32:
        return as<float>(i);
      case DType::F64:
        return as<double>(i);
      case DType::I8:
        return as<int8_t>(i);
      case DType::I16:
        return as<int16_t>(i);
      case DType::I32:
        return as<int32_t>(i);
      case DType::I64:
        return static_cast<double>(as<int64_t>(i));
      case DType::U8:
      case DType::Bool:
        return as<uint8_t>(i);
      case DType::U32:
        return as<uint32_t>(i);
      case DType::C64:
        return Value(as<std::complex<float>>(i));
      default:
        return info(dtype_).narrow->to_float(size_of(dtype_) == 1 ? as<uint8_t>(i)
                                                                  : as<uint16_t>(i));
    }
  }

  void set(int64_t i, Value v) {
    switch (dtype_) {
      case DType::F32:
        return put(i, static_cast<float>(v.real()));
      case DType::F64:
        return put(i, v.real());
      case DType::I8:
        return put(i, static_cast<int8_t>(static_cast<int64_t>(v.real())));
      case DType::I16:
        return put(i, static_cast<int16_t>(static_cast<int64_t>(v.real())));
      case DType::I32:
        return put(i, static_cast<int32_t>(static_cast<int64_t>(v.real())));
      case DType::I64:
        return put(i, static_cast<int64_t>(v.real()));
      case DType::U8:
        return put(i, static_cast<uint8_t>(static_cast<int64_t>(v.real())));
      case DType::Bool:
        return put(i, static_cast<uint8_t>(v.real() != 0));
      case DType::U32:
        return put(i, static_cast<uint32_t>(static_cast<int64_t>(v.real())));
      case DType::C64:
        return put(i, std::complex<float>(v));
      default: {
        const uint16_t bits = info(dtype_).narrow->from_double(v.real());
        return size_of(dtype_) == 1 ? put(i, static_cast<uint8_t>(bits)) : put(i, bits);
      }
    }
  }

  // Floats in [-1, 1], integers in [-9, 9] (unsigned: [0, 9]), bools.
  void fill_random(std::mt19937& random) {
    std::uniform_real_distribution<double> real(-1, 1);
    std::uniform_int_distribution<int> whole(is_int(dtype_) && info(dtype_).is_signed ? -9 : 0, 9);
    for (int64_t i = 0; i < count_; ++i) {
      if (is_bool(dtype_)) {
        set(i, whole(random) < 2);
      } else if (is_int(dtype_)) {
        set(i, whole(random));
      } else {
        set(i, {real(random), real(random)});
      }
    }
  }

 private:
  template <class T>
  T as(int64_t i) const {
    T v;
    std::memcpy(&v, bytes_.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    return v;
  }
  template <class T>
  void put(int64_t i, T v) {
    std::memcpy(bytes_.data() + static_cast<size_t>(i) * sizeof(T), &v, sizeof(T));
  }
  DType dtype_;
  int64_t count_;
  Bytes bytes_;
};

// Unit roundoff of a float dtype (of its parts for c64); 0 for the exact ones.
inline double roundoff(DType d) {
  return is_float(d) || is_complex(d) ? std::ldexp(1.0, -info(d).digits) : 0;
}

// Of the arithmetic: f16 and bf16 are computed in f32.
inline double compute_roundoff(DType d) {
  return d == DType::F16 || d == DType::BF16 ? 0x1p-24 : roundoff(d);
}

inline std::vector<Isa> host_isas() {
  std::vector<Isa> list;
  for (Isa isa : {Isa::Baseline, Isa::Avx2, Isa::Avx512}) {
    if (isa_supported(isa)) list.push_back(isa);
  }
  return list;
}

}  // namespace rlx::cpu::testing
