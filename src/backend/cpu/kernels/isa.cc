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

}  // namespace rlx::cpu
