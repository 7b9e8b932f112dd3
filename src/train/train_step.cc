#include "rlx/train/train_step.h"

#include "rlx/front/trace.h"
#include "rlx/passes/passes.h"
#include "rlx/transform/reverse.h"

namespace rlx {
namespace {

constexpr const char* kStep = "step";

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

// What all parameters of one dtype share in a step.
class Shared {
 public:
  Shared(const TracedTensor& step, const TrainOptions& options, std::optional<TracedTensor> clip)
      : scalars_(options.optimizer.prepare(step)), clip_(std::move(clip)) {}

  const TracedTensors& scalars(DType dtype) {
    auto [it, fresh] = by_dtype_.try_emplace(dtype);
    if (fresh)
      for (const TracedTensor& s : scalars_) it->second.push_back(s.to(dtype));
    return it->second;
  }
  TracedTensor clipped(const TracedTensor& gradient) const {
    return clip_ ? gradient * clip_->to(gradient.dtype()) : gradient;
  }

 private:
  TracedTensors scalars_;
  std::optional<TracedTensor> clip_;
  std::map<DType, TracedTensors> by_dtype_;
};

// Appends the optimiser's state and the updates of one parameter.
void append_update(Builder& b, Value param, const TracedTensor& gradient,
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
  b.update(name, next.param.to(type.dtype).value());
  for (size_t i = 0; i < slots.size(); ++i)
    b.update(name + "." + optimizer.slots[i], next.state[i].value());
}

}  // namespace

NamedTensors append_train_step(Builder& b, Value loss, const TrainOptions& options) {
  const Values params = trained_params(b, options);
  DType dtype = DType::F32;
  for (Value p : params)
    if (b.type(p).dtype == DType::F64) dtype = DType::F64;
  TracedTensors wide;
  const Values raw = gradients(b, loss, params);
  Scope scope(b, options.optimizer.name);
  for (Value g : raw) wide.push_back(TracedTensor(b, g).to(compute_dtype(b.type(g).dtype)));

  user_check(!options.report_norm || options.clip_norm > 0, "clip-norm",
             "train_step: report_norm needs clip_norm");
  std::optional<TracedTensor> clip;
  if (options.clip_norm > 0) {
    const ClippedNorm c = clip_factor(wide, options.clip_norm, dtype);
    clip = c.factor;
    if (options.report_norm) b.output(c.norm.value());
  }
  const TracedTensor step(b, state_param(b, kStep, {DType::I32, {}}));
  Shared shared(step.to(dtype), options, clip);
  NamedTensors state{{kStep, Tensor(DType::I32, {})}};
  for (size_t i = 0; i < params.size(); ++i)
    append_update(b, params[i], wide[i], options.optimizer, shared, state);
  b.update(kStep, (step + 1).value());
  return state;
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
  result.graph = b.finish();
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
