// Loss scaling: gradients that f16 would round to 0 are computed of a loss that is multiplied by a scale, and divided by
// it afterwards in f32. A step whose gradients are not all finite is skipped inside the program: parameters, the
// optimiser's state and the number of finished steps keep their values, and the step is counted.
//
//   TrainOptions o;
//   o.precision = PrecisionPolicy::mixed(Precision::F16);          // scales by itself
//   o.loss_scale = {.mode = LossScaleMode::fixed, .initial = 1024};
//
// The scale is a parameter of the step, "loss_scale" (f32), and so are "loss_scale.good_steps" (finished since it last
// changed) and "loss_scale.skipped_steps" (in all), both i32: a checkpoint of the state goes on bit for bit.
//
// Raises Error(user, "loss-scale") for numbers that make no sense.
#pragma once

#include "rlx/front/traced.h"
#include "rlx/ops/evaluate.h"

namespace rlx {

enum class LossScaleMode : uint8_t {
  automatic,  // dynamic where the policy computes in f16, else none
  none,
  fixed,    // the scale stays as it is
  dynamic,  // doubled after so many finished steps, halved when one is skipped
};

struct LossScaleOptions {
  LossScaleMode mode = LossScaleMode::automatic;
  double initial = 65536;
  double growth = 2, backoff = 0.5;
  int64_t interval = 2000;           // finished steps in a row after which it grows
  double least = 1, most = 0x1p+24;  // where it stays
};
void check_loss_scale(const LossScaleOptions& options);

inline constexpr const char* kLossScale = "loss_scale";
inline constexpr const char* kGoodSteps = "loss_scale.good_steps";
inline constexpr const char* kSkippedSteps = "loss_scale.skipped_steps";

// The scale in a step under construction.
class LossScaler {
 public:
  // `param` makes a parameter of the step.
  using MakeParam = FunctionRef<TracedTensor(const std::string& name, const Type& type)>;
  LossScaler(const LossScaleOptions& options, MakeParam param);

  NamedTensors initial() const;  // values of its parameters
  TracedTensor scaled(const TracedTensor& loss) const { return loss * scale_.to(loss.dtype()); }
  TracedTensor unscaled(const TracedTensor& gradient) const;
  // To be told all gradients before the rest is asked.
  void watch(const TracedTensors& gradients);
  // `next` where the gradients were finite, else `before`.
  TracedTensor unless_skipped(const TracedTensor& next, const TracedTensor& before) const {
    return op::select(finite_, next, before);
  }
  // chosen(next, before): what becomes of a parameter after this run, which need not be the last one of its step.
  using Chosen = FunctionRef<TracedTensor(const TracedTensor& next, const TracedTensor& before)>;
  void append_updates(Builder& b, Chosen chosen) const;

 private:
  LossScaleOptions options_;
  TracedTensor scale_, good_, skipped_, finite_;
};

}  // namespace rlx
