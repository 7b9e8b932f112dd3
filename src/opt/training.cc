#include "rlx/opt/training.h"

#include <algorithm>

#include "rlx/ops/control/checkpoint.h"
#include "rlx/ops/core.h"
#include "rlx/opt/fusion.h"
#include "rlx/passes/passes.h"
#include "rlx/passes/weights.h"
#include "rlx/transform/walk.h"

namespace rlx::opt {

std::optional<TrainingCompileError> training_compile_error(const Error& e) {
  if (e.code() == "training-stage") return TrainingCompileError::wrong_stage;
  if (autodiff_error(e) == AutodiffError::lower) return TrainingCompileError::lower;
  return std::nullopt;
}

namespace {

const std::string& name_of(const Node& leaf) { return leaf.get<LeafAttrs>().name; }
bool has_name(const Node& n) { return n.op == &op::input || n.op == &op::param; }

// ---- the one program that both are cut from

struct Joint {
  Graph graph;
  NamedTensors state;
};

Joint joint_program(const Graph& forward, const std::vector<std::string>& wrt,
                    const TrainingOptions& options) {
  const Graph g = recognised(forward);
  if (!options.step)
    return {grad_with_loss_opts(g, Wrts(wrt.begin(), wrt.end()), options.gradients), {}};
  TrainOptions step = *options.step;
  step.params = wrt;
  return within_memory([&]() -> Joint {
    Builder b = builder_of(g, "_train");
    for (Value v : g.outputs) b.output(v);
    NamedTensors state = append_train_step(b, g.outputs[0], step);
    return {finish_train_step(std::move(b), step), std::move(state)};
  });
}

// ---- the cut

// Marks what the marked nodes are made of.
void mark_operands(const Graph& g, std::vector<bool>& marked) {
  for (int32_t i = g.size(); i-- > 0;)
    if (marked[static_cast<size_t>(i)])
      for (Value v : g.node(i).in) marked[static_cast<size_t>(v.node)] = true;
}

bool is_view_op(const Node& n) {
  return n.op == &op::reshape || n.op == &op::transpose || n.op == &op::slice ||
         n.op == &op::broadcast || n.op == &op::barrier || n.op == &op::checkpoint_name;
}

class Cut {
 public:
  // The first `outputs` outputs, and the updates of these parameters, are the forward's.
  Cut(const Graph& g, size_t outputs, const std::set<std::string>& updates)
      : g_(g), forward_(g.nodes.size(), false), wanted_(g.nodes.size()) {
    for (size_t k = 0; k < g.outputs.size(); ++k)
      if (k < outputs) mark_forward(g.outputs[k]);
    for (const Update& u : g.updates)
      if (updates.contains(u.param)) mark_forward(u.value), written_.insert(u.param);
    mark_operands(g, forward_);
    for (size_t k = outputs; k < g.outputs.size(); ++k) want(g.outputs[k]);
    for (const Update& u : g.updates)
      if (!updates.contains(u.param)) want(u.value);
    for (int32_t i = g.size(); i-- > 0;)
      if (is_wanted(i) && is_backward(i))
        for (Value v : g.node(i).in) want(v);
    for (int32_t i = 0; i < g.size(); ++i)
      for (size_t k = 0; k < wanted_[at(i)].size(); ++k)
        if (wanted_[at(i)][k] && !is_backward(i)) saved_.push_back({i, static_cast<int32_t>(k)});
  }

  const Values& saved() const { return saved_; }  // what crosses

  // All inputs of the program stay in its signature.
  Graph forward(const std::string& name, const std::set<std::string>& leaves,
                size_t outputs) const {
    Builder b(name);
    std::vector<Values> made(g_.nodes.size());
    for (int32_t i = 0; i < g_.size(); ++i)
      if (forward_[at(i)] || (has_name(g_.node(i)) && leaves.contains(name_of(g_.node(i)))))
        copy(b, i, made);
    for (size_t k = 0; k < outputs; ++k) b.output(find(made, g_.outputs[k]));
    for (Value v : saved_) b.output(find(made, v));
    for (const Update& u : g_.updates)
      if (written_.contains(u.param)) b.update(u.param, find(made, u.value));
    return b.finish();
  }

  Graph backward(const std::string& name, size_t outputs) const {
    Builder b(name);
    std::vector<Values> made(g_.nodes.size());
    size_t next = 0;
    for (int32_t i = 0; i < g_.size(); ++i) {
      if (is_wanted(i) && is_backward(i)) {
        copy(b, i, made);
        continue;
      }
      Values& results = made[at(i)];
      for (; next < saved_.size() && saved_[next].node == i; ++next) {
        results.resize(g_.node(i).out.size(), kNone);
        results[at(saved_[next].index)] =
            b.input(fmt::format("saved_{}", next), g_.type(saved_[next]));
      }
    }
    for (size_t k = outputs; k < g_.outputs.size(); ++k) b.output(find(made, g_.outputs[k]));
    for (const Update& u : g_.updates) {
      if (written_.contains(u.param)) continue;
      if (!b.find_leaf(u.param).valid()) b.param(u.param, g_.type(g_.find_leaf(u.param)));
      b.update(u.param, find(made, u.value));
    }
    return b.finish();
  }

 private:
  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  static Value find(const std::vector<Values>& made, Value v) {
    return made[at(v.node)][at(v.index)];
  }
  void copy(Builder& b, int32_t i, std::vector<Values>& made) const {
    Values in;
    for (Value v : g_.node(i).in) in.push_back(find(made, v));
    b.set_origin(g_.node(i).origin);
    made[at(i)] = b.clone(g_.node(i), in);
  }
  void mark_forward(Value v) { forward_[at(v.node)] = true; }
  void want(Value v) {
    std::vector<bool>& w = wanted_[at(v.node)];
    w.resize(g_.node(v).out.size(), false);
    w[at(v.index)] = true;
  }
  bool is_wanted(int32_t i) const {
    return std::find(wanted_[at(i)].begin(), wanted_[at(i)].end(), true) != wanted_[at(i)].end();
  }
  // Part of the backward where it is wanted there: the rest of the program, and what costs nothing to have in both.
  bool is_backward(int32_t i) const {
    const Node& n = g_.node(i);
    if (!forward_[at(i)]) return true;
    if (n.op == &op::param) return !written_.contains(name_of(n));
    return n.in.empty() || is_view_op(n) ||
           (n.out.size() == 1 && written_.empty() && is_of_weights(g_, {i, 0}, {}));
  }

  const Graph& g_;
  std::vector<bool> forward_;
  std::vector<std::vector<bool>> wanted_;  // by the backward, per result; empty: none
  std::set<std::string> written_;          // by the forward
  Values saved_;
};

Graph forward_of(const CompilePipeline& pipeline, const GraphModule& module) {
  user_check(module.stage() != GraphStage::lir, "training-stage",
             "training compile: \"{}\" is at {}; give the graph that it was made of", module.name(),
             name(module.stage()));
  if (const HirModule* hir = module.as_hir()) return pipeline.lower_hir(*hir).into_graph();
  return *module.as_graph();
}

std::set<std::string> leaf_names(const Graph& g) {
  std::set<std::string> out;
  for (const Node& n : g.nodes)
    if (has_name(n)) out.insert(name_of(n));
  return out;
}

// For parts of a program that has been through the passes: sizes are bound, the precision policy is applied.
CompilePipeline for_parts(const CompilePipeline& pipeline, const Graph& whole) {
  CompileOptions options = pipeline.options();
  options.precision = {};
  options.dims.clear();
  if (!has_symbols(whole)) options.hints.clear();
  return pipeline.with(std::move(options));
}

CompileResult finish(const CompilePipeline& pipeline, MirModule mir) {
  auto [fused, report] = pipeline.optimize_with_report(std::move(mir));
  return {pipeline.plan_lir(std::move(fused)), std::move(report.fusion), std::move(report.passes)};
}

// The parameters of g alone, one behind the other.
SharedWeightLayout layout_of_weights(const Graph& g) {
  Builder b("weights");
  for (Value v : g.params()) b.param(name_of(g.node(v)), g.type(v));
  const Graph weights = b.finish();
  return SharedWeightLayout::from_forward(weights, plan_memory(weights));
}

}  // namespace

MirModule optimize_backward(const CompilePipeline& pipeline, MirModule backward) {
  return pipeline.optimize(run_passes(std::move(backward).into_graph(), backward_cleanup_passes()));
}

TrainingCompileResult compile_training(const CompilePipeline& pipeline, const GraphModule& module,
                                       const Wrts& wrt, const TrainingOptions& options) {
  const Graph given = forward_of(pipeline, module);
  user_check(!given.outputs.empty(), "output-index",
             "compile_training: \"{}\" has no outputs; output 0 must be the loss", given.name);
  std::vector<std::string> names;
  for (const Wrt& w : wrt) names.push_back(w.leaf_of(given));
  Joint joint = joint_program(given, names, options);
  const GraphModule passed =
      lower_to(CompileStage::optimised, joint.graph, pipeline.backend(), pipeline.options());
  const Graph& whole = *passed.as_graph();
  std::set<std::string> own;  // updates of the program itself
  for (const Update& u : given.updates) own.insert(u.param);

  const size_t outputs = given.outputs.size();
  const Cut cut(whole, outputs, own);
  const CompilePipeline rest = for_parts(pipeline, whole);
  TrainingCompileResult out{
      finish(rest, cut.forward(given.name + "_forward", leaf_names(given), outputs)),
      finish(rest, run_passes(cut.backward(given.name + "_backward", outputs),
                              backward_cleanup_passes())),
      cut.saved().size(),
      {},
      {},
      {},
      std::move(joint.graph),
      std::move(joint.state)};
  const Graph &forward = out.forward.lir.as_graph(), &backward = out.backward.lir.as_graph();
  const SharedWeightLayout layout = layout_of_weights(forward);
  MemoryPlanOptions plan = MemoryPlanOptions::inference();
  plan.weights = &layout;
  out.forward_plan = plan_memory_with_options(forward, plan);
  out.weights = SharedWeightLayout::from_forward(forward, out.forward_plan);
  out.backward_plan = plan_memory_backward(backward, plan.alignment, out.weights);
  return out;
}

TrainingCompileResult compile_training(const GraphModule& module, const Wrts& wrt,
                                       const TrainingOptions& options) {
  return compile_training(CompilePipeline(backend_for(default_device())), module, wrt, options);
}

// ---- at work

CompiledTraining::CompiledTraining(const TrainingCompileResult& programs, const Session& session)
    : layout_(programs.weights),
      forward_(session.compile(programs.forward.lir)),
      backward_(session.compile(programs.backward.lir)),
      backend_(backend_for(session.device())),
      region_(backend_->allocate(std::max<int64_t>(programs.weights.arena_size, 1))),
      stream_(backend_->make_stream(1)) {
  const Graph& forward = forward_.signature();
  outputs_ = forward.outputs.size() - programs.saved;
  for (Value v : forward.params()) types_.emplace(name_of(forward.node(v)), forward.type(v));
  for (const Node& n : programs.joint.nodes)
    if (n.op == &op::param) params_.insert(name_of(n));
  for (Value v : backward_.signature().inputs())
    backward_inputs_.insert(name_of(backward_.signature().node(v)));
  for (const Update& u : backward_.signature().updates)
    if (types_.contains(u.param)) changed_.insert(u.param);
}

// Where the forward has it, in the region; nullopt: it has no place there.
std::optional<DeviceTensor> CompiledTraining::weight(const std::string& name) const {
  const auto slot = std::find_if(layout_.slots.begin(), layout_.slots.end(),
                                 [&](const WeightSlot& s) { return s.name == name; });
  if (slot == layout_.slots.end()) return std::nullopt;
  const Type& type = types_.at(name);
  return DeviceTensor(backend_, type.dtype, type.shape.sizes(),
                      MemoryBlock(region_, region_.get() + slot->offset));
}

void CompiledTraining::set_params(const NamedTensors& values) {
  for (const auto& [name, value] : values) {
    user_check(params_.contains(name), "param-unknown",
               "compile_training: there is no parameter \"{}\"; there are {}", name,
               fmt::join(params_, ", "));
    for (const CompiledGraph* program : {&forward_, &backward_})
      if (const Value leaf = program->signature().find_leaf(name); leaf.valid())
        user_check(program->signature().type(leaf) == value.type(), "param-type",
                   "parameter \"{}\" is {}, the value is {}", name, program->signature().type(leaf),
                   value.type());
  }
  has_run_ = false;
  for (const auto& [name, value] : values) {
    const auto w = weight(name);
    if (w) {
      stream_->upload(w->data().get(), value.raw(), w->bytes());
      stream_->wait();
    }
    for (CompiledGraph* program : {&forward_, &backward_}) {
      if (!program->signature().find_leaf(name).valid()) continue;
      if (w)
        program->bind_param(name, *w);
      else
        program->set_param(name, value);
    }
  }
}

NamedTensors CompiledTraining::params() const {
  NamedTensors out;
  for (const CompiledGraph* program : {&forward_, &backward_})
    for (const auto& [name, value] : program->params()) out.emplace(name, value);
  return out;
}

Tensors CompiledTraining::forward(const NamedTensors& inputs) {
  has_run_ = false;
  NamedDeviceTensors given;
  for (const auto& [name, value] : inputs)
    given.emplace(name, DeviceTensor::on(forward_.device(), value));
  const std::vector<DeviceTensor> results = forward_.run_on_device(given);
  Tensors out;
  for (size_t i = 0; i < outputs_; ++i) out.push_back(results[i].to_host());
  for (size_t i = outputs_; i < results.size(); ++i)
    backward_.set_input(fmt::format("saved_{}", i - outputs_), results[i]);
  for (const auto& [name, value] : given)  // the caller may change theirs before the backward
    if (backward_inputs_.contains(name)) backward_.set_input(name, value.copy());
  has_run_ = true;
  return out;
}

Tensors CompiledTraining::backward(const NamedTensors& inputs) {
  user_check(has_run_, "training-order",
             "compile_training: backward reads what a forward has left; run that first{}",
             changed_.empty() ? "" : ", with the parameters as they are now");
  for (const auto& [name, value] : inputs)
    backward_.input_index(name);  // an unknown one changes nothing
  has_run_ = changed_.empty();
  const Tensors out = backward_.run(inputs);
  for (const std::string& name : changed_)  // what was made of the old values goes
    forward_.bind_param(name, *weight(name));
  return out;
}

}  // namespace rlx::opt
