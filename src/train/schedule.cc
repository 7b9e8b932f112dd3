#include "rlx/train/schedule.h"

#include <cmath>

namespace rlx {

void check_schedule(const char* who, const Schedule& schedule) {
  user_check(schedule != nullptr, "schedule",
             "{}: a schedule is empty; constant_rate(x) is the rate x", who);
}

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

Schedule cosine_rate(double peak, int64_t total, double floor) {
  user_check(total > 0, "schedule", "cosine_rate: needs a positive number of steps, got {}", total);
  return warmup_cosine({.peak = peak, .warmup = 0, .total = total, .floor = floor});
}

Schedule exponential_rate(double rate, double factor, int64_t every, bool staircase) {
  user_check(factor > 0 && every > 0, "schedule",
             "exponential_rate: the factor and its number of steps must be positive, got {} and {}",
             factor, every);
  return [=](const TracedTensor& step) {
    const TracedTensor times = step / static_cast<double>(every);
    return ((staircase ? times.floor() : times) * std::log(factor)).exp() * rate;
  };
}

namespace {

void check_ascending(const char* who, const std::vector<int64_t>& steps) {
  for (size_t i = 0; i < steps.size(); ++i)
    user_check(steps[i] > (i == 0 ? 0 : steps[i - 1]), "schedule",
               "{}: its steps must be positive and ascend, got {}", who, fmt::join(steps, ", "));
}

}  // namespace

Schedule piecewise_rate(double rate, std::vector<std::pair<int64_t, double>> factors) {
  std::vector<int64_t> steps;
  for (const auto& [step, factor] : factors) steps.push_back(step);
  check_ascending("piecewise_rate", steps);
  return [rate, factors = std::move(factors)](const TracedTensor& step) {
    TracedTensor now = step.like(rate);
    double then = rate;
    for (const auto& [from, factor] : factors) {
      then *= factor;
      now = where(step >= static_cast<double>(from), then, now);
    }
    return now;
  };
}

Schedule join_rates(std::vector<Schedule> schedules, std::vector<int64_t> boundaries) {
  user_check(schedules.size() == boundaries.size() + 1, "schedule",
             "join_rates: {} schedules need {} boundaries, got {}", schedules.size(),
             schedules.empty() ? 0 : schedules.size() - 1, boundaries.size());
  for (const Schedule& schedule : schedules) check_schedule("join_rates", schedule);
  check_ascending("join_rates", boundaries);
  return [schedules = std::move(schedules),
          boundaries = std::move(boundaries)](const TracedTensor& step) {
    TracedTensor rate = schedules[0](step);
    for (size_t i = 0; i < boundaries.size(); ++i) {
      const auto from = static_cast<double>(boundaries[i]);
      // Before its time a schedule is asked for its first step: it need not know negative ones.
      rate = where(step < from, rate, schedules[i + 1]((step - from).maximum(0)));
    }
    return rate;
  };
}

Schedule warmup(Schedule schedule, int64_t steps) {
  check_schedule("warmup", schedule);
  user_check(steps > 0, "schedule", "warmup: needs a positive number of steps, got {}", steps);
  return [schedule = std::move(schedule), steps](const TracedTensor& step) {
    return schedule(step) * ((step + 1) * (1 / static_cast<double>(steps))).minimum(1);
  };
}

}  // namespace rlx
