// f32 products with quantised weights that are never unpacked as a whole. Few rows of x meet the blocks of the formats of
// block_rows.h as they are; else a block unpacks the weights of a few columns into scratch and multiplies all rows of x with
// them.
//
//   const DequantProduct p({.m = 8, .k = 4096, .n = 4096, .scheme = parse_scheme("gguf_q4k")}, host_isa());
//   p.run({x, packed, nullptr, nullptr}, y, begin, end, scratch);     // blocks [begin, end) of p.blocks()
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "rlx/backend/cpu/kernels/isa.h"
#include "rlx/backend/cpu/kernels/matmul/block_panels.h"
#include "rlx/backend/cpu/kernels/matmul/block_rows.h"
#include "rlx/backend/cpu/kernels/matmul/row_products.h"
#include "rlx/base/checked.h"
#include "rlx/quant/format.h"

namespace rlx::cpu {

struct DequantProblem {
  int64_t m = 0, k = 0, n = 0;
  QuantScheme scheme;
  bool rounded = false;  // x as blocks of 8-bit numbers; for formats with rows only
};
struct
    DequantOperands {  // as the op dequant_matmul lists them; those the scheme does not use may be nullptr
  const float* x;
  const void *w, *scale, *zero;
};

// The format as block_rows.h knows it.
std::optional<RowFormat> row_format(QuantFormat format);

// With many rows and x rounded, weights may be packed into panels (block_panels.h): a DequantProduct made for that reads what
// pack_w wrote.
class DequantProduct {
 public:
  DequantProduct(const DequantProblem& problem, Isa isa, bool packed = false);
  int64_t blocks() const { return row_tiles() * ceil_div(p_.n, tile_); }
  size_t scratch_bytes() const;
  void run(const DequantOperands& in, float* y, int64_t begin, int64_t end,
           std::byte* scratch) const;

  bool takes_panels() const;
  int64_t packed_bytes() const;
  std::string packed_form() const;
  void pack_w(const void* w, void* packed) const;

 private:
  int64_t row_tiles() const { return packed_ ? ceil_div(p_.m, kRowTile) : 1; }
  void run_rounded(const DequantOperands& in, float* y, int64_t begin, int64_t end,
                   std::byte* scratch) const;
  void run_panels(const DequantOperands& in, float* y, int64_t block, std::byte* scratch) const;

  static constexpr int64_t kRowTile = 128;

  DequantProblem p_;
  bool packed_;
  DotIsa isa_;
  BlockRowFns rows_;  // none: a format without
  BlockPanelFns panels_;
  RowProducts products_;
  int64_t tile_;  // columns of a block
};

}  // namespace rlx::cpu
