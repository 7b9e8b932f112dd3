#include "rlx/backend/cpu/kernels/isa.h"

#include "rlx/base/error.h"

namespace rlx::cpu {

bool isa_supported(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::Baseline:
      return true;
    case Isa::Avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case Isa::Avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
  return false;
#else
  return isa == Isa::Baseline;
#endif
}

Isa host_isa() {
  static const Isa best = isa_supported(Isa::Avx512) ? Isa::Avx512
                          : isa_supported(Isa::Avx2) ? Isa::Avx2
                                                     : Isa::Baseline;
  return best;
}

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::Baseline:
      return "baseline";
    case Isa::Avx2:
      return "avx2";
    case Isa::Avx512:
      return "avx512";
  }
  return "unknown";
}

int vector_bytes(Isa isa) {
  return for_isa(isa, [](auto width) -> int { return width; });
}

void fail_without(Isa isa) {
  fail(ErrorKind::internal, "internal", "this machine has no {}", isa_name(isa));
}

bool dot_isa_supported(DotIsa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case DotIsa::Baseline:
      return true;
    case DotIsa::Avx2:
      return isa_supported(Isa::Avx2);
    case DotIsa::Avx512:
      return isa_supported(Isa::Avx512);
    case DotIsa::AvxVnni:
      return isa_supported(Isa::Avx2) && __builtin_cpu_supports("avxvnni");
    case DotIsa::Avx512Vnni:
      return isa_supported(Isa::Avx512) && __builtin_cpu_supports("avx512vnni");
  }
  return false;
#else
  return isa == DotIsa::Baseline;
#endif
}

DotIsa dot_isa(Isa isa) {
  if (isa == Isa::Avx512)
    return dot_isa_supported(DotIsa::Avx512Vnni) ? DotIsa::Avx512Vnni : DotIsa::Avx512;
  if (isa == Isa::Avx2) return dot_isa_supported(DotIsa::AvxVnni) ? DotIsa::AvxVnni : DotIsa::Avx2;
  return DotIsa::Baseline;
}

std::string_view dot_isa_name(DotIsa isa) {
  switch (isa) {
    case DotIsa::Baseline:
      return "baseline";
    case DotIsa::Avx2:
      return "avx2";
    case DotIsa::Avx512:
      return "avx512";
    case DotIsa::AvxVnni:
      return "avx-vnni";
    case DotIsa::Avx512Vnni:
      return "avx512-vnni";
  }
  return "unknown";
}

void fail_without_dots(DotIsa isa) {
  fail(ErrorKind::internal, "internal", "this machine has no {}", dot_isa_name(isa));
}

}  // namespace rlx::cpu
