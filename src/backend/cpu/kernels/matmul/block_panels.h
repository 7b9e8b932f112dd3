// Products of many rows, rounded to blocks of 32 8-bit numbers (BlockX), with weights in ggml's blocks that were packed
// into panels of bytes and scales: VNNI multiplies, a product of scales counts for each block.
//
//   const BlockPanelFns f = block_panel_fns(RowFormat::q4_k, dot_isa(host_isa()));
//   for (each panel) f.pack(w, rows, k, panel);            // once: `panel` rows of w, fewer in the last
//   f.run({.m = 64, .n = 32, .k = 4096, ..});
//
// A panel has, for each block of numbers that share a scale, four bytes of k for every column, k / 4 times; then the scales
// of the columns, and their minima where there are any. Signed codes are stored plus 128, which the sums of x make up for.
#pragma once

#include <cstdint>

#include "rlx/backend/cpu/kernels/matmul/block_rows.h"

namespace rlx::cpu {

struct BlockPanelTile {
  int64_t m, n, k;       // n: of one panel
  const int8_t* code;    // [m, k]
  const float* scale;    // [m, k / 32]
  const float* sum;      // [m, k / 32], as in BlockX
  const int32_t* start;  // [m, k / 16]: where sums of integers begin, by starts()
  const uint8_t* panel;
  float* y;
  int64_t y_row;
};

struct BlockPanelFns {
  int64_t panel = 0;                      // columns; 0: the machine has no such products
  int64_t (*bytes)(int64_t k) = nullptr;  // of a panel
  void (*pack)(const uint8_t* w, int64_t n, int64_t k, uint8_t* panel) = nullptr;
  void (*round)(const float* x, int64_t x_row, int64_t m, int64_t k, const BlockX& to) = nullptr;
  void (*starts)(const int8_t* code, int64_t count, int32_t* start) = nullptr;
  void (*run)(const BlockPanelTile& tile) = nullptr;
};

template <DotIsa I>
BlockPanelFns block_panel_fns_of(RowFormat format);
BlockPanelFns block_panel_fns(RowFormat format, DotIsa isa);

}  // namespace rlx::cpu
