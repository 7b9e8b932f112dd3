// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a
// counter-based random generator. Block `counter` of the stream `key` is a pure function of both,
// so any element of a random tensor can be computed alone, in any order, on any device.
//
//   PhiloxBlock r = philox4x32({key_lo, key_hi}, {i, 0, 0, 0});   // 4 random u32
//   float u = philox_uniform(r[0]);                               // [0, 1)
#pragma once

#include <array>
#include <cstdint>

namespace rlx {

using PhiloxKey = std::array<uint32_t, 2>;
using PhiloxBlock = std::array<uint32_t, 4>;

inline constexpr uint32_t kPhiloxM0 = 0xD2511F53;
inline constexpr uint32_t kPhiloxM1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9;
inline constexpr uint32_t kPhiloxWeyl1 = 0xBB67AE85;
// The first multiplier of the specification's reference, whose streams match no other library; for
// parity only.
inline constexpr uint32_t kPhiloxReferenceM0 = 0xD2561A75;

// The 4 words of block `counter` (word 0 is the least significant) of the stream `key`.
constexpr PhiloxBlock philox4x32(PhiloxKey key, PhiloxBlock counter, uint32_t m0 = kPhiloxM0) {
  PhiloxBlock x = counter;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{m0} * x[0];
    const uint64_t p1 = uint64_t{kPhiloxM1} * x[2];
    x = {static_cast<uint32_t>(p1 >> 32) ^ x[1] ^ key[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ x[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kPhiloxWeyl0;
    key[1] += kPhiloxWeyl1;
  }
  return x;
}

// The counter of block `index`.
constexpr PhiloxBlock philox_counter(uint64_t index) {
  return {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0};
}

// The key of a 64-bit seed.
constexpr PhiloxKey philox_key(uint64_t seed) {
  return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
}

// Uniform in [0, 1): the top 24 (53) bits.
constexpr float philox_uniform(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }
constexpr double philox_uniform(uint32_t high, uint32_t low) {
  return static_cast<double>(((uint64_t{high} << 32) | low) >> 11) * 0x1p-53;
}

}  // namespace rlx
