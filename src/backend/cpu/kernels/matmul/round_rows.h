// Rows of x as blocks of 8-bit numbers (BlockX). Included only by the files compiled for one instruction set.
#pragma once

#include "rlx/backend/cpu/kernels/matmul/block_rows.h"

namespace rlx::cpu {

// As fake_quantize computes it (ops/quant/quantise.cc).
template <DotIsa I, bool kShifted>
void round_rows(const float* x, int64_t x_row, int64_t m, int64_t k, const BlockX& to) {
  constexpr uint32_t kInfinity = 0x7f800000;
  int64_t block = 0;
  for (int64_t r = 0; r < m; ++r)
    for (int64_t at = 0; at < k; at += kXBlock, ++block) {
      const float* const from = x + r * x_row + at;
      int8_t* const code = to.code + r * k + at;
      uint32_t bits[kXBlock], top = 0;
      __builtin_memcpy(bits, from, sizeof bits);
      for (uint32_t v : bits) top = top < (v & 0x7fffffff) ? v & 0x7fffffff : top;
      float most;
      __builtin_memcpy(&most, &top, 4);
      const bool finite = top < kInfinity;
      const float part = (most > kSmallestXLimit ? most : kSmallestXLimit) / 127;
      const float scale = part > kSmallestXScale ? part : kSmallestXScale;
      int32_t sum = 0;
      for (int i = 0; i < kXBlock; ++i) {
        const float y = finite ? from[i] / scale : 0;
        auto q = static_cast<int32_t>(y);
        const float rest = y - static_cast<float>(q);
        q += static_cast<int32_t>(rest >= 0.5f) - static_cast<int32_t>(rest <= -0.5f);
        q = q > 127 ? 127 : q < -127 ? -127 : q;
        sum += q;
        code[i] = static_cast<int8_t>(kShifted ? q ^ 0x80 : q);
      }
      to.scale[block] = finite ? scale : __builtin_nanf("");
      to.sum[block] = to.scale[block] * static_cast<float>(sum);
    }
}

}  // namespace rlx::cpu
