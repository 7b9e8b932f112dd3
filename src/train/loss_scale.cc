#include "rlx/train/loss_scale.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace rlx {

void check_loss_scale(const LossScaleOptions& o) {
  const auto positive = [](double x) { return std::isfinite(x) && x > 0; };
  user_check(positive(o.least) && positive(o.most) && o.least <= o.most, "loss-scale",
             "loss scale: it stays between {} and {}, which is no range of positive numbers",
             o.least, o.most);
  user_check(o.initial >= o.least && o.initial <= o.most, "loss-scale",
             "loss scale: {} does not lie between {} and {}", o.initial, o.least, o.most);
  user_check(std::isfinite(o.growth) && o.growth >= 1, "loss-scale",
             "loss scale: it grows by a factor of 1 or more, not {}", o.growth);
  user_check(o.backoff > 0 && o.backoff <= 1, "loss-scale",
             "loss scale: it backs off by a factor in (0, 1], not {}", o.backoff);
  user_check(o.interval >= 1, "loss-scale", "loss scale: it grows after 1 step or more, not {}",
             o.interval);
}

LossScaler::LossScaler(const LossScaleOptions& options, MakeParam param)
    : options_(options),
      scale_(param(kLossScale, {DType::F32, {}})),
      good_(param(kGoodSteps, {DType::I32, {}})),
      skipped_(param(kSkippedSteps, {DType::I32, {}})) {
  check_loss_scale(options);
}

NamedTensors LossScaler::initial() const {
  return {{kLossScale, Tensor::scalar(DType::F32, options_.initial)},
          {kGoodSteps, Tensor(DType::I32, {})},
          {kSkippedSteps, Tensor(DType::I32, {})}};
}

TracedTensor LossScaler::unscaled(const TracedTensor& gradient) const {
  return gradient * (1 / scale_).to(gradient.dtype());
}

void LossScaler::watch(const TracedTensors& gradients) {
  // The largest of all is finite where all are: an infinity is largest, and NaN propagates.
  TracedTensor largest;
  for (const TracedTensor& g : gradients) {
    const TracedTensor m = g.abs().max().to(DType::F32);
    largest = largest.valid() ? largest.maximum(m) : m.maximum(0);  // 0: of no elements
  }
  check(largest.valid(), "loss scale: there are no gradients to watch");
  finite_ = op::is_finite(largest);
}

void LossScaler::append_updates(Builder& b, Chosen chosen) const {
  const auto update = [&](const char* name, const TracedTensor& finished,
                          const TracedTensor& skipped, const TracedTensor& before) {
    b.update(name, chosen(unless_skipped(finished, skipped), before).value());
  };
  update(kSkippedSteps, skipped_, skipped_ + 1, skipped_);
  const TracedTensor good = good_ + 1, none = good.like(0);
  if (options_.mode == LossScaleMode::fixed) {
    update(kGoodSteps, good, none, good_);
    return;
  }
  const int64_t interval = std::min<int64_t>(options_.interval, INT32_MAX);  // what good_ counts to
  const TracedTensor grows = op::ge(good, good.like(interval));
  const TracedTensor larger = (scale_ * options_.growth).minimum(options_.most),
                     smaller = (scale_ * options_.backoff).maximum(options_.least);
  update(kLossScale, op::select(grows, larger, scale_), smaller, scale_);
  update(kGoodSteps, op::select(grows, none, good), none, good_);
}

}  // namespace rlx
