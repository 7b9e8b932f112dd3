// Quantised number formats: one table row per format, and QuantScheme, the attribute that names one.
//
//   const FormatInfo& f = info(QuantFormat::q4_k);      // 256 elements in 144 bytes
//   decode_blocks(f, bytes, 512, values);               // 512 elements from 288 bytes
//   QuantScheme s = parse_scheme("int8/32");            // text: int8/32, gguf_q4k, fp8e4m3, nvfp4/16
//
// Two kinds of formats. ggml's are blocks that hold everything; GGUF files store tensors in them, and decoding
// gives the values that ggml's own tools give, bit for bit. The others are codes only (block_bytes for
// block_elements elements); their scales and zero points are tensors of their own, which ops/quant/quantise.h
// describes. decode of a code gives the number before scaling.
//
// Encoders of Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1, TQ1_0, TQ2_0, MXFP4 and Q1_0 follow the plain rule that ggml
// uses for them; the others search for the scales with the least squared error. NaN and infinities in the input
// give some valid block.
//
// Raises: Error(data, "parse") for text that names no scheme; Error(user, "quant-block") for sizes that are not
// whole blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "rlx/base/fields.h"

namespace rlx {

enum class QuantFormat : uint8_t {
  int8_block,
  int8_block_asym,
  int4_block,
  fp8_e4m3,
  fp8_e5m2,
  nvfp4_block,  // codes only
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q8_1,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  q8_k,  // ggml's
  iq1_s,
  iq1_m,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq3_xxs,
  iq3_s,
  iq4_nl,
  iq4_xs,
  tq1_0,
  tq2_0,
  mxfp4,
  nvfp4,
  q1_0,
};
inline constexpr int kQuantFormatCount = 35;

struct FormatInfo {
  QuantFormat format;
  std::string_view name;       // in text
  std::string_view ggml_name;  // as GGUF tools spell it; empty for formats that are not ggml's
  int ggml_type;               // the type id in GGUF files; -1
  int block_elements, block_bytes;
  void (*decode)(const uint8_t* block, float* out);
  void (*encode)(const float* in, uint8_t* block);

  bool is_ggml() const { return ggml_type >= 0; }
  double bits_per_element() const { return 8.0 * block_bytes / block_elements; }
};

std::span<const FormatInfo> quant_formats();
const FormatInfo& info(QuantFormat format);
const FormatInfo* find_ggml_type(int64_t type);  // nullptr when unknown

// Bytes of `elements` numbers; raises "quant-block" unless they are whole blocks.
int64_t packed_bytes(const FormatInfo& f, int64_t elements);
void decode_blocks(const FormatInfo& f, const uint8_t* bytes, int64_t elements, float* out);
void encode_blocks(const FormatInfo& f, const float* in, int64_t elements, uint8_t* bytes);

// How a weight is stored: a format, and for the int8 and int4 ones how many elements share a scale.
struct QuantScheme {
  QuantFormat format = QuantFormat::q8_0;
  int64_t group = 0;  // elements along K that share a scale; 0 where the format says it

  const FormatInfo& info() const { return rlx::info(format); }
  bool is_gguf() const { return info().is_ggml(); }
  bool has_scale() const;  // an operand of its own, one number per group
  bool scale_is_fp8() const { return format == QuantFormat::nvfp4_block; }
  bool has_zero_point() const;  // the operand is read
  // The tenth part of a bit, rounded.
  int bits_per_element_x10() const;
  int bits_per_element() const { return bits_per_element_x10() / 10; }
  std::string to_string() const;
  bool operator==(const QuantScheme&) const = default;
};

QuantScheme read_scheme(Lexer& lex);
QuantScheme parse_scheme(std::string_view text);

template <>
struct Codec<QuantScheme> {
  static std::string type() { return "scheme"; }
  static void print(Printer& p, const QuantScheme& v) { p.out += v.to_string(); }
  static void read(Reader& r, QuantScheme& v) { v = read_scheme(r.lex); }
  static void write(ByteWriter& w, const QuantScheme& v) { w.text(v.to_string()); }
  static void load(ByteReader& r, QuantScheme& v);
  static uint64_t hash(const QuantScheme& v) {
    return mix(static_cast<uint64_t>(v.format), static_cast<uint64_t>(v.group));
  }
  static bool equal(const QuantScheme& a, const QuantScheme& b) { return a == b; }
};

}  // namespace rlx
