// Tensor: a dense row-major array that owns (shares) its bytes.
//
//   Tensor t = Tensor::from<float>({2, 2}, {1, 2, 3, 4});
//   t.data<float>()[3];  t.sizes();  t.dtype();
//
// Storage is reference-counted: copies share bytes. mutable_data() is for whoever has just made the
// tensor. Raises Error(user): "tensor-dtype" for elements read as another dtype than theirs, and for a
// complex one read as a real number; "tensor-index" for an element that is not there.
#pragma once

#include <complex>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "rlx/ir/shape.h"

namespace rlx {

struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};
struct f8e4m3fn {
  uint8_t bits;
};
struct f8e5m2 {
  uint8_t bits;
};

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::F32;
}
template <>
constexpr DType dtype_of<f16>() {
  return DType::F16;
}
template <>
constexpr DType dtype_of<bf16>() {
  return DType::BF16;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::F64;
}
template <>
constexpr DType dtype_of<int8_t>() {
  return DType::I8;
}
template <>
constexpr DType dtype_of<int16_t>() {
  return DType::I16;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::I32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::I64;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return DType::U8;
}
template <>
constexpr DType dtype_of<uint32_t>() {
  return DType::U32;
}
template <>
constexpr DType dtype_of<bool>() {
  return DType::Bool;
}
template <>
constexpr DType dtype_of<std::complex<float>>() {
  return DType::C64;
}

template <>
constexpr DType dtype_of<f8e4m3fn>() {
  return DType::F8E4M3FN;
}
template <>
constexpr DType dtype_of<f8e5m2>() {
  return DType::F8E5M2;
}

using Complex = std::complex<double>;

class Tensor {
 public:
  Tensor() : Tensor(DType::F32, {0}) {}
  Tensor(DType dtype, Ints sizes);                       // zero-filled
  static Tensor uninitialised(DType dtype, Ints sizes);  // for whoever writes all of it
  static Tensor from_bytes(DType dtype, Ints sizes, const void* bytes, size_t size);
  // Shares memory that holds the elements already.
  static Tensor over(DType dtype, Ints sizes, std::shared_ptr<std::byte[]> data);
  template <class T>
  static Tensor from(Ints sizes, const std::vector<T>& values) {
    return from_bytes(dtype_of<T>(), std::move(sizes), values.data(), values.size() * sizeof(T));
  }
  static Tensor full(DType dtype, Ints sizes, Complex value);
  static Tensor scalar(DType dtype, Complex value) { return full(dtype, {}, value); }

  DType dtype() const { return dtype_; }
  const Ints& sizes() const { return sizes_; }
  int64_t rank() const { return static_cast<int64_t>(sizes_.size()); }
  int64_t elements() const { return elements_; }
  size_t bytes() const { return static_cast<size_t>(elements_) * size_of(dtype_); }
  Type type() const { return {dtype_, Shape::of(sizes_)}; }

  const std::byte* raw() const { return data_.get(); }
  std::byte* mutable_raw() { return data_.get(); }
  const std::shared_ptr<std::byte[]>& storage() const { return data_; }
  template <class T>
  const T* data() const {
    user_check(dtype_of<T>() == dtype_, "tensor-dtype", "a tensor of {} is read as {}", dtype_,
               dtype_of<T>());
    return reinterpret_cast<const T*>(data_.get());
  }
  template <class T>
  T* mutable_data() {
    user_check(dtype_of<T>() == dtype_, "tensor-dtype", "a tensor of {} is written as {}", dtype_,
               dtype_of<T>());
    return reinterpret_cast<T*>(data_.get());
  }
  Tensor reshaped(Ints sizes) const;  // shares the bytes

  // One element as a number of a wide type. The reference backend computes in these: double for
  // floats, int64 for integers and bool, complex<double> for c64.
  double get_float(int64_t i) const;
  int64_t get_int(int64_t i) const;
  Complex get_complex(int64_t i) const;
  // Stores with one rounding; integers wrap, bool is value != 0.
  void set_float(int64_t i, double value);
  void set_int(int64_t i, int64_t value);
  void set_complex(int64_t i, Complex value);

  bool same_bits(const Tensor& other) const;
  uint64_t hash() const;

 private:
  struct WithoutData {};
  Tensor(DType dtype, Ints sizes, WithoutData);
  void check_index(int64_t i) const {
    if (i < 0 || i >= elements_) [[unlikely]]
      bad_index(i);
  }
  [[noreturn]] void bad_index(int64_t i) const;
  DType dtype_;
  Ints sizes_;
  int64_t elements_;
  std::shared_ptr<std::byte[]> data_;
};

using NamedTensors = std::map<std::string, Tensor>;

// An integer as a double that rounds to floats of fewer digits as the integer itself does: where a double has not all of
// its digits, those that are lost make the last one odd. (Rounding to nearest first might make a tie.)
inline constexpr int64_t kExactDoubles = int64_t{1} << 53, kLostBits = 0x7ff, kOddBit = 0x400;
double odd_beyond_doubles(int64_t n);

// Conversion of values with the semantics of the op `cast`: float to int truncates and saturates,
// NaN gives 0; int to int wraps; anything to bool is != 0; complex to real drops the imaginary
// part.
Tensor cast_tensor(const Tensor& x, DType to);

// One real number stored as an element of any real dtype, with the conversions of cast_tensor.
void convert_element(DType to, double value, void* element);
// The number that an element of any real dtype is; int64 beyond 2^53 rounds.
double element_value(DType dtype, const void* element);

// Calls f(index) for every multi-index of `sizes` in row-major order.
template <class F>
void for_each_index(const Ints& sizes, F&& f) {
  for (int64_t s : sizes)
    if (s == 0) return;
  Ints index(sizes.size(), 0);
  for (;;) {
    f(static_cast<const Ints&>(index));
    size_t axis = sizes.size();
    for (;;) {
      if (axis-- == 0) return;
      if (++index[axis] < sizes[axis]) break;
      index[axis] = 0;
    }
  }
}

// Constants that are too large for text, by hash.
struct TextStore {
  std::map<uint64_t, Tensor> constants;
};

template <>
struct Codec<Tensor> {
  static std::string type() { return "tensor"; }
  static void print(Printer& p, const Tensor& v);
  static void read(Reader& r, Tensor& v);
  static void write(ByteWriter& w, const Tensor& v);
  static void load(ByteReader& r, Tensor& v);
  static uint64_t hash(const Tensor& v) { return v.hash(); }
  static bool equal(const Tensor& a, const Tensor& b) { return a.same_bits(b); }
};
extern template struct MemberTypeOf<Tensor>;

}  // namespace rlx
