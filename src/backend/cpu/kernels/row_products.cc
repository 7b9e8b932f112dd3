#include "rlx/backend/cpu/kernels/row_products.h"

#include "rlx/backend/cpu/kernels/isa.h"
#include "rlx/base/error.h"

namespace rlx::cpu {

RowProducts row_products(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::Avx512) return row_products_of<64>();
  if (isa == Isa::Avx2) return row_products_of<32>();
#endif
  check(isa == Isa::Baseline, "row products: this machine has no {}", isa_name(isa));
  return row_products_of<16>();
}

}  // namespace rlx::cpu
