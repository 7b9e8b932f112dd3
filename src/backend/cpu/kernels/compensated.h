// Sums of many terms that keep their digits: terms are added plainly over runs of a few hundred, and
// what adding a run to the sum rounds away is kept apart and added with the next run. So a term passes
// through as many roundings as a run is long and a few more, however many there are.
//
//   T sum{}, lost{};
//   for (...) add_run(sum, lost, total_of_a_run);
//   return sum + lost;
//
// T is float, double or a vector of them. All inlined, always: this is compiled for several
// instruction sets (simd.h).
#pragma once

#include <cstdint>

namespace rlx::cpu {

// The most terms that the kernels of products, windows and scattered updates add plainly.
inline constexpr int64_t kPlainTerms = 320;

template <class T>
[[gnu::always_inline]] inline void add_run(T& sum, T& lost, T run) {
  const T x = run + lost, total = sum + x, added = total - sum;
  const T error = (sum - (total - added)) + (x - added);
  lost = error == error ? error : T{};  // an infinity loses NaN
  sum = total;
}

}  // namespace rlx::cpu
