#include "rlx/train/train_step.h"

#include "rlx/front/trace.h"
#include "rlx/passes/passes.h"
#include "rlx/transform/reverse.h"

namespace rlx {
namespace {

constexpr const char *kStep = "step", *kRun = "run";

std::string param_name(const Builder& b, Value v) { return b.node(v).get<LeafAttrs>().name; }

// The parameters to train, as asked for or all that can have a gradient.
Values trained_params(const Builder& b, const TrainOptions& options) {
  Values out;
  for (const std::string& name : options.params) {
    const Value v = b.find_leaf(name);
    user_check(v.valid() && b.node(v).op == &op::param, "no-leaf",
               "train_step: there is no parameter \"{}\"", name);
    out.push_back(v);
  }
  if (options.params.empty())
    for (Value v : b.graph().params())
      if (kFloats.has(b.type(v).dtype)) out.push_back(v);
  user_check(!out.empty(), "no-params", "train_step: \"{}\" has no float parameters to train",
             b.graph().name);
  return out;
}

void check_value(const Builder& b, Value param, const Tensor& value) {
  user_check(value.type() == b.type(param), "param-type",
             "train_step: parameter \"{}\" is {}, its initial value is {}", param_name(b, param),
             b.type(param), value.type());
}

DType compute_dtype(DType d) { return d == DType::F64 ? DType::F64 : DType::F32; }

Tensor zeros_like(const std::string& name, const Type& type) {
  user_check(type.shape.is_static(), "state-size",
             "train_step: parameter \"{}\" has the symbolic type {}; bind its dims first", name,
             type);
  return Tensor(type.dtype, type.shape.sizes());
}

// A parameter for the optimiser's state.
Value state_param(Builder& b, const std::string& name, const Type& type) {
  user_check(!b.find_leaf(name).valid(), "reserved-name",
             "train_step: \"{}\" is the name of a parameter that train_step makes itself; give the "
             "one in \"{}\" another name",
             name, b.graph().name);
  return b.param(name, type);
}

// Makes one step of several runs: only the last of them changes the parameters and the optimiser's
// state. Of one run there is nothing to keep.
class Runs {
 public:
  Runs(Builder& b, int64_t count, NamedTensors& state) : b_(b), count_(count), state_(state) {
    user_check(count >= 1, "accumulate",
               "train_step: a step must be made of at least one run, got {}", count);
    if (count == 1) return;
    const TracedTensor run(b, state_param(b, kRun, {DType::I32, {}}));
    last_ = run >= static_cast<double>(count - 1);
    state[kRun] = Tensor(DType::I32, {});
    b.update(kRun, where(*last_, 0.0, run + 1).value());
  }

  // The mean gradient of the parameter, of the runs up to this one.
  TracedTensor mean(Value param, const TracedTensor& gradient) {
    if (!last_) return gradient;
    const std::string name = fmt::format("{}.sum", param_name(b_, param));
    const TracedTensor sum = TracedTensor(b_, state_param(b_, name, gradient.type())) + gradient;
    state_[name] = zeros_like(name, gradient.type());
    b_.update(name, where(*last_, 0.0, sum).value());
    return sum * (1 / static_cast<double>(count_));
  }
  // What takes the place of `old` after this run.
  TracedTensor chosen(const TracedTensor& next, const TracedTensor& old) const {
    return last_ ? where(*last_, next, old) : next;
  }

 private:
  Builder& b_;
  int64_t count_;
  NamedTensors& state_;
  std::optional<TracedTensor> last_;
};

// What all parameters of one dtype share in a step.
class Shared {
 public:
  Shared(const TracedTensor& step, const TrainOptions& options, std::optional<TracedTensor> clip,
         const Runs& runs, const LossScaler* scaler)
      : scalars_(options.optimizer.prepare(step)),
        clip_(std::move(clip)),
        runs_(runs),
        scaler_(scaler) {}

  const TracedTensors& scalars(DType dtype) {
    auto [it, fresh] = by_dtype_.try_emplace(dtype);
    if (fresh)
      for (const TracedTensor& s : scalars_) it->second.push_back(s.to(dtype));
    return it->second;
  }
  TracedTensor clipped(const TracedTensor& gradient) const {
    return clip_ ? gradient * clip_->to(gradient.dtype()) : gradient;
  }
  // Writes the next value of a parameter where a step ends with this run, and is one.
  void update(Builder& b, const std::string& name, const TracedTensor& next,
              const TracedTensor& before) const {
    const TracedTensor taken = scaler_ ? scaler_->unless_skipped(next, before) : next;
    b.update(name, runs_.chosen(taken, before).value());
  }

 private:
  TracedTensors scalars_;
  std::optional<TracedTensor> clip_;
  const Runs& runs_;
  const LossScaler* scaler_;
  std::map<DType, TracedTensors> by_dtype_;
};

// Appends the average of a parameter over the steps.
void append_average(Builder& b, const std::string& name, const TracedTensor& param,
                    const TracedTensor& step, double decay, const Shared& shared,
                    NamedTensors& state) {
  const std::string full = fmt::format("{}.ema", name);
  const TracedTensor old(b, state_param(b, full, param.type()));
  state[full] = zeros_like(name, param.type());
  const TracedTensor next = where(step <= 0, param, old * decay + param * (1 - decay));
  shared.update(b, full, next, old);
}

// Appends the optimiser's state and the updates of one parameter; returns its next value in the
// dtype that it is updated in.
TracedTensor append_update(Builder& b, Value param, const TracedTensor& gradient,
                           const Optimizer& optimizer, Shared& shared, NamedTensors& state) {
  const std::string name = param_name(b, param);
  const Type type = b.type(param);
  const DType dtype = compute_dtype(type.dtype);
  Scope scope(b, name);
  TracedTensors slots;
  for (const std::string& slot : optimizer.slots) {
    const std::string full = fmt::format("{}.{}", name, slot);
    slots.emplace_back(b, state_param(b, full, {dtype, type.shape}));
    state[full] = zeros_like(name, {dtype, type.shape});
  }
  const Optimizer::Next next =
      optimizer.update({name, type, TracedTensor(b, param).to(dtype), shared.clipped(gradient),
                        slots, shared.scalars(dtype)});
  check(next.state.size() == slots.size(), "optimiser {}: {} slots but {} new values",
        optimizer.name, slots.size(), next.state.size());
  const TracedTensor before(b, param), after = next.param.to(type.dtype);
  shared.update(b, name, after, before);
  for (size_t i = 0; i < slots.size(); ++i)
    shared.update(b, name + "." + optimizer.slots[i], next.state[i], slots[i]);
  return after.to(dtype);
}

bool is_scaled(const TrainOptions& o) {
  const LossScaleMode mode = o.loss_scale.mode;
  return mode == LossScaleMode::automatic ? o.precision.uses(Precision::F16)
                                          : mode != LossScaleMode::none;
}

}  // namespace

NamedTensors append_train_step(Builder& b, Value loss, const TrainOptions& options) {
  check_optimizer("train_step", options.optimizer);
  const Values params = trained_params(b, options);
  loss = mixed_precision(b, {&loss, 1}, options.precision)[0];
  std::optional<LossScaler> scaler;
  if (is_scaled(options))
    scaler.emplace(options.loss_scale, [&](const std::string& name, const Type& type) {
      return TracedTensor(b, state_param(b, name, type));
    });
  DType dtype = DType::F32;
  for (Value p : params)
    if (b.type(p).dtype == DType::F64) dtype = DType::F64;
  TracedTensors wide;
  if (scaler) loss = scaler->scaled(TracedTensor(b, loss)).value();
  const Values raw = gradients(b, loss, params);
  Scope scope(b, options.optimizer.name);
  NamedTensors state = scaler ? scaler->initial() : NamedTensors();
  Runs runs(b, options.accumulate, state);
  for (size_t i = 0; i < params.size(); ++i) {
    const TracedTensor gradient = TracedTensor(b, raw[i]).to(compute_dtype(b.type(raw[i]).dtype));
    wide.push_back(runs.mean(params[i], scaler ? scaler->unscaled(gradient) : gradient));
  }
  if (scaler) scaler->watch(wide);  // before clipping, which makes numbers of infinities
  if (options.clip_value != 0)
    for (TracedTensor& g : wide) g = clip_value(g, options.clip_value);

  user_check(options.clip_norm >= 0 && std::isfinite(options.clip_norm), "clip-norm",
             "train_step: clip_norm is a finite number, 0 for no clipping, not {}",
             options.clip_norm);
  user_check(!options.report_norm || options.clip_norm > 0, "clip-norm",
             "train_step: report_norm needs clip_norm");
  user_check(options.ema >= 0 && options.ema < 1, "ema",
             "train_step: the decay of an average must be in [0, 1), got {}", options.ema);
  std::optional<TracedTensor> clip;
  if (options.clip_norm > 0) {
    const ClippedNorm c = clip_factor(wide, options.clip_norm, dtype);
    clip = c.factor;
    if (options.report_norm) b.output(c.norm.value());
  }
  const TracedTensor step(b, state_param(b, kStep, {DType::I32, {}}));
  Shared shared(step.to(dtype), options, clip, runs, scaler ? &*scaler : nullptr);
  state[kStep] = Tensor(DType::I32, {});
  for (size_t i = 0; i < params.size(); ++i) {
    const TracedTensor next =
        append_update(b, params[i], wide[i], options.optimizer, shared, state);
    if (options.ema != 0)
      append_average(b, param_name(b, params[i]), next, step, options.ema, shared, state);
  }
  shared.update(b, kStep, step + 1, step);
  if (scaler)
    scaler->append_updates(b, [&](const TracedTensor& next, const TracedTensor& before) {
      return runs.chosen(next, before);
    });
  return state;
}

Graph finish_train_step(Builder b, const TrainOptions& options) {
  Graph g = b.finish();
  return options.precision.is_f32() ? g : drop_dead(std::move(g), true);
}

TrainStep train_step(Builder b, Value loss, const NamedTensors& params,
                     const TrainOptions& options) {
  if (b.graph().outputs.empty()) b.output(loss);
  b.mutable_graph().outputs.push_back(loss);
  b.mutable_graph() = recognised(b.graph());
  loss = b.graph().outputs.back();
  b.mutable_graph().outputs.pop_back();
  for (Value v : b.graph().params()) {
    const auto it = params.find(param_name(b, v));
    user_check(it != params.end(), "param-missing",
               "train_step: there is no initial value for parameter \"{}\"", param_name(b, v));
  }
  TrainStep result;
  result.state = append_train_step(b, loss, options);
  for (const auto& [name, value] : params) {
    const Value v = b.find_leaf(name);
    user_check(v.valid(), "no-leaf", "train_step: there is no parameter \"{}\"", name);
    check_value(b, v, value);
    result.state.insert_or_assign(name, value);
  }
  result.graph = finish_train_step(std::move(b), options);
  return result;
}

TrainStep train_step(const Graph& loss, const NamedTensors& params, const TrainOptions& options) {
  user_check(!loss.outputs.empty(), "output-index",
             "train_step: \"{}\" has no outputs; output 0 must be the loss", loss.name);
  Builder b(loss.name + "_train");
  b.mutable_graph().nodes = loss.nodes;
  b.mutable_graph().outputs = loss.outputs;
  b.mutable_graph().updates = loss.updates;
  return train_step(std::move(b), loss.outputs[0], params, options);
}

}  // namespace rlx
