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

}  // namespace rlx::cpu
