#include "rlx/backend/cpu/kernels/indexing/extremes.h"

#include "rlx/backend/cpu/kernels/isa.h"

namespace rlx::cpu {

template <class S>
ExtremeFns<S> extreme_fns(Isa isa) {
  return for_isa(isa, [](auto width) { return extreme_fns_of<S, width>(); });
}

template ExtremeFns<float> extreme_fns(Isa);
template ExtremeFns<double> extreme_fns(Isa);
template ExtremeFns<f16_t> extreme_fns(Isa);
template ExtremeFns<bf16_t> extreme_fns(Isa);
template ExtremeFns<int8_t> extreme_fns(Isa);
template ExtremeFns<int16_t> extreme_fns(Isa);
template ExtremeFns<int32_t> extreme_fns(Isa);
template ExtremeFns<int64_t> extreme_fns(Isa);
template ExtremeFns<uint8_t> extreme_fns(Isa);
template ExtremeFns<uint32_t> extreme_fns(Isa);
template ExtremeFns<bool_t> extreme_fns(Isa);

}  // namespace rlx::cpu
