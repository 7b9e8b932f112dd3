// What is large or small in a contiguous line, found vectors at a time; compiled once per instruction
// set. Every dtype that has an order but bool.
//
//   next_beyond<float>(isa, true)(x, i, n, limit)       // the first of x[i, n) above the limit, or n
//   extreme_fns<float>(isa).positions[minimum][last](x, n)
#pragma once

#include <cstdint>

#include "rlx/backend/cpu/kernels/element.h"

namespace rlx::cpu {

// From isa.h, which must not be included where code is compiled for a wider instruction set (simd.h).
enum class Isa : uint8_t;

// The bits of a half as an integer of the same order: both zeros are one, all NaNs the largest.
template <bool f16>
[[gnu::always_inline]] inline int16_t half_order(int16_t bits) {
  constexpr int16_t kInfinity = f16 ? 0x7c00 : 0x7f80;
  const auto size = static_cast<int16_t>(bits & 0x7fff);
  if (size > kInfinity) return 0x7fff;
  return static_cast<int16_t>(bits < 0 ? -size : size);
}

// The first i of [from, n) where x[i] may come before `limit` in the order of sorting, largest first
// or smallest first, NaN the largest; n when there is none. May find what does not, when the limit is
// NaN.
template <class S>
using NextBeyond = int64_t (*)(const S* x, int64_t from, int64_t n, S limit);

// Where the largest (smallest) of n elements is, the first or last of equals; NaN counts as the largest
// (smallest). n > 0.
template <class S>
using ExtremePosition = int64_t (*)(const S* x, int64_t n);

// The same of `count` lines side by side, whose elements are `step` apart, as far as whole vectors of
// lines go: how many of them were done.
template <class S>
using ExtremeColumns = int64_t (*)(const S* x, int64_t n, int64_t step, int64_t count,
                                   int64_t* results);

template <class S>
struct ExtremeFns {
  NextBeyond<S> above, below;
  ExtremePosition<S> positions[2][2];  // [minimum][last]
  ExtremeColumns<S> columns[2][2];
};

// Defined in the file compiled for vectors of W bytes.
template <class S, int W>
ExtremeFns<S> extreme_fns_of();

template <class S>
ExtremeFns<S> extreme_fns(Isa isa);

template <class S>
NextBeyond<S> next_beyond(Isa isa, bool largest) {
  const ExtremeFns<S> fns = extreme_fns<S>(isa);
  return largest ? fns.above : fns.below;
}

}  // namespace rlx::cpu
