#include "rlx/train/schedule.h"

#include <cmath>

namespace rlx {

Schedule constant_rate(double rate) {
  return [rate](const TracedTensor& step) { return step.like(rate); };
}

Schedule warmup_cosine(const WarmupCosine& o) {
  user_check(o.warmup >= 0 && o.warmup < o.total, "schedule",
             "warmup_cosine: needs 0 <= warmup < total, got {} and {}", o.warmup, o.total);
  return [o](const TracedTensor& step) {
    const auto warmup = static_cast<double>(o.warmup),
               decay = static_cast<double>(o.total - o.warmup);
    const TracedTensor done = ((step - warmup) * (1 / decay)).minimum(1);
    const TracedTensor cosine =
        (done * M_PI).cos() * (o.peak * (1 - o.floor) / 2) + o.peak * (1 + o.floor) / 2;
    return o.warmup == 0 ? cosine : where(step < warmup, (step + 1) * (o.peak / warmup), cosine);
  };
}

Schedule linear_rate(double from, double to, int64_t total) {
  user_check(total > 0, "schedule", "linear_rate: needs a positive number of steps, got {}", total);
  return [=](const TracedTensor& step) {
    return (step * (1 / static_cast<double>(total))).minimum(1) * (to - from) + from;
  };
}

}  // namespace rlx
