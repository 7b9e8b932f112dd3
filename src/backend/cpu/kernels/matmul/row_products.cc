#include "rlx/backend/cpu/kernels/matmul/row_products.h"

#include "rlx/backend/cpu/kernels/isa.h"

namespace rlx::cpu {

RowProducts row_products(Isa isa) {
  return for_isa(isa, [](auto width) { return row_products_of<width>(); });
}

}  // namespace rlx::cpu
