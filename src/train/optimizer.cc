#include "rlx/train/optimizer.h"

#include <cmath>

namespace rlx {

bool all_params(const std::string&, const Type&) { return true; }
bool is_matrix(const std::string&, const Type& type) { return type.rank() >= 2; }

namespace {

void check_functions(const char* who, const Schedule& rate, const ParamFilter& decays) {
  check_schedule(who, rate);
  user_check(decays != nullptr, who,
             "{}: the filter of decayed parameters is empty; all_params takes all of them", who);
}

}  // namespace

Optimizer sgd(const SgdOptions& o) {
  check_functions("sgd", o.rate, o.decays);
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

namespace {

void check_betas(const char* who, double beta1, double beta2) {
  for (double beta : {beta1, beta2})
    user_check(beta >= 0 && beta < 1, who, "{}: a beta must be in [0, 1), got {}", who, beta);
}

// adamw, or with `coupled` adam, whose decay is part of the gradient.
Optimizer adam_of(const char* who, const AdamWOptions& o, bool coupled) {
  check_functions(who, o.rate, o.decays);
  check_betas(who, o.beta1, o.beta2);
  user_check(o.eps > 0, who, "{}: eps must be positive, got {}", who, o.eps);
  Optimizer optimizer{who, {"m", "v"}, {}, {}};
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
  optimizer.update = [o, coupled](const Optimizer::Step& s) -> Optimizer::Next {
    const TracedTensor &rate = s.scalars[0], &root = s.scalars[1], &decay = s.scalars[2];
    const bool decays = o.weight_decay != 0 && o.decays(s.name, s.type);
    const TracedTensor g = decays && coupled ? s.gradient + s.param * o.weight_decay : s.gradient;
    const TracedTensor m = s.state[0] * o.beta1 + g * (1 - o.beta1);
    const TracedTensor v = s.state[1] * o.beta2 + g * g * (1 - o.beta2);
    return {(decays && !coupled ? s.param * decay : s.param) - m * rate / (v.sqrt() * root + o.eps),
            {m, v}};
  };
  return optimizer;
}

}  // namespace

Optimizer adamw(const AdamWOptions& o) { return adam_of("adamw", o, false); }

Optimizer adam(const AdamOptions& o) {
  return adam_of("adam", {o.rate, o.beta1, o.beta2, o.eps, o.weight_decay, o.decays}, true);
}

Optimizer lion(const LionOptions& o) {
  check_functions("lion", o.rate, o.decays);
  check_betas("lion", o.beta1, o.beta2);
  Optimizer optimizer{"lion", {"m"}, {}, {}};
  optimizer.prepare = [o](const TracedTensor& step) -> TracedTensors {
    const TracedTensor rate = o.rate(step);
    return {rate, 1 - rate * o.weight_decay};
  };
  optimizer.update = [o](const Optimizer::Step& s) -> Optimizer::Next {
    const TracedTensor &g = s.gradient, &m = s.state[0];
    const bool decays = o.weight_decay != 0 && o.decays(s.name, s.type);
    const TracedTensor direction = (m * o.beta1 + g * (1 - o.beta1)).sign();
    return {(decays ? s.param * s.scalars[1] : s.param) - direction * s.scalars[0],
            {m * o.beta2 + g * (1 - o.beta2)}};
  };
  return optimizer;
}

void check_optimizer(const char* who, const Optimizer& optimizer) {
  user_check(optimizer.prepare && optimizer.update, "optimizer",
             "{}: the optimiser \"{}\" has no function {}; adamw({{}}) is one that has both", who,
             optimizer.name, optimizer.prepare ? "update" : "prepare");
}

Graph prepare_program(const Optimizer& optimizer, DType dtype) {
  check_optimizer("prepare_program", optimizer);
  Builder b(optimizer.name + "_prepare");
  const TracedTensor step(b, b.input("step", {dtype, {}}));
  for (const TracedTensor& s : optimizer.prepare(step)) b.output(s.value());
  return b.finish();
}

Graph update_program(const Optimizer& optimizer, const std::string& name, const Type& type,
                     size_t scalars) {
  check_optimizer("update_program", optimizer);
  Builder b(optimizer.name + "_update");
  auto input = [&](std::string leaf, const Type& t) {
    return TracedTensor(b, b.input(std::move(leaf), t));
  };
  const TracedTensor param = input("param", type), gradient = input("gradient", type);
  TracedTensors state, shared;
  for (const std::string& slot : optimizer.slots) state.push_back(input(slot, type));
  for (size_t i = 0; i < scalars; ++i)
    shared.push_back(input(fmt::format("scalar{}", i), {type.dtype, {}}));
  const Optimizer::Next next = optimizer.update({name, type, param, gradient, state, shared});
  b.output(next.param.value());
  for (const TracedTensor& s : next.state) b.output(s.value());
  return b.finish();
}

TracedTensor clip_value(const TracedTensor& gradient, double limit) {
  user_check(limit > 0, "clip-value", "the value to clip at must be positive, got {}", limit);
  return gradient.clamp(-limit, limit);
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
