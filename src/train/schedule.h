// Learning-rate schedules: a rate as a function of the number of finished steps, computed inside
// the program.
//
//   Schedule s = warmup_cosine({.peak = 2e-3, .warmup = 100, .total = 1000, .floor = 0.1});
//   Schedule s = join_rates({linear_rate(0, 1e-3, 100), exponential_rate(1e-3, 0.5, 1000)}, {100});
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "rlx/front/traced.h"

namespace rlx {

// step: finished steps as a float of rank 0. The result has its type.
using Schedule = std::function<TracedTensor(const TracedTensor& step)>;
void check_schedule(const char* who,
                    const Schedule& schedule);  // raises "schedule" for an empty one

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

// Half a cosine from `peak` to peak * floor over `total` steps, then that.
Schedule cosine_rate(double peak, int64_t total, double floor = 0);

// rate * factor^(step / every); with `staircase` the quotient is rounded down. Raises "schedule"
// unless factor and every are positive.
Schedule exponential_rate(double rate, double factor, int64_t every, bool staircase = false);

// `rate`, times each factor whose step has come. Raises "schedule" unless steps ascend from 1.
Schedule piecewise_rate(double rate, std::vector<std::pair<int64_t, double>> factors);

// ---- composed

// The first schedule up to boundaries[0], from there the second, which counts its steps from the
// boundary, and so on. Raises "schedule" unless there is a boundary between any two schedules and
// they ascend from 1.
Schedule join_rates(std::vector<Schedule> schedules, std::vector<int64_t> boundaries);

// Times (step + 1) / steps, up to 1. Raises "schedule" unless steps > 0.
Schedule warmup(Schedule schedule, int64_t steps);

}  // namespace rlx
