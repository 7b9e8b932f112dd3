// One tile of a matrix product: the interface between MatmulPlan and the code compiled per
// instruction set.
#pragma once

#include <cstdint>

#include "rlx/backend/cpu/kernels/element.h"

namespace rlx::cpu {

// Pointers stand at the tile's first row of A, first column of B and first element of C; strides in
// elements of the storage types.
struct MatmulTileCall {
  int64_t m, n, k;
  const void* a;
  int64_t a_row, a_col;
  const void* b;  // used when packed is nullptr
  int64_t b_row, b_col;
  const void* packed;  // panels that pack_tile_b wrote for all of k
  void* c;
  int64_t c_row, c_col;
  bool accumulate;
  int64_t k_block;   // how much of k is summed before C is touched
  void* scratch[4];  // for a block of B, of A, for C, and for a run of k beside what C lost
};

// Which scratch areas a tile needs, in bytes (for scratch[0..3]), and the size of B packed.
struct MatmulTileSizes {
  int64_t scratch[4];
  int64_t packed_column_bytes;  // of one packed column of B, all of k
  int64_t panel;                // columns are packed in multiples of this
};

struct MatmulTileFns {
  void (*run)(const MatmulTileCall& call);
  // Packs columns of B for all of k, as `packed` wants them; `n` need not be whole panels.
  void (*pack)(int64_t k, int64_t n, const void* b, int64_t b_row, int64_t b_col, void* packed);
  // Reads only the sizes, strides and k_block of the call.
  MatmulTileSizes (*sizes)(const MatmulTileCall& call);
};

// For storage type S of A and B, O of C, and vectors of W bytes. Defined in the file compiled for
// that width.
template <class S, class O, int W>
MatmulTileFns matmul_tile_fns();

// The list of storage types (of A and B, of C) that exist.
// clang-format off
#define RLX_MATMUL_PAIRS(F) \
  F(float, float) F(double, double) F(f16_t, f16_t) F(f16_t, float) \
  F(bf16_t, bf16_t) F(bf16_t, float) F(int8_t, int8_t) F(int8_t, int32_t) \
  F(uint8_t, uint8_t) F(uint8_t, int32_t) F(int16_t, int16_t) F(int16_t, int32_t) \
  F(int32_t, int32_t) F(uint32_t, uint32_t) F(int64_t, int64_t) F(bool_t, bool_t) \
  F(c64_t, c64_t)
// clang-format on

}  // namespace rlx::cpu
