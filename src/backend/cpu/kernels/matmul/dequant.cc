#include "rlx/backend/cpu/kernels/matmul/dequant.h"

#include <algorithm>
#include <array>

#include "rlx/backend/cpu/kernels/matmul/grouped.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kFewDequantRows = 4;  // that the weights are decoded for at once
constexpr int64_t kRoundedBlocks = 16, kBlocksOfPanels = 8;

// The numbers of all byte codes of a format with scales apart; nibbles stand in the first 16.
using CodeTable = std::array<float, 256>;

CodeTable code_table(const FormatInfo& f) {
  CodeTable t{};
  for (size_t i = 0; i < t.size(); ++i) {
    const auto byte = static_cast<uint8_t>(i);
    float values[2];
    f.decode(&byte, values);
    t[i] = values[0];
  }
  return t;
}

const CodeTable& table_of(QuantFormat format) {
  static const auto tables = [] {
    std::array<CodeTable, 6> all;
    for (size_t i = 0; i < all.size(); ++i) all[i] = code_table(info(static_cast<QuantFormat>(i)));
    return all;
  }();
  return tables[static_cast<size_t>(format)];
}

// Columns [first, first + columns) of the weight [k, n] as rows of `columns` floats; value(i, g) is the weight at
// position i of [k, n] whose scale is at position g.
template <class Value>
void unpack(const DequantProblem& p, int64_t first, int64_t columns, float* out, Value value) {
  for (int64_t row = 0; row < p.k; ++row, out += columns) {
    const int64_t at = row * p.n + first;
    const int64_t group = p.scheme.group ? row / p.scheme.group * p.n + first : first;
    for (int64_t j = 0; j < columns; ++j) out[j] = value(at + j, group + j);
  }
}

void unpack_codes(const DequantProblem& p, const DequantOperands& in, int64_t first,
                  int64_t columns, float* out) {
  const float* codes = table_of(p.scheme.format).data();
  const float* e4m3 = table_of(QuantFormat::fp8_e4m3).data();
  const auto* w = static_cast<const uint8_t*>(in.w);
  const auto* small_scale = static_cast<const uint8_t*>(in.scale);
  const auto* scale = static_cast<const float*>(in.scale);
  const auto* zero = static_cast<const float*>(in.zero);
  auto number = [=](int64_t i) { return static_cast<float>(static_cast<int8_t>(w[i])); };
  auto nibble = [=](int64_t i) { return w[i / 2] >> i % 2 * 4 & 15; };
  auto fill = [&](auto value) { unpack(p, first, columns, out, value); };
  switch (p.scheme.format) {
    case QuantFormat::int8_block:
      return fill([=](int64_t i, int64_t g) { return number(i) * scale[g]; });
    case QuantFormat::int8_block_asym:
      return fill([=](int64_t i, int64_t g) { return (number(i) - zero[g]) * scale[g]; });
    case QuantFormat::int4_block:
      return fill([=](int64_t i, int64_t g) {
        return (static_cast<float>(nibble(i)) - zero[g]) * scale[g];
      });
    case QuantFormat::nvfp4_block:
      return fill(
          [=](int64_t i, int64_t g) { return codes[nibble(i)] * e4m3[small_scale[g]] * zero[0]; });
    default:  // fp8
      return fill([=](int64_t i, int64_t g) { return codes[w[i]] * scale[g]; });
  }
}

}  // namespace

std::optional<RowFormat> row_format(QuantFormat format) {
  switch (format) {
    case QuantFormat::q8_0:
      return RowFormat::q8_0;
    case QuantFormat::q4_0:
      return RowFormat::q4_0;
    case QuantFormat::q4_k:
      return RowFormat::q4_k;
    case QuantFormat::q5_k:
      return RowFormat::q5_k;
    case QuantFormat::q6_k:
      return RowFormat::q6_k;
    case QuantFormat::iq4_xs:
      return RowFormat::iq4_xs;
    default:
      return std::nullopt;
  }
}

BlockRowFns block_row_fns(RowFormat format, DotIsa isa) {
  return for_dot_isa(isa, [&](auto d) { return block_row_fns_of<d>(format); });
}

BlockPanelFns block_panel_fns(RowFormat format, DotIsa isa) {
  return for_dot_isa(isa, [&](auto d) { return block_panel_fns_of<d>(format); });
}

DequantProduct::DequantProduct(const DequantProblem& problem, Isa isa, bool packed)
    : p_(problem),
      packed_(packed),
      isa_(dot_isa(isa)),
      products_(row_products(isa)),
      tile_(weight_tile_rows(problem.k)) {
  if (const auto format = row_format(p_.scheme.format)) {
    rows_ = block_row_fns(*format, isa_);
    panels_ = block_panel_fns(*format, isa_);
  }
  check(!p_.rounded || rows_.rounded, "dequant_matmul: no integer products with {}",
        p_.scheme.to_string());
  // Each block rounds x anew.
  if (p_.rounded) tile_ = std::max(tile_, ceil_div(p_.n, kRoundedBlocks));
  if (packed_)
    tile_ = align_up(ceil_div(std::max<int64_t>(p_.n, 1), ceil_div(kBlocksOfPanels, row_tiles())),
                     panels_.panel);
}

size_t DequantProduct::scratch_bytes() const {
  const int64_t rows = packed_ ? std::min(p_.m, kRowTile) : p_.m, blocks = rows * p_.k / kXBlock;
  const int64_t rounded = rows * p_.k + 8 * blocks;
  if (packed_) return static_cast<size_t>(rounded + 8 * blocks);
  if (p_.rounded) return static_cast<size_t>(rounded);
  if (rows_.exact && p_.m <= kFewDequantRows) return 0;
  return static_cast<size_t>(tile_ * p_.k) * sizeof(float);
}

bool DequantProduct::takes_panels() const {
  return p_.rounded && p_.m > kFewDequantRows && panels_.panel > 0 && p_.n > 0;
}

int64_t DequantProduct::packed_bytes() const {
  return ceil_div(p_.n, panels_.panel) * panels_.bytes(p_.k);
}

std::string DequantProduct::packed_form() const {
  return fmt::format("{} {} {}x{} panels", dot_isa_name(isa_), p_.scheme.to_string(), p_.n, p_.k);
}

void DequantProduct::pack_w(const void* w, void* packed) const {
  const int64_t row = rlx::packed_bytes(p_.scheme.info(), p_.k);
  for (int64_t j = 0; j < p_.n; j += panels_.panel)
    panels_.pack(static_cast<const uint8_t*>(w) + j * row, std::min(panels_.panel, p_.n - j), p_.k,
                 static_cast<uint8_t*>(packed) + j / panels_.panel * panels_.bytes(p_.k));
}

void DequantProduct::run_panels(const DequantOperands& in, float* y, int64_t block,
                                std::byte* scratch) const {
  const int64_t row = block % row_tiles() * kRowTile, rows = std::min(kRowTile, p_.m - row);
  const int64_t first = block / row_tiles() * tile_, last = std::min(first + tile_, p_.n);
  const int64_t blocks = rows * (p_.k / kXBlock);
  auto* scale = reinterpret_cast<float*>(scratch);
  auto* start = reinterpret_cast<int32_t*>(scale + 2 * blocks);
  const BlockX x{reinterpret_cast<int8_t*>(start + 2 * blocks), scale, scale + blocks};
  panels_.round(in.x + row * p_.k, p_.k, rows, p_.k, x);
  panels_.starts(x.code, rows * p_.k, start);
  for (int64_t j = first; j < last; j += panels_.panel)
    panels_.run(
        {.m = rows,
         .n = std::min(panels_.panel, last - j),
         .k = p_.k,
         .code = x.code,
         .scale = x.scale,
         .sum = x.sum,
         .start = start,
         .panel = static_cast<const uint8_t*>(in.w) + j / panels_.panel * panels_.bytes(p_.k),
         .y = y + row * p_.n + j,
         .y_row = p_.n});
}

void DequantProduct::run_rounded(const DequantOperands& in, float* y, int64_t begin, int64_t end,
                                 std::byte* scratch) const {
  auto* scale = reinterpret_cast<float*>(scratch);
  const int64_t blocks = p_.m * (p_.k / kXBlock);
  const BlockX x{reinterpret_cast<int8_t*>(scale + 2 * blocks), scale, scale + blocks};
  rows_.round(in.x, p_.k, p_.m, p_.k, x);
  const int64_t first = begin * tile_, last = std::min(end * tile_, p_.n);
  rows_.rounded(
      {.m = p_.m,
       .n = last - first,
       .k = p_.k,
       .x = nullptr,
       .x_row = 0,
       .rounded = x,
       .w = static_cast<const uint8_t*>(in.w) + rlx::packed_bytes(p_.scheme.info(), first * p_.k),
       .y = y + first,
       .y_row = p_.n});
}

void DequantProduct::run(const DequantOperands& in, float* y, int64_t begin, int64_t end,
                         std::byte* scratch) const {
  if (packed_) {
    for (int64_t block = begin; block < end; ++block) run_panels(in, y, block, scratch);
    return;
  }
  if (p_.rounded) return run_rounded(in, y, begin, end, scratch);
  const FormatInfo& format = p_.scheme.info();
  float* weights = reinterpret_cast<float*>(scratch);
  for (int64_t block = begin; block < end; ++block) {
    const int64_t first = block * tile_, columns = std::min(tile_, p_.n - first);
    if (!p_.scheme.is_gguf()) {
      unpack_codes(p_, in, first, columns, weights);
      products_.combine(in.x, p_.k, 1, p_.m, weights, columns, columns, p_.k, y + first, p_.n);
      continue;
    }
    const auto* w = static_cast<const uint8_t*>(in.w) +
                    first * p_.k / format.block_elements * format.block_bytes;
    if (rows_.exact && p_.m <= kFewDequantRows) {
      rows_.exact({.m = p_.m,
                   .n = columns,
                   .k = p_.k,
                   .x = in.x,
                   .x_row = p_.k,
                   .rounded = {},
                   .w = w,
                   .y = y + first,
                   .y_row = p_.n});
      continue;
    }
    if (rows_.unpack)
      rows_.unpack(w, columns, p_.k, weights);
    else
      decode_blocks(format, w, columns * p_.k, weights);
    products_.dot(in.x, p_.k, p_.m, weights, p_.k, columns, p_.k, y + first, p_.n);
  }
}

}  // namespace rlx::cpu
