// Hashing: a 64-bit mixing hash for keys in memory, and FNV-style hashing of bytes for checksums of
// files.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rlx {

inline uint64_t mix(uint64_t h, uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
  h ^= h >> 32;
  h *= 0xd6e8feb86659fd93ull;
  h ^= h >> 32;
  return h;
}

uint64_t hash_bytes(const void* data, size_t size, uint64_t seed = 0xcbf29ce484222325ull);

inline uint64_t hash_text(std::string_view s) { return hash_bytes(s.data(), s.size()); }

}  // namespace rlx
