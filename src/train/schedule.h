// Learning-rate schedules: a rate as a function of the number of finished steps, computed inside
// the program.
//
//   Schedule s = warmup_cosine({.peak = 2e-3, .warmup = 100, .total = 1000, .floor = 0.1});
#pragma once

#include <functional>

#include "rlx/front/traced.h"

namespace rlx {

// step: finished steps as a float of rank 0. The result has its type.
using Schedule = std::function<TracedTensor(const TracedTensor& step)>;

Schedule constant_rate(double rate);

struct WarmupCosine {
  double peak = 1e-3;
  int64_t warmup = 0;  // steps: rate = peak * (step + 1) / warmup
  int64_t total =
      1;  // then half a cosine from peak to peak * floor, reached at step `total` and kept
  double floor = 0;
};
// Raises "schedule" unless 0 <= warmup < total.
Schedule warmup_cosine(const WarmupCosine& options);

// Linear from `from` to `to` over `total` steps, then `to`.
Schedule linear_rate(double from, double to, int64_t total);

}  // namespace rlx
