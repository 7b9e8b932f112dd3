// Storage types of the dtypes and the types they are computed in, for kernels over raw memory.
//
//   Compute<bf16_t>           is float
//   Element<bf16_t>::get(x)   is its value
//   Element<bf16_t>::put(f)   rounds to nearest
//
// Integers of up to 32 bits are computed modulo 2^32 and 64-bit ones modulo 2^64: a sum of products
// that is cut to the storage size at the end is the sum that wraps at every step. Bool counts in
// u32 and stores "not zero". All inlined, always: these are compiled for several instruction sets
// (simd.h).
#pragma once

#include <cstdint>

namespace rlx {
// From rlx/ir/dtype.h, which must not be included where code is compiled for a wider instruction
// set (simd.h).
float f16_to_float(uint16_t bits);
uint16_t float_to_f16(float value);
}  // namespace rlx

namespace rlx::cpu {

struct f16_t {
  uint16_t bits;
};
struct bf16_t {
  uint16_t bits;
};
struct bool_t {
  uint8_t byte;
};
struct c64_t {
  float re, im;
  [[gnu::always_inline]] friend c64_t operator+(c64_t a, c64_t b) {
    return {a.re + b.re, a.im + b.im};
  }
  // The compiler's own complex product restores infinities, as Annex G has it.
  [[gnu::always_inline]] friend c64_t operator*(c64_t a, c64_t b) {
    __complex__ float x, y;
    __real__ x = a.re, __imag__ x = a.im, __real__ y = b.re, __imag__ y = b.im;
    const __complex__ float xy = x * y;
    return {__real__ xy, __imag__ xy};
  }
};

// Identity unless a specialisation says otherwise (f32, f64, u32, c64).
template <class S>
struct Element {
  using Compute = S;
  [[gnu::always_inline]] static S get(S x) { return x; }
  [[gnu::always_inline]] static S put(S x) { return x; }
};

template <class S>
using Compute = typename Element<S>::Compute;

template <>
struct Element<f16_t> {
  using Compute = float;
  [[gnu::always_inline]] static float get(f16_t x) { return f16_to_float(x.bits); }
  [[gnu::always_inline]] static f16_t put(float x) { return {float_to_f16(x)}; }
};

template <>
struct Element<bf16_t> {
  using Compute = float;
  [[gnu::always_inline]] static float get(bf16_t x) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16);
  }
  [[gnu::always_inline]] static bf16_t put(float x) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, x);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return {static_cast<uint16_t>(x == x ? rounded : (bits >> 16 | 0x40))};
  }
};

template <>
struct Element<bool_t> {
  using Compute = uint32_t;
  [[gnu::always_inline]] static uint32_t get(bool_t x) { return x.byte != 0; }
  [[gnu::always_inline]] static bool_t put(uint32_t x) { return {static_cast<uint8_t>(x != 0)}; }
};

template <class S, class Unsigned>
struct IntegerElement {
  using Compute = Unsigned;
  [[gnu::always_inline]] static Unsigned get(S x) { return static_cast<Unsigned>(x); }
  [[gnu::always_inline]] static S put(Unsigned x) { return static_cast<S>(x); }
};
template <>
struct Element<int8_t> : IntegerElement<int8_t, uint32_t> {};
template <>
struct Element<uint8_t> : IntegerElement<uint8_t, uint32_t> {};
template <>
struct Element<int16_t> : IntegerElement<int16_t, uint32_t> {};
template <>
struct Element<int32_t> : IntegerElement<int32_t, uint32_t> {};
template <>
struct Element<int64_t> : IntegerElement<int64_t, uint64_t> {};

// A value as it is compared: signed integers as themselves, not as the unsigned they are computed
// in.
template <class S>
[[gnu::always_inline]] inline auto order_value(S x) {
  if constexpr (__is_same(S, f16_t) || __is_same(S, bf16_t) || __is_same(S, bool_t))
    return Element<S>::get(x);
  else
    return x;
}

}  // namespace rlx::cpu
