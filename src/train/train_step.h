// A training step as one program: forward, backward, clipping and the optimiser, which updates its
// parameters in place.
//
//   Graph loss = trace("loss", ...);                               // output 0 is the loss
//   TrainStep step = train_step(loss, params, {.optimizer = adamw({...}), .clip_norm = 1.0});
//   CompiledGraph f = Session("cpu").compile(step.graph);
//   f.set_params(step.state);
//   for (...) { Tensor loss = f.run({{"x", x}, {"y", y}})[0]; }    // before this step's update
//
// The step's outputs are those of the loss graph, then the gradient norm where asked for. Its
// parameters are those of the loss graph, "step" (i32, the number of finished steps) and
// "<parameter>.<slot>" for the optimiser's state; all trained ones are written by updates.
//
// With `accumulate` = k the parameters move in every k-th run, along the mean of k gradients, which is
// then clipped; "<parameter>.sum" and "run" (i32) hold what has come so far. With `ema` = d
// "<parameter>.ema" is the parameter after the first step, and d times itself + (1-d) times the
// parameter after each later one.
//
// What the loss writes out in primitives is recognised before it is differentiated (`recognised` in passes.h), so the
// backward has the kernels of the ops; append_train_step takes the program as it is.
//
// Initial values of the optimiser's state may be given with those of the parameters (training goes
// on from a checkpoint); the others are zero.
//
// In mixed precision (transform/precision.h) the loss is computed by a policy, and its gradients with it; parameters,
// gradients and the optimiser are in f32. In f16 the loss is scaled (train/loss_scale.h), which adds parameters.
//
//   TrainStep step = train_step(loss, params, {.precision = PrecisionPolicy::mixed(Precision::BF16)});
//
// A step within a budget of memory is compiled so: Session().compile(step.graph, {.memory_budget = bytes}).
//
// Raises Error(user) "no-params" when there is nothing to train, "no-leaf" for an unknown name,
// "param-missing" and "param-type" for wrong initial values, "reserved-name" for a leaf called as
// the optimiser's state, "state-size" for parameters of symbolic size, "accumulate" and "ema" for
// numbers below 1 and decays outside [0, 1), and what reverse.h, precision.h and loss_scale.h raise.
#pragma once

#include "rlx/ops/evaluate.h"
#include "rlx/train/loss_scale.h"
#include "rlx/train/optimizer.h"
#include "rlx/transform/precision.h"

namespace rlx {

struct TrainOptions {
  Optimizer optimizer = adamw({});
  double clip_norm = 0;             // 0: no clipping
  double clip_value = 0;            // of each element, before the norm is taken; 0: no clipping
  int64_t accumulate = 1;           // runs whose mean gradient makes one step
  double ema = 0;                   // decay of the parameters' average "<parameter>.ema"; 0: none
  std::vector<std::string> params;  // which to train; empty: every float parameter
  bool report_norm =
      false;  // the gradients' norm before clipping as a last output; needs clip_norm
  PrecisionPolicy precision = {};  // of the loss and its gradients
  LossScaleOptions loss_scale = {};
};

struct TrainStep {
  Graph graph;
  NamedTensors state;  // initial values of all parameters, those of the optimiser included
};

TrainStep train_step(const Graph& loss, const NamedTensors& params, const TrainOptions& options);
// The same from a builder that has the loss; outputs set before stay, and the loss is added when
// there are none.
TrainStep train_step(Builder b, Value loss, const NamedTensors& params,
                     const TrainOptions& options);

// The part that appends: gradients, clipping, state and updates. Returns the initial values of the
// optimiser's state. In mixed precision the builder's outputs become those of the mixed program;
// finish_train_step leaves away what they were before.
NamedTensors append_train_step(Builder& b, Value loss, const TrainOptions& options);
Graph finish_train_step(Builder b, const TrainOptions& options);

}  // namespace rlx
