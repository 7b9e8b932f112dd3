// Element types. One table row per dtype; everything about a dtype is derived from its row.
//
//   size_of(DType::BF16) == 2;  to_string(DType::F32) == "f32";  parse_dtype("i64") == DType::I64
//
// A tensor lives in its own dtype: bf16 is two bytes, an f8 and a bool (0 or 1) are one, c64 is two f32
// (re, im).
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <optional>
#include <string_view>

#include "rlx/base/format.h"

namespace rlx {

// The numbers are part of files: a new dtype goes to the end.
// clang-format off
enum class DType : uint8_t {
  F32, F16, BF16, F64, I8, I16, I32, I64, U8, U32, Bool, C64, F8E4M3FN, F8E5M2
};
// clang-format on

inline constexpr int kDTypeCount = 14;

enum class DTypeClass : uint8_t { boolean, integer, floating, complex };

// A float of at most 16 bits, which is computed in f32: a sign, an exponent with this bias (0: subnormal
// numbers), a mantissa. Conversions to it round to nearest even, NaN stays NaN; overflow gives an infinity,
// and NaN where there is none (f8e4m3fn).
struct NarrowFloat {
  int mantissa_bits, bias;
  uint16_t largest;  // the code of the largest finite number; the next one is what overflow gives
  uint16_t nan;
  float (*to_float)(uint16_t bits);
  uint16_t (*from_float)(float value);
  uint16_t (*from_double)(double value);  // rounds once
};
extern const NarrowFloat kF16, kBF16, kF8E4M3FN, kF8E5M2;

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  int bytes;
  DTypeClass cls;
  bool is_signed;
  DType compute;              // what it is computed and accumulated in
  int digits;                 // whole numbers of up to so many bits are exact
  int exponent;               // numbers are below 2 to the power of this plus 1 (integers: of this)
  double largest;             // finite number, of floats
  std::string_view numpy;     // its name in NumPy, or in the package ml_dtypes
  std::string_view npy;       // in files of NumPy, without the byte order
  std::string_view buffer;    // in Python's module struct; empty: it has none
  uint8_t dlpack;             // its code in DLPack
  const NarrowFloat* narrow;  // nullptr: it is computed as it is stored
};

// clang-format off
inline constexpr std::array<DTypeInfo, kDTypeCount> kDTypes{{
    {DType::F32, "f32", 4, DTypeClass::floating, true, DType::F32, 24, 127, 0x1.fffffep127, "float32", "f4", "f", 2, nullptr},
    {DType::F16, "f16", 2, DTypeClass::floating, true, DType::F32, 11, 15, 65504, "float16", "f2", "e", 2, &kF16},
    {DType::BF16, "bf16", 2, DTypeClass::floating, true, DType::F32, 8, 127, 0x1.fep127, "bfloat16", "V2", "", 4, &kBF16},
    {DType::F64, "f64", 8, DTypeClass::floating, true, DType::F64, 53, 1023, 0x1.fffffffffffffp1023, "float64", "f8", "d", 2, nullptr},
    {DType::I8, "i8", 1, DTypeClass::integer, true, DType::I8, 7, 7, 0, "int8", "i1", "b", 0, nullptr},
    {DType::I16, "i16", 2, DTypeClass::integer, true, DType::I16, 15, 15, 0, "int16", "i2", "h", 0, nullptr},
    {DType::I32, "i32", 4, DTypeClass::integer, true, DType::I32, 31, 31, 0, "int32", "i4", "i", 0, nullptr},
    {DType::I64, "i64", 8, DTypeClass::integer, true, DType::I64, 63, 63, 0, "int64", "i8", "q", 0, nullptr},
    {DType::U8, "u8", 1, DTypeClass::integer, false, DType::U8, 8, 8, 0, "uint8", "u1", "B", 1, nullptr},
    {DType::U32, "u32", 4, DTypeClass::integer, false, DType::U32, 32, 32, 0, "uint32", "u4", "I", 1, nullptr},
    {DType::Bool, "bool", 1, DTypeClass::boolean, false, DType::Bool, 1, 0, 0, "bool", "b1", "?", 6, nullptr},
    {DType::C64, "c64", 8, DTypeClass::complex, true, DType::C64, 24, 127, 0x1.fffffep127, "complex64", "c8", "Zf", 5, nullptr},
    {DType::F8E4M3FN, "f8e4m3fn", 1, DTypeClass::floating, true, DType::F32, 4, 8, 448, "float8_e4m3fn", "V1", "", 10, &kF8E4M3FN},
    {DType::F8E5M2, "f8e5m2", 1, DTypeClass::floating, true, DType::F32, 3, 15, 57344, "float8_e5m2", "f1", "", 12, &kF8E5M2},
}};
// clang-format on

constexpr const DTypeInfo& info(DType d) { return kDTypes[static_cast<size_t>(d)]; }
constexpr int size_of(DType d) { return info(d).bytes; }
constexpr std::string_view to_string(DType d) { return info(d).name; }
constexpr bool is_float(DType d) { return info(d).cls == DTypeClass::floating; }
constexpr bool is_int(DType d) { return info(d).cls == DTypeClass::integer; }
constexpr bool is_bool(DType d) { return d == DType::Bool; }
constexpr bool is_complex(DType d) { return d == DType::C64; }
constexpr bool is_narrow(DType d) { return info(d).narrow != nullptr; }
constexpr DType wide_of(DType d) { return info(d).compute; }

std::optional<DType> parse_dtype(std::string_view name);

// The dtype that two arrays share when they meet: of two floats or two integers one that holds both,
// else that of the higher class, complex, float, integer, bool (used by Python and by hints in
// messages; builders never promote).
DType promote(DType a, DType b);

// A set of dtypes, as ops declare what they take.
class DTypeSet {
 public:
  constexpr DTypeSet() = default;
  constexpr DTypeSet(std::initializer_list<DType> list) {
    for (DType d : list) bits_ |= 1u << static_cast<int>(d);
  }
  constexpr bool has(DType d) const { return bits_ >> static_cast<int>(d) & 1u; }
  constexpr DTypeSet operator|(DTypeSet o) const { return from(bits_ | o.bits_); }
  constexpr bool operator==(const DTypeSet&) const = default;
  std::string to_string() const;

 private:
  static constexpr DTypeSet from(uint32_t bits) {
    DTypeSet s;
    s.bits_ = bits;
    return s;
  }
  uint32_t bits_ = 0;
};

inline constexpr DTypeSet kFloats{DType::F32, DType::F16, DType::BF16, DType::F64};
inline constexpr DTypeSet kInts{DType::I8,  DType::I16, DType::I32,
                                DType::I64, DType::U8,  DType::U32};
inline constexpr DTypeSet kBools{DType::Bool};
inline constexpr DTypeSet kComplex{DType::C64};
inline constexpr DTypeSet kReals = kFloats | kInts;
inline constexpr DTypeSet kNumbers = kReals | kComplex;
inline constexpr DTypeSet kInexact = kFloats | kComplex;
// Kept, moved, selected and cast; ops that compute take what these are cast to.
inline constexpr DTypeSet kStored{DType::F8E4M3FN, DType::F8E5M2};
inline constexpr DTypeSet kAllDTypes = kNumbers | kBools | kStored;

constexpr bool is_differentiable(DType d) { return kInexact.has(d); }
// What quantised numbers are stored as; carries() in ops/rules.h says which derivatives they have.
constexpr bool is_code(DType d) { return d == DType::I8 || d == DType::U8; }

// The conversions of the rows, by name.
float f16_to_float(uint16_t bits);
uint16_t float_to_f16(float value);
float bf16_to_float(uint16_t bits);
uint16_t float_to_bf16(float value);
uint16_t double_to_f16(double value);
uint16_t double_to_bf16(double value);
float f8e4m3fn_to_float(uint16_t bits);
uint16_t float_to_f8e4m3fn(float value);
uint16_t double_to_f8e4m3fn(double value);
float f8e5m2_to_float(uint16_t bits);
uint16_t float_to_f8e5m2(float value);
uint16_t double_to_f8e5m2(double value);

}  // namespace rlx

template <>
struct fmt::formatter<rlx::DType> : rlx::TextFormatter {
  auto format(rlx::DType d, fmt::format_context& c) const { return put(c, rlx::to_string(d)); }
};
