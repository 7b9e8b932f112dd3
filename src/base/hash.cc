#include "rlx/base/hash.h"

#include <cstring>

namespace rlx {

uint64_t hash_bytes(const void* data, size_t size, uint64_t seed) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint64_t h = mix(seed, size);
  for (; size >= 8; p += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    h = mix(h, word);
  }
  uint64_t tail = 0;
  if (size > 0) std::memcpy(&tail, p, size);
  return mix(h, tail);
}

}  // namespace rlx
