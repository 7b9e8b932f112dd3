// Optimisers as graph builders: what each step does to a parameter, given its gradient.
//
//   Optimizer o = adamw({.rate = constant_rate(1e-3), .weight_decay = 0.1, .decays = is_matrix});
//   Optimizer o = sgd({.rate = constant_rate(0.1), .momentum = 0.9, .nesterov = true});
//   Optimizer o = lion({.rate = cosine_rate(1e-4, 1000)});
//
// An optimiser names its state per parameter ("m", "v") and gives two functions. What does not
// depend on the parameter (rate, bias corrections) is computed once per step, in rank 0; the rest
// is elementwise, so that it runs as one kernel per parameter. f16 and bf16 parameters are updated
// in f32, with state in f32.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rlx/train/schedule.h"

namespace rlx {

// Whether a parameter is decayed.
using ParamFilter = std::function<bool(const std::string& name, const Type& type)>;
bool all_params(const std::string& name, const Type& type);
bool is_matrix(const std::string& name, const Type& type);  // two axes or more: no biases, no norms

struct Optimizer {
  struct Step {  // one parameter in one step
    const std::string& name;
    const Type& type;              // as declared
    TracedTensor param, gradient;  // f32 or f64
    TracedTensors state;           // in the order of `slots`
    const TracedTensors& scalars;  // what `prepare` returned, in the parameter's dtype
  };
  struct Next {
    TracedTensor param;
    TracedTensors state;
  };
  std::string name;
  std::vector<std::string>
      slots;  // state of parameter p is the parameter "p.<slot>", zero at first
  std::function<TracedTensors(const TracedTensor& step)>
      prepare;  // step: finished steps, float, rank 0
  std::function<Next(const Step&)> update;
};

struct SgdOptions {
  Schedule rate = constant_rate(1e-2);
  double momentum = 0;      // m = momentum * m + g
  bool nesterov = false;    // moves along g + momentum * m instead of m
  double weight_decay = 0;  // g + weight_decay * p, as PyTorch
  ParamFilter decays = all_params;
};
Optimizer sgd(
    const SgdOptions& options);  // raises "sgd" for a negative momentum or nesterov without

// Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019; with t = step + 1:
//   m = beta1 m + (1-beta1) g;  v = beta2 v + (1-beta2) g^2
//   p = p (1 - rate wd) - rate (m / (1-beta1^t)) / (sqrt(v / (1-beta2^t)) + eps)
struct AdamWOptions {
  Schedule rate = constant_rate(1e-3);
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0.01;
  ParamFilter decays = all_params;
};
Optimizer adamw(const AdamWOptions& options);  // raises "adamw": betas in [0, 1), eps > 0

// Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015: adamw's moments, but decay
// is part of the gradient, g + weight_decay * p, as PyTorch's Adam has it.
struct AdamOptions {
  Schedule rate = constant_rate(1e-3);
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;
  ParamFilter decays = all_params;
};
Optimizer adam(const AdamOptions& options);  // raises "adam" as adamw does

// Chen et al., "Symbolic discovery of optimization algorithms", NeurIPS 2023:
//   p = p (1 - rate wd) - rate sign(beta1 m + (1-beta1) g);  m = beta2 m + (1-beta2) g
struct LionOptions {
  Schedule rate = constant_rate(1e-4);
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;
  ParamFilter decays = all_params;
};
Optimizer lion(const LionOptions& options);  // raises "lion": betas in [0, 1)

// Raises "optimizer" where a function is missing.
void check_optimizer(const char* who, const Optimizer& optimizer);

// An optimiser's two functions as programs of their own, for those who keep parameters and state
// themselves: step -> scalars of that dtype, and parameter, gradient, state.., scalars.. -> next
// parameter, next state... All but the scalars have the given type, which is of f32 or f64.
Graph prepare_program(const Optimizer& optimizer, DType dtype);
Graph update_program(const Optimizer& optimizer, const std::string& name, const Type& type,
                     size_t scalars);

// The gradient's elements between -limit and limit; NaN stays. Raises "clip-value" unless limit > 0.
TracedTensor clip_value(const TracedTensor& gradient, double limit);

// Scales gradients so that the root of the sum of their squares is at most `max_norm`: g * min(1,
// max_norm / (norm + 1e-6)). The norm (before scaling) and the factor are of `dtype`, rank 0.
struct ClippedNorm {
  TracedTensor norm, factor;
};
ClippedNorm clip_factor(const TracedTensors& gradients, double max_norm, DType dtype = DType::F32);

}  // namespace rlx
