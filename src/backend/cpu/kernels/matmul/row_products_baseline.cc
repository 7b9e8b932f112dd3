// Row products with 16-byte vectors.
#include "rlx/backend/cpu/kernels/matmul/row_products_impl.h"

namespace rlx::cpu {

template RowProducts row_products_of<16>();

}  // namespace rlx::cpu
