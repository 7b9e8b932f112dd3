// Sums of chosen rows: what scattering by addition does for one target row, compiled once per
// instruction set.
//
//   row_sum_fns(isa).of<float>()(out, start, updates, stride, which, count, listed, n, true);
//
// out[t] = start[t] + the sum of updates[w * stride + t] for t in [0, n), in the order of which[0,
// count), whose lower 32 bits are w. The list goes on to `listed`: what it names will be read next.
// start: nullptr (zeros), or out itself. keeps_lost: what an addition rounds away is added with
// the next (compensated.h). f16 and bf16 are added in f32 and rounded once.
#pragma once

#include <cstdint>

#include "rlx/backend/cpu/kernels/element.h"

namespace rlx::cpu {

// From isa.h, which must not be included where code is compiled for a wider instruction set (simd.h).
enum class Isa : uint8_t;

template <class S>
using RowSum = void (*)(S* out, const S* start, const S* updates, int64_t stride,
                        const uint64_t* which, int64_t count, int64_t listed, int64_t n,
                        bool keeps_lost);

struct RowSumFns {
  RowSum<float> f32;
  RowSum<double> f64;
  RowSum<f16_t> f16;
  RowSum<bf16_t> bf16;

  template <class S>
  RowSum<S> of() const {
    if constexpr (__is_same(S, float))
      return f32;
    else if constexpr (__is_same(S, double))
      return f64;
    else if constexpr (__is_same(S, f16_t))
      return f16;
    else
      return bf16;
  }
};

RowSumFns row_sum_fns(Isa isa);

// Defined in the file compiled for vectors of W bytes.
template <int W>
RowSumFns row_sum_fns_of();

}  // namespace rlx::cpu
