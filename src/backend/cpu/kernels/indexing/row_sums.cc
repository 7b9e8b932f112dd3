#include "rlx/backend/cpu/kernels/indexing/row_sums.h"

#include "rlx/backend/cpu/kernels/isa.h"

namespace rlx::cpu {

RowSumFns row_sum_fns(Isa isa) {
  return for_isa(isa, [](auto width) { return row_sum_fns_of<width>(); });
}

}  // namespace rlx::cpu
