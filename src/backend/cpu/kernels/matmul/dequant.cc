#include "rlx/backend/cpu/kernels/matmul/dequant.h"

#include <algorithm>
#include <array>

#include "rlx/backend/cpu/kernels/matmul/grouped.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

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

int64_t dequant_matmul_blocks(const DequantProblem& p) {
  return ceil_div(p.n, weight_tile_rows(p.k));
}

size_t dequant_matmul_scratch_bytes(const DequantProblem& p) {
  return static_cast<size_t>(weight_tile_rows(p.k) * p.k) * sizeof(float);
}

void dequant_matmul(const DequantProblem& p, const DequantOperands& in, float* y, int64_t begin,
                    int64_t end, std::byte* scratch, const RowProducts& f) {
  const int64_t tile = weight_tile_rows(p.k);
  const FormatInfo& format = p.scheme.info();
  float* weights = reinterpret_cast<float*>(scratch);
  for (int64_t block = begin; block < end; ++block) {
    const int64_t first = block * tile, columns = std::min(tile, p.n - first);
    if (p.scheme.is_gguf()) {
      const int64_t at = first * p.k / format.block_elements * format.block_bytes;
      decode_blocks(format, static_cast<const uint8_t*>(in.w) + at, columns * p.k, weights);
      f.dot(in.x, p.k, p.m, weights, p.k, columns, p.k, y + first, p.n);
    } else {
      unpack_codes(p, in, first, columns, weights);
      f.combine(in.x, p.k, 1, p.m, weights, columns, columns, p.k, y + first, p.n);
    }
  }
}

}  // namespace rlx::cpu
