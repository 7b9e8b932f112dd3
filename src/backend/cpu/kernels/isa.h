// Which vector instruction set the native kernels run on.
//
// Kernels that need wide vectors are written once, as templates over the vector width, and compiled
// once per Isa: the build makes files <name>_<isa>.cc that state kVectorBytes and include <name>_impl.h,
// which ends in what it instantiates for that width. host_isa() picks the best one this machine has.
//
//   const Isa isa = host_isa();            // Isa::Avx512 on a server of today
//   MatmulPlan::make(problem, Isa::Avx2);  // tests run every Isa that the host supports
//   for_isa(isa, [](auto width) { return line_fns_of<width>(); });
//
// A result depends on the Isa (it sets the order in which lanes are summed), never on the number of
// threads.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "rlx/backend/cpu/kernels/dot_isa.h"

namespace rlx::cpu {

enum class Isa : uint8_t {
  Baseline,  // 16-byte vectors: what every machine of this architecture has
  Avx2,      // AVX2 with FMA and F16C
  Avx512,    // AVX-512 F, BW, DQ, VL
};

// The best instruction set of this machine and operating system; asked once.
Isa host_isa();

// Whether this machine can run kernels compiled for `isa`.
bool isa_supported(Isa isa);

std::string_view isa_name(Isa isa);

int vector_bytes(Isa isa);

[[noreturn]] void fail_without(Isa isa);  // a kernel was asked for that this architecture has not

[[noreturn]] void fail_without_dots(DotIsa isa);

// f with the width of the instruction set's vectors in bytes, a constant: picks what was compiled for it.
template <class F>
auto for_isa(Isa isa, F&& f) {
#if defined(__x86_64__)
  if (isa == Isa::Avx512) return f(std::integral_constant<int, 64>());
  if (isa == Isa::Avx2) return f(std::integral_constant<int, 32>());
#endif
  if (isa != Isa::Baseline) fail_without(isa);
  return f(std::integral_constant<int, 16>());
}

// DotIsa (dot_isa.h) for kernels of bytes:
//
//   const DotIsa dots = dot_isa(isa);
//   for_dot_isa(dots, [](auto d) { return byte_dot_fns_of<d>(); });
//
// The best that this machine has for vectors no wider than those of `isa`.
DotIsa dot_isa(Isa isa);
bool dot_isa_supported(DotIsa isa);
std::string_view dot_isa_name(DotIsa isa);

// f with the constant `isa`: picks what was compiled for it.
template <class F>
auto for_dot_isa(DotIsa isa, F&& f) {
#if defined(__x86_64__)
  switch (isa) {
    case DotIsa::Avx512Vnni:
      return f(std::integral_constant<DotIsa, DotIsa::Avx512Vnni>());
    case DotIsa::AvxVnni:
      return f(std::integral_constant<DotIsa, DotIsa::AvxVnni>());
    case DotIsa::Avx512:
      return f(std::integral_constant<DotIsa, DotIsa::Avx512>());
    case DotIsa::Avx2:
      return f(std::integral_constant<DotIsa, DotIsa::Avx2>());
    case DotIsa::Baseline:
      break;
  }
#endif
  if (isa != DotIsa::Baseline) fail_without_dots(isa);
  return f(std::integral_constant<DotIsa, DotIsa::Baseline>());
}

}  // namespace rlx::cpu
