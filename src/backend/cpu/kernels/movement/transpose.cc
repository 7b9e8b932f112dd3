#include "rlx/backend/cpu/kernels/movement/transpose.h"

#include "rlx/backend/cpu/kernels/isa.h"

namespace rlx::cpu {

TransposeFn transpose_fn(Isa isa, size_t element_bytes) {
  return for_isa(isa, [&](auto width) { return transpose_fn_of<width>(element_bytes); });
}

}  // namespace rlx::cpu
