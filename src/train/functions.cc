#include "rlx/train/functions.h"

#include "rlx/ops/nn/losses.h"
#include "rlx/transform/reverse.h"

namespace rlx {

namespace {

// Added to the second word of a key before a number is folded in, so that the result is none of
// the keys that split_key makes of it (the fractional bits of the golden ratio).
constexpr double kFoldIn = 0x9e3779b9;

// A loss does not broadcast: [64, 1] against [64] would be a mean over [64, 64].
void same_shape(std::string_view loss, const TracedTensor& prediction, const TracedTensor& target) {
  user_check(prediction.shape() == target.shape(), "loss-shape",
             "{}: the prediction is {}, the target {}; the shapes must be equal", loss,
             prediction.type(), target.type());
}

}  // namespace

TracedTensor mse(const TracedTensor& prediction, const TracedTensor& target) {
  same_shape("mse", prediction, target);
  return (prediction - target).square().mean();
}

TracedTensor mean_absolute_error(const TracedTensor& prediction, const TracedTensor& target) {
  same_shape("mean_absolute_error", prediction, target);
  return (prediction - target).abs().mean();
}

TracedTensor huber(const TracedTensor& prediction, const TracedTensor& target, double delta) {
  user_check(delta > 0, "huber-delta", "huber: delta must be positive, got {}", delta);
  same_shape("huber", prediction, target);
  const TracedTensor error = (prediction - target).abs(), inner = error.minimum(delta);
  return (inner * (error - inner * 0.5)).mean();
}

TracedTensor cross_entropy(const TracedTensor& logits, const TracedTensor& labels,
                           double smoothing) {
  user_check(smoothing >= 0 && smoothing <= 1, "label-smoothing",
             "cross_entropy: smoothing must be in [0, 1], got {}", smoothing);
  TracedTensor hard = op::softmax_cross_entropy(logits, labels).mean();
  if (smoothing == 0) return hard;
  return hard * (1 - smoothing) - logits.log_softmax(-1).mean() * smoothing;
}

TracedTensor binary_cross_entropy(const TracedTensor& logits, const TracedTensor& target) {
  same_shape("binary_cross_entropy", logits, target);
  return op::bce_with_logits_loss(logits, target, LossAttrs{});
}

TracedTensor dropout(const TracedTensor& x, const TracedTensor& key, double rate, bool train) {
  user_check(rate >= 0 && rate < 1, "dropout-rate", "dropout: the rate must be in [0, 1), got {}",
             rate);
  if (!train || rate == 0) return x;
  const TracedTensor kept = op::random_uniform(key, {DType::F32, x.shape()}) >= rate;
  return where(kept, x * (1 / (1 - rate)), 0.0);
}

TracedTensors split_key(const TracedTensor& key, int64_t count) {
  const TracedTensor words = op::random_bits(key, {{count, 2}});
  TracedTensors keys;
  for (int64_t i = 0; i < count; ++i) keys.push_back(words[i]);
  return keys;
}

TracedTensor fold_in(const TracedTensor& key, const TracedTensor& number) {
  user_check(number.rank() == 0 && is_int(number.dtype()), "fold-in",
             "fold_in: the number must be an integer of rank 0, got {}", number.type());
  const TracedTensor words = stack({number.to(DType::U32), key.like(kFoldIn)});
  return op::random_bits(key + words, {{2}});
}

TracedTensors gradients(const TracedTensor& loss, const TracedTensors& wrt) {
  Builder& b = loss.builder();
  Values values;
  for (const TracedTensor& x : wrt) values.push_back(x.value_in(b));
  TracedTensors out;
  for (Value v : gradients(b, loss.value_in(b), values)) out.push_back(loss.make(v));
  return out;
}

}  // namespace rlx
