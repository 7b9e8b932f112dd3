#include "rlx/quant/format.h"

#include <cmath>

#include "rlx/quant/blocks.h"

namespace rlx {
namespace {

using enum QuantFormat;
using namespace quant;

constexpr FormatInfo kFormats[] = {
    {int8_block, "int8", "", -1, 1, 1, decode_int8, encode_int8},
    {int8_block_asym, "int8a", "", -1, 1, 1, decode_int8, encode_int8},
    {int4_block, "int4", "", -1, 2, 1, decode_uint4, encode_uint4},
    {fp8_e4m3, "fp8e4m3", "", -1, 1, 1, decode_e4m3, encode_e4m3},
    {fp8_e5m2, "fp8e5m2", "", -1, 1, 1, decode_e5m2, encode_e5m2},
    {nvfp4_block, "nvfp4", "", -1, 2, 1, decode_e2m1, encode_e2m1},
    {f32, "gguf_f32", "F32", 0, 1, 4, decode_f32, encode_f32},
    {f16, "gguf_f16", "F16", 1, 1, 2, decode_f16, encode_f16},
    {bf16, "gguf_bf16", "BF16", 30, 1, 2, decode_bf16, encode_bf16},
    {q4_0, "gguf_q4_0", "Q4_0", 2, 32, 18, decode_q4_0, encode_q4_0},
    {q4_1, "gguf_q4_1", "Q4_1", 3, 32, 20, decode_q4_1, encode_q4_1},
    {q5_0, "gguf_q5_0", "Q5_0", 6, 32, 22, decode_q5_0, encode_q5_0},
    {q5_1, "gguf_q5_1", "Q5_1", 7, 32, 24, decode_q5_1, encode_q5_1},
    {q8_0, "gguf_q8_0", "Q8_0", 8, 32, 34, decode_q8_0, encode_q8_0},
    {q8_1, "gguf_q8_1", "Q8_1", 9, 32, 36, decode_q8_1, encode_q8_1},
    {q2_k, "gguf_q2k", "Q2_K", 10, 256, 84, decode_q2_k, encode_q2_k},
    {q3_k, "gguf_q3k", "Q3_K", 11, 256, 110, decode_q3_k, encode_q3_k},
    {q4_k, "gguf_q4k", "Q4_K", 12, 256, 144, decode_q4_k, encode_q4_k},
    {q5_k, "gguf_q5k", "Q5_K", 13, 256, 176, decode_q5_k, encode_q5_k},
    {q6_k, "gguf_q6k", "Q6_K", 14, 256, 210, decode_q6_k, encode_q6_k},
    {q8_k, "gguf_q8k", "Q8_K", 15, 256, 292, decode_q8_k, encode_q8_k},
    {iq1_s, "gguf_iq1_s", "IQ1_S", 19, 256, 50, decode_iq1_s, encode_iq1_s},
    {iq1_m, "gguf_iq1_m", "IQ1_M", 29, 256, 56, decode_iq1_m, encode_iq1_m},
    {iq2_xxs, "gguf_iq2_xxs", "IQ2_XXS", 16, 256, 66, decode_iq2_xxs, encode_iq2_xxs},
    {iq2_xs, "gguf_iq2_xs", "IQ2_XS", 17, 256, 74, decode_iq2_xs, encode_iq2_xs},
    {iq2_s, "gguf_iq2_s", "IQ2_S", 22, 256, 82, decode_iq2_s, encode_iq2_s},
    {iq3_xxs, "gguf_iq3_xxs", "IQ3_XXS", 18, 256, 98, decode_iq3_xxs, encode_iq3_xxs},
    {iq3_s, "gguf_iq3_s", "IQ3_S", 21, 256, 110, decode_iq3_s, encode_iq3_s},
    {iq4_nl, "gguf_iq4_nl", "IQ4_NL", 20, 32, 18, decode_iq4_nl, encode_iq4_nl},
    {iq4_xs, "gguf_iq4_xs", "IQ4_XS", 23, 256, 136, decode_iq4_xs, encode_iq4_xs},
    {tq1_0, "gguf_tq1_0", "TQ1_0", 34, 256, 54, decode_tq1_0, encode_tq1_0},
    {tq2_0, "gguf_tq2_0", "TQ2_0", 35, 256, 66, decode_tq2_0, encode_tq2_0},
    {mxfp4, "gguf_mxfp4", "MXFP4", 39, 32, 17, decode_mxfp4, encode_mxfp4},
    {nvfp4, "gguf_nvfp4", "NVFP4", 40, 64, 36, decode_nvfp4, encode_nvfp4},
    {q1_0, "gguf_q1_0", "Q1_0", 41, 128, 18, decode_q1_0, encode_q1_0},
};

constexpr bool rows_match_enum() {
  for (size_t i = 0; i < std::size(kFormats); ++i)
    if (static_cast<size_t>(kFormats[i].format) != i) return false;
  return std::size(kFormats) == kQuantFormatCount;
}
static_assert(rows_match_enum());

bool chooses_group(QuantFormat f) {
  return f == int8_block || f == int8_block_asym || f == int4_block;
}

}  // namespace

std::span<const FormatInfo> quant_formats() { return kFormats; }
const FormatInfo& info(QuantFormat format) { return kFormats[static_cast<size_t>(format)]; }

const FormatInfo* find_ggml_type(int64_t type) {
  for (const FormatInfo& f : kFormats)
    if (f.is_ggml() && f.ggml_type == type) return &f;
  return nullptr;
}

int64_t packed_bytes(const FormatInfo& f, int64_t elements) {
  user_check(elements >= 0 && elements % f.block_elements == 0, "quant-block",
             "{}: {} elements are not whole blocks of {}", f.name, elements, f.block_elements);
  return elements / f.block_elements * f.block_bytes;
}

void decode_blocks(const FormatInfo& f, const uint8_t* bytes, int64_t elements, float* out) {
  for (int64_t i = 0; i < elements; i += f.block_elements, bytes += f.block_bytes)
    f.decode(bytes, out + i);
}

void encode_blocks(const FormatInfo& f, const float* in, int64_t elements, uint8_t* bytes) {
  for (int64_t i = 0; i < elements; i += f.block_elements, bytes += f.block_bytes)
    f.encode(in + i, bytes);
}

bool QuantScheme::has_scale() const { return chooses_group(format) || format == nvfp4_block; }
bool QuantScheme::has_zero_point() const {
  return format == int8_block_asym || format == int4_block;
}
int QuantScheme::bits_per_element_x10() const {
  return static_cast<int>(std::lround(10 * info().bits_per_element()));
}
std::string QuantScheme::to_string() const {
  return has_scale() ? fmt::format("{}/{}", info().name, group) : std::string(info().name);
}

QuantScheme read_scheme(Lexer& lex) {
  const std::string_view name = lex.word();
  for (const FormatInfo& f : kFormats) {
    if (f.name != name) continue;
    QuantScheme s{f.format, 0};
    if (!s.has_scale()) return s;
    lex.expect("/");
    s.group = lex.integer();
    if (s.format == nvfp4_block ? s.group != 16 : s.group < 1)
      lex.error(fmt::format("{}/{}: {}", name, s.group,
                            s.format == nvfp4_block ? "16 elements share a scale"
                                                    : "at least one element shares a scale"));
    return s;
  }
  lex.error(fmt::format("unknown quantisation scheme {}", name));
}

void Codec<QuantScheme>::load(ByteReader& r, QuantScheme& v) {
  const std::string_view text = r.text();
  v = parse_scheme(text);
  if (v.to_string() != text) r.error("scheme", "{} is not how {} is written", text, v.to_string());
}

QuantScheme parse_scheme(std::string_view text) {
  Lexer lex(text);
  const QuantScheme s = read_scheme(lex);
  if (!lex.done()) lex.error("text after the scheme");
  return s;
}

}  // namespace rlx
