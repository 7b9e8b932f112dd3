// Products of a few rows with weights in ggml's blocks, straight from the blocks: the formats that are made for it, each
// decoded into registers (or bytes in the first cache) and multiplied at once.
//
//   const BlockRowFns f = block_row_fns(RowFormat::q4_k, dot_isa(host_isa()));
//   f.exact({.m = 1, .n = 64, .k = 4096, .x = x, .x_row = 4096, .w = w, .y = y, .y_row = n});
//
// `exact` multiplies what the blocks decode to with f32; `rounded` multiplies integers with x rounded to blocks of 32
// (BlockX), a product of scales for each. Every element is summed over k in one order that depends on the vectors' width
// and k alone.
#pragma once

#include <cstdint>

#include "rlx/backend/cpu/kernels/dot_isa.h"

namespace rlx::cpu {

// Rows of x rounded as fake_quantize {bits = 8} does, 32 numbers to a channel. A block with a NaN or an infinity is NaN.
inline constexpr int64_t kXBlock = 32;
inline constexpr float kSmallestXScale = 1e-12f;
inline constexpr auto kSmallestXLimit = static_cast<float>(1e-12 * 127);
struct BlockX {
  int8_t* code;  // [m, k]; as the instruction set wants them
  float* scale;  // [m, k / 32]
  float* sum;    // [m, k / 32]: scale times the sum of the codes
};

struct BlockRows {
  int64_t m, n, k;  // k is whole blocks
  const float* x;
  int64_t x_row;
  BlockX rounded;    // read by `rounded` only
  const uint8_t* w;  // n rows
  float* y;
  int64_t y_row;
};

struct BlockRowFns {
  void (*exact)(const BlockRows& rows) = nullptr;
  // The numbers of n rows, [n, k] dense.
  void (*unpack)(const uint8_t* w, int64_t n, int64_t k, float* out) = nullptr;
  void (*rounded)(const BlockRows& rows) = nullptr;
  void (*round)(const float* x, int64_t x_row, int64_t m, int64_t k, const BlockX& to) = nullptr;
};

// The formats, in the order of this list.
enum class RowFormat : uint8_t { q8_0, q4_0, q4_k, q5_k, q6_k, iq4_xs };

template <DotIsa I>
BlockRowFns block_row_fns_of(RowFormat format);
BlockRowFns block_row_fns(RowFormat format, DotIsa isa);

}  // namespace rlx::cpu
