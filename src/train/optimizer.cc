#include "rlx/train/optimizer.h"

#include <cmath>

namespace rlx {

bool all_params(const std::string&, const Type&) { return true; }
bool is_matrix(const std::string&, const Type& type) { return type.rank() >= 2; }

Optimizer sgd(const SgdOptions& o) {
  user_check(o.momentum >= 0, "sgd", "sgd: the momentum must not be negative, got {}", o.momentum);
  user_check(!o.nesterov || o.momentum > 0, "sgd", "sgd: nesterov needs a momentum");
  Optimizer optimizer{"sgd", {}, {}, {}};
  if (o.momentum != 0) optimizer.slots = {"m"};
  optimizer.prepare = [o](const TracedTensor& step) -> TracedTensors { return {o.rate(step)}; };
  optimizer.update = [o](const Optimizer::Step& s) -> Optimizer::Next {
    const bool decays = o.weight_decay != 0 && o.decays(s.name, s.type);
    const TracedTensor g = decays ? s.gradient + s.param * o.weight_decay : s.gradient;
    if (o.momentum == 0) return {s.param - g * s.scalars[0], {}};
    const TracedTensor m = s.state[0] * o.momentum + g;
    return {s.param - (o.nesterov ? g + m * o.momentum : m) * s.scalars[0], {m}};
  };
  return optimizer;
}

Optimizer adamw(const AdamWOptions& o) {
  for (double beta : {o.beta1, o.beta2})
    user_check(beta >= 0 && beta < 1, "adamw", "adamw: a beta must be in [0, 1), got {}", beta);
  user_check(o.eps > 0, "adamw", "adamw: eps must be positive, got {}", o.eps);
  Optimizer optimizer{"adamw", {"m", "v"}, {}, {}};
  // Scalars: the rate over the first bias correction, the root of the inverse of the second, the
  // factor of decay. A correction is 1 - beta^t, as -expm1(t ln beta) because the difference would
  // lose digits.
  optimizer.prepare = [o](const TracedTensor& step) -> TracedTensors {
    const TracedTensor rate = o.rate(step), t = step + 1;
    auto correction = [&](double beta) {
      return beta == 0 ? t.like(1) : -(t * std::log(beta)).expm1();
    };
    return {rate / correction(o.beta1), correction(o.beta2).rsqrt(), 1 - rate * o.weight_decay};
  };
  optimizer.update = [o](const Optimizer::Step& s) -> Optimizer::Next {
    const TracedTensor &g = s.gradient, &rate = s.scalars[0], &root = s.scalars[1],
                       &decay = s.scalars[2];
    const TracedTensor m = s.state[0] * o.beta1 + g * (1 - o.beta1);
    const TracedTensor v = s.state[1] * o.beta2 + g * g * (1 - o.beta2);
    const bool decays = o.weight_decay != 0 && o.decays(s.name, s.type);
    return {(decays ? s.param * decay : s.param) - m * rate / (v.sqrt() * root + o.eps), {m, v}};
  };
  return optimizer;
}

ClippedNorm clip_factor(const TracedTensors& gradients, double max_norm, DType dtype) {
  user_check(max_norm > 0, "clip-norm", "the norm to clip at must be positive, got {}", max_norm);
  TracedTensor squares;
  for (const TracedTensor& g : gradients) {
    const TracedTensor sum = g.square().sum().to(dtype);
    squares = squares.valid() ? squares + sum : sum;
  }
  user_check(squares.valid(), "clip-norm", "there are no gradients to clip");
  const TracedTensor norm = squares.sqrt();
  return {norm, (norm.like(max_norm) / (norm + 1e-6)).minimum(1)};
}

}  // namespace rlx
