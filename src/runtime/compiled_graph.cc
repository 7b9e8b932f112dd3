#include <algorithm>

#include "rlx/runtime/runtime.h"

namespace rlx {

namespace {

template <class Leaves>
size_t index_of(const Leaves& leaves, const std::string& name, std::string_view what,
                const Graph& g) {
  for (size_t i = 0; i < leaves.size(); ++i)
    if (leaves[i].name == name) return i;
  std::vector<std::string_view> names;
  for (const auto& leaf : leaves) names.push_back(leaf.name);
  fail(ErrorKind::user, fmt::format("{}-unknown", what), "graph \"{}\" has no {} \"{}\"; it has {}",
       g.name, what, name, names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
}

void check_type(std::string_view what, const std::string& name, const Type& wanted,
                const Type& got) {
  user_check(wanted == got, fmt::format("{}-type", what), "{} \"{}\" is {}, given is {}", what,
             name, wanted, got);
}

}  // namespace

CompiledGraph::CompiledGraph(std::unique_ptr<Executable> executable)
    : executable_(std::move(executable)) {
  const Graph& g = signature();
  for (Value v : g.inputs()) input_leaves_.push_back({g.node(v).get<LeafAttrs>().name, g.type(v)});
  for (Value v : g.params()) param_leaves_.push_back({g.node(v).get<LeafAttrs>().name, g.type(v)});
  inputs_.resize(input_leaves_.size());
  input_pointers_.resize(input_leaves_.size(), nullptr);
  for (const Type& t : g.output_types()) {
    outputs_.emplace_back(t.dtype, t.shape.sizes());
    output_pointers_.push_back(outputs_.back().mutable_raw());
  }
  unset_ = input_leaves_.size() + param_leaves_.size();
}

CompiledGraph CompiledGraph::clone() const {
  CompiledGraph copy(executable_->clone());
  for (size_t i = 0; i < param_leaves_.size(); ++i)
    if (param_leaves_[i].set) copy.param_leaves_[i].set = true, --copy.unset_;
  for (size_t i = 0; i < input_leaves_.size(); ++i) {
    if (!input_leaves_[i].set) continue;
    const bool owned = inputs_[i] && input_pointers_[i] == inputs_[i]->raw();
    if (owned)
      copy.store_input(i, input_pointers_[i]);
    else
      copy.bind_input(i, input_pointers_[i]);
  }
  return copy;
}

// ---- parameters

size_t CompiledGraph::param_index(const std::string& name) const {
  return index_of(param_leaves_, name, "param", signature());
}

void CompiledGraph::store_param(size_t index, const void* data) {
  executable_->set_param(index, data);
  Leaf& leaf = param_leaves_[index];
  if (!leaf.set) leaf.set = true, --unset_;
}

void CompiledGraph::set_param(const std::string& name, const Tensor& value) {
  const size_t i = param_index(name);
  check_type("param", name, param_leaves_[i].type, value.type());
  store_param(i, value.raw());
}

void CompiledGraph::set_params(const NamedTensors& values) {
  for (const auto& [name, value] : values)
    check_type("param", name, param_leaves_[param_index(name)].type, value.type());
  for (const auto& [name, value] : values) store_param(param_index(name), value.raw());
}

Tensor CompiledGraph::param(const std::string& name) const {
  const size_t i = param_index(name);
  const Leaf& leaf = param_leaves_[i];
  user_check(leaf.set, "param-missing", "param \"{}\" was never set", name);
  return Tensor::from_bytes(leaf.type.dtype, leaf.type.shape.sizes(), executable_->param(i),
                            static_cast<size_t>(leaf.type.bytes()));
}

NamedTensors CompiledGraph::params() const {
  NamedTensors out;
  for (const Leaf& leaf : param_leaves_)
    if (leaf.set) out.emplace(leaf.name, param(leaf.name));
  return out;
}

// ---- inputs and outputs

size_t CompiledGraph::input_index(const std::string& name) const {
  return index_of(input_leaves_, name, "input", signature());
}

void CompiledGraph::store_input(size_t index, const void* data) {
  const Type& type = input_leaves_[index].type;
  std::optional<Tensor>& memory = inputs_[index];
  if (!memory) memory.emplace(type.dtype, type.shape.sizes());
  if (memory->bytes() > 0) std::memmove(memory->mutable_raw(), data, memory->bytes());
  bind_input(index, memory->raw());
}

void CompiledGraph::set_input(const std::string& name, const Tensor& value) {
  const size_t i = input_index(name);
  check_type("input", name, input_leaves_[i].type, value.type());
  store_input(i, value.raw());
}

void CompiledGraph::bind_input(size_t index, const void* data) {
  user_check(index < input_leaves_.size(), "input-unknown", "there is no input {}; there are {}",
             index, input_leaves_.size());
  Leaf& leaf = input_leaves_[index];
  if (leaf.set != (data != nullptr)) unset_ += leaf.set ? 1 : size_t(-1);
  leaf.set = data != nullptr;
  input_pointers_[index] = data;
}

void CompiledGraph::bind_output(size_t index, void* data) {
  user_check(index < outputs_.size(), "output-index", "there is no output {}; there are {}", index,
             outputs_.size());
  output_pointers_[index] = data ? data : outputs_[index].mutable_raw();
}

Tensor CompiledGraph::output_tensor(size_t index) const {
  user_check(index < outputs_.size(), "output-index", "there is no output {}; there are {}", index,
             outputs_.size());
  const Tensor& t = outputs_[index];
  return Tensor::from_bytes(t.dtype(), t.sizes(), output_pointers_[index], t.bytes());
}

// ---- running

void CompiledGraph::refuse_to_run(size_t outputs) const {
  auto report = [&](const std::vector<Leaf>& leaves, std::string_view what) {
    for (const Leaf& leaf : leaves)
      user_check(leaf.set, fmt::format("{}-missing", what), "{} \"{}\" ({}) was never set", what,
                 leaf.name, leaf.type);
  };
  report(input_leaves_, "input");
  report(param_leaves_, "param");
  fail(ErrorKind::user, "output-index", "run_into: {} pointers for {} outputs", outputs,
       outputs_.size());
}

std::vector<Tensor> CompiledGraph::run_to_tensors(const RunOptions& options) {
  std::vector<Tensor> out;
  std::vector<void*> pointers;
  for (const Tensor& t : outputs_) out.emplace_back(t.dtype(), t.sizes());
  for (Tensor& t : out) pointers.push_back(t.mutable_raw());
  run_into(pointers, options);
  return out;
}

std::vector<Tensor> CompiledGraph::run(const NamedTensors& inputs, const RunOptions& options) {
  for (const auto& [name, value] : inputs)
    check_type("input", name, input_leaves_[input_index(name)].type, value.type());
  for (const auto& [name, value] : inputs) store_input(input_index(name), value.raw());
  return run_to_tensors(options);
}

std::vector<Tensor> CompiledGraph::run_typed(std::span<const TypedInput> inputs,
                                             const RunOptions& options) {
  for (const TypedInput& in : inputs) {
    const Leaf& leaf = input_leaves_[input_index(in.name)];
    user_check(
        leaf.type.dtype == in.dtype && static_cast<size_t>(leaf.type.bytes()) == in.bytes.size(),
        "input-type", "input \"{}\" is {} ({} bytes), given are {} bytes of {}", in.name, leaf.type,
        leaf.type.bytes(), in.bytes.size(), in.dtype);
  }
  for (const TypedInput& in : inputs) store_input(input_index(in.name), in.bytes.data());
  return run_to_tensors(options);
}

}  // namespace rlx
