// The codebooks of the IQ formats.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rlx::quant {

template <size_t kElements, size_t kWords>
using Grid = std::array<std::array<int8_t, kElements>, kWords>;

// Codes of level indices (2 bits for up to 4 levels, else 3) as vectors.
template <size_t kElements, size_t kWords>
constexpr Grid<kElements, kWords> expand(const uint16_t (&codes)[kWords],
                                         const std::array<int8_t, 8>& levels) {
  const int width = levels[3] == 0 ? 2 : 3;
  Grid<kElements, kWords> out{};
  for (size_t w = 0; w < kWords; ++w)
    for (size_t i = 0; i < kElements; ++i)
      out[w][i] = levels[codes[w] >> (static_cast<size_t>(width) * i) & ((1u << width) - 1)];
  return out;
}

extern const Grid<8, 2048> kIq1;
extern const Grid<8, 256> kIq2xxs;
extern const Grid<8, 512> kIq2xs;
extern const Grid<8, 1024> kIq2s;
extern const Grid<4, 256> kIq3xxs;
extern const Grid<4, 512> kIq3s;

}  // namespace rlx::quant
