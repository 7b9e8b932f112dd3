// Which instructions sum products of bytes. A kernel of integers gives the same numbers with each, so this is not part of
// what a result depends on. The build compiles files <name>_dots_impl.h for all of these, other <name>_impl.h once per Isa
// (isa.h), which also says what the machine has.
#pragma once

#include <cstdint>

namespace rlx::cpu {

enum class DotIsa : uint8_t {
  Baseline,    // pairs of 16-bit numbers, in the vectors of the Isa of this name
  Avx2,        // the same
  Avx512,      // the same
  AvxVnni,     // four bytes with four bytes, 32-byte vectors
  Avx512Vnni,  // the same, 64-byte vectors
};

constexpr bool has_vnni(DotIsa isa) { return isa == DotIsa::AvxVnni || isa == DotIsa::Avx512Vnni; }
constexpr int dot_vector_bytes(DotIsa isa) {
  switch (isa) {
    case DotIsa::Avx512Vnni:
    case DotIsa::Avx512:
      return 64;
    case DotIsa::AvxVnni:
    case DotIsa::Avx2:
      return 32;
    case DotIsa::Baseline:
      break;
  }
  return 16;
}

}  // namespace rlx::cpu
