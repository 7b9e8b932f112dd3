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
// What the loss writes out in primitives is recognised before it is differentiated (`recognised` in passes.h), so the
// backward has the kernels of the ops; append_train_step takes the program as it is.
//
// Initial values of the optimiser's state may be given with those of the parameters (training goes
// on from a checkpoint); the others are zero.
//
// Raises Error(user) "no-params" when there is nothing to train, "no-leaf" for an unknown name,
// "param-missing" and "param-type" for wrong initial values, "reserved-name" for a leaf called as
// the optimiser's state, "state-size" for parameters of symbolic size, and what reverse.h raises.
#pragma once

#include "rlx/ops/evaluate.h"
#include "rlx/train/optimizer.h"

namespace rlx {

struct TrainOptions {
  Optimizer optimizer = adamw({});
  double clip_norm = 0;             // 0: no clipping
  std::vector<std::string> params;  // which to train; empty: every float parameter
  bool report_norm =
      false;  // the gradients' norm before clipping as a last output; needs clip_norm
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
// optimiser's state.
NamedTensors append_train_step(Builder& b, Value loss, const TrainOptions& options);

}  // namespace rlx
