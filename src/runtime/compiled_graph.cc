#include <algorithm>

#include "rlx/runtime/runtime.h"
#include "rlx/runtime/sizes.h"

namespace rlx {

namespace {

template <class Leaves, class Index>
size_t index_of(const Leaves& leaves, const Index& index, const std::string& name,
                std::string_view what, const Graph& g) {
  if (const auto found = index.find(name); found != index.end()) return found->second;
  std::vector<std::string_view> names;
  for (const auto& leaf : leaves) names.push_back(leaf.name);
  fail(ErrorKind::user, fmt::format("{}-unknown", what), "graph \"{}\" has no {} \"{}\"; it has {}",
       g.name, what, name, names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
}

void check_type(std::string_view what, const std::string& name, const Type& wanted,
                const Type& got) {
  user_check(wanted.dtype == got.dtype && may_be(wanted.shape, got.shape.sizes()),
             fmt::format("{}-type", what), "{} \"{}\" is {}, given is {}", what, name, wanted, got);
}

}  // namespace

void CompiledGraph::refuse_moved_from() {
  fail(ErrorKind::user, "moved-from", "this compiled graph was moved away; nothing is left in it");
}

class CompiledGraph::Use {
 public:
  explicit Use(const CompiledGraph& f) : busy_(f.busy_.flag) {
    const Executable& e = f.executable();
    user_check(!busy_.exchange(true, std::memory_order_acquire), "running",
               "graph \"{}\" is in use, by another thread or by a kernel of its own; use clone()",
               e.signature().name);
  }
  ~Use() { busy_.store(false, std::memory_order_release); }
  Use(const Use&) = delete;

 private:
  std::atomic<bool>& busy_;
};

CompiledGraph::CompiledGraph(std::unique_ptr<Executable> executable)
    : executable_(std::move(executable)) {
  const Graph& g = signature();
  auto add = [&](std::vector<Leaf>& leaves, Index& index, Value v) {
    const Type& t = g.type(v);
    leaves.push_back({g.node(v).get<LeafAttrs>().name, t, {}, false, !t.shape.is_static()});
    if (&leaves == &input_leaves_ && executable_->is_donated(leaves.size() - 1))
      donates_ = leaves.back().donated = true;
    index.emplace(leaves.back().name, index.size());
  };
  for (Value v : g.inputs()) add(input_leaves_, input_index_, v);
  for (Value v : g.params()) add(param_leaves_, param_index_, v);
  inputs_.resize(input_leaves_.size());
  input_pointers_.resize(input_leaves_.size(), nullptr);
  outputs_.resize(g.outputs.size());
  output_pointers_.resize(g.outputs.size(), nullptr);
  output_types_.resize(g.outputs.size());
  output_bytes_.resize(g.outputs.size());
  unset_ = input_leaves_.size() + param_leaves_.size();
  is_symbolic_ = resized_ = has_symbols(g);
  if (executable_->bound()) learn_outputs();
}

int64_t CompiledGraph::Leaf::bytes() const { return value_type().bytes(); }

void CompiledGraph::resize(Leaf& leaf, const Ints& sizes) {
  if (!leaf.is_symbolic || (leaf.set && leaf.sizes == sizes)) return;
  leaf.sizes = sizes;
  resized_ = true;
}

void CompiledGraph::learn_outputs() {
  const Types& types = executable_->bound()->outputs;
  for (size_t k = 0; k < types.size(); ++k) {
    output_types_[k] = {types[k].dtype, types[k].shape.sizes()};
    const int64_t bytes = types[k].bytes();
    // Memory of our own goes when its size does; a pointer of the caller's is the caller's to change.
    if (outputs_[k] && bytes != output_bytes_[k]) {
      executable_->wait();
      outputs_[k] = nullptr, output_pointers_[k] = nullptr, outputs_made_ = false;
    }
    output_bytes_[k] = bytes;
  }
}

// Sizes follow from what was set; the program for them is chosen before a run, never in it.
void CompiledGraph::bind_sizes() {
  std::vector<SizedLeaf> leaves;
  for (const auto& [list, what] : {std::pair(&input_leaves_, "input"), {&param_leaves_, "param"}})
    for (const Leaf& leaf : *list)
      if (leaf.is_symbolic && leaf.set)
        leaves.push_back(
            {fmt::format("{} \"{}\"", what, leaf.name), &leaf.type.shape, &leaf.sizes});
  const DimBinding sizes = infer_sizes(leaves, known_);
  for (const std::string& symbol : signature().symbols())
    user_check(sizes.contains(symbol), "unbound-dim",
               "graph \"{}\": the size of dim ?{} follows from no input; say it with set_sizes()",
               signature().name, symbol);
  executable_->bind(sizes);
  has_run_ = false;
  learn_outputs();
  resized_ = false;
}

void CompiledGraph::set_sizes(const DimBinding& sizes) {
  const Use use(*this);
  within_memory([&] {
    const auto symbols = signature().symbols();
    for (const auto& [name, size] : sizes) {
      user_check(std::find(symbols.begin(), symbols.end(), name) != symbols.end(), "dim-unknown",
                 "graph \"{}\" has no dim ?{}; it has {}", signature().name, name,
                 symbols.empty() ? "none" : fmt::format("?{}", fmt::join(symbols, ", ?")));
      user_check(size >= 0, "negative-dim", "dim ?{} cannot have the size {}", name, size);
    }
    known_ = sizes;
    resized_ = is_symbolic_;
  });
}

DimBinding CompiledGraph::sizes() const {
  const Use use(*this);
  const Bound* bound = executable_->bound();
  return bound ? bound->sizes : DimBinding{};
}

const Types& CompiledGraph::output_types() {
  const Use use(*this);
  return within_memory([&]() -> const Types& {
    get_ready(outputs_.size());
    return executable_->bound()->outputs;
  });
}

CompiledGraph CompiledGraph::clone() const {
  const Use use(*this);
  return within_memory([&] {
    CompiledGraph copy(executable_->clone());
    for (size_t i = 0; i < param_leaves_.size(); ++i)
      if (param_leaves_[i].set) copy.param_leaves_[i] = param_leaves_[i], --copy.unset_;
    copy.known_ = known_;
    for (size_t i = 0; i < input_leaves_.size(); ++i) {
      if (!input_leaves_[i].set) continue;
      copy.input_leaves_[i].sizes = input_leaves_[i].sizes;
      const Held& held = inputs_[i];
      if (input_pointers_[i] != held.block.get()) {
        copy.point_input(i, input_pointers_[i]);  // bound
      } else if (held.shared && !input_leaves_[i].donated) {
        copy.share_input(i, input_leaves_[i].sizes, held.block);
      } else {
        const int64_t bytes = input_leaves_[i].bytes();
        MemoryBlock block = executable_->backend().allocate(bytes);
        copy.executable_->stream().copy(block.get(), held.block.get(), bytes);
        copy.inputs_[i] = {std::move(block), false, bytes};
        copy.point_input(i, copy.inputs_[i].block.get());
      }
    }
    copy.executable_->stream().wait();
    return copy;
  });
}

void CompiledGraph::prepare() {
  const Use use(*this);
  within_memory([&] { executable_->prepare(); });
}

// ---- parameters

size_t CompiledGraph::param_index(const std::string& name) const {
  return index_of(param_leaves_, param_index_, name, "param", signature());
}

void CompiledGraph::store_param(size_t index, const Tensor& value) {
  executable_->upload_param(index, value.raw(), static_cast<int64_t>(value.bytes()));
  Leaf& leaf = param_leaves_[index];
  resize(leaf, value.sizes());
  if (!leaf.set) leaf.set = true, --unset_;
}

void CompiledGraph::set_param(const std::string& name, const Tensor& value) {
  const Use use(*this);
  within_memory([&] {
    const size_t i = param_index(name);
    check_type("param", name, param_leaves_[i].type, value.type());
    store_param(i, value);
  });
}

void CompiledGraph::set_params(const NamedTensors& values) {
  const Use use(*this);
  within_memory([&] {
    for (const auto& [name, value] : values)
      check_type("param", name, param_leaves_[param_index(name)].type, value.type());
    for (const auto& [name, value] : values) store_param(param_index(name), value);
  });
}

Tensor CompiledGraph::read_param(size_t i) const {
  const Leaf& leaf = param_leaves_[i];
  user_check(leaf.set, "param-missing", "param \"{}\" was never set", leaf.name);
  return to_host(leaf.value_type(), executable_->param(i).get());
}

// A copy in memory of the host.
Tensor CompiledGraph::to_host(const Type& type, const std::byte* data) const {
  Tensor t = Tensor::uninitialised(type.dtype, type.shape.sizes());
  executable_->stream().download(t.mutable_raw(), data, type.bytes());
  return t;
}

void CompiledGraph::check_device(std::string_view what, const std::string& name,
                                 const DeviceTensor& t) const {
  const Device memory = executable_->backend().memory();
  user_check(t.device() == memory, fmt::format("{}-device", what),
             "{} \"{}\" lies in memory of {}, the program reads memory of {}; move it with to()",
             what, name, rlx::name(t.device()), rlx::name(memory));
}

void CompiledGraph::set_param(const std::string& name, const DeviceTensor& value) {
  const Use use(*this);
  within_memory([&] {
    const size_t i = param_index(name);
    check_type("param", name, param_leaves_[i].type, value.type());
    check_device("param", name, value);
    share_param(i, value);
  });
}

void CompiledGraph::set_params(const NamedDeviceTensors& values) {
  const Use use(*this);
  within_memory([&] {
    for (const auto& [name, value] : values) {
      check_type("param", name, param_leaves_[param_index(name)].type, value.type());
      check_device("param", name, value);
    }
    for (const auto& [name, value] : values) share_param(param_index(name), value);
  });
}

void CompiledGraph::share_param(size_t index, const DeviceTensor& value) {
  executable_->share_param(index, value.data(), value.type().bytes());
  took_param(index, value.sizes());
}

void CompiledGraph::took_param(size_t index, const Ints& sizes) {
  Leaf& leaf = param_leaves_[index];
  resize(leaf, sizes);
  if (!leaf.set) leaf.set = true, --unset_;
}

void CompiledGraph::bind_param(const std::string& name, const DeviceTensor& value) {
  const Use use(*this);
  within_memory([&] {
    const size_t i = param_index(name);
    check_type("param", name, param_leaves_[i].type, value.type());
    check_device("param", name, value);
    executable_->bind_param(i, value.data(), value.type().bytes());
    took_param(i, value.sizes());
  });
}

std::vector<std::string> CompiledGraph::param_names() const {
  std::vector<std::string> names;
  for (const Leaf& leaf : param_leaves_)
    if (leaf.set) names.push_back(leaf.name);
  return names;
}

DeviceTensor CompiledGraph::device_param(const std::string& name) const {
  const Use use(*this);
  return within_memory([&] {
    const size_t i = param_index(name);
    const Leaf& leaf = param_leaves_[i];
    user_check(leaf.set, "param-missing", "param \"{}\" was never set", leaf.name);
    const Executable& e = *executable_;
    e.stream().wait();
    const DeviceTensor value(e.shared_backend(), leaf.type.dtype, leaf.value_type().shape.sizes(),
                             e.param(i));
    return e.is_updated(i) ? value.copy() : value;
  });
}

Tensor CompiledGraph::param(const std::string& name) const {
  const Use use(*this);
  return within_memory([&] { return read_param(param_index(name)); });
}

NamedTensors CompiledGraph::params() const {
  const Use use(*this);
  return within_memory([&] {
    NamedTensors out;
    for (size_t i = 0; i < param_leaves_.size(); ++i)
      if (param_leaves_[i].set) out.emplace(param_leaves_[i].name, read_param(i));
    return out;
  });
}

// ---- inputs and outputs

size_t CompiledGraph::input_index(const std::string& name) const {
  return index_of(input_leaves_, input_index_, name, "input", signature());
}

// What may fail comes first: memory and its sizes belong together.
void CompiledGraph::store_input(size_t index, const Ints& sizes, const void* host) {
  Leaf& leaf = input_leaves_[index];
  Held& held = inputs_[index];
  const int64_t bytes = leaf.is_symbolic ? product(sizes) * size_of(leaf.type.dtype) : leaf.bytes();
  if (!held.block || held.shared || held.bytes < bytes) {
    MemoryBlock block = executable_->backend().allocate(bytes);
    if (held.block) executable_->wait();
    resize(leaf, sizes);
    held = {std::move(block), false, bytes};
  } else {
    resize(leaf, sizes);
  }
  point_input(index, held.block.get());
  executable_->stream().upload(held.block.get(), host, bytes);
}

void CompiledGraph::share_input(size_t index, const Ints& sizes, MemoryBlock block) {
  if (inputs_[index].block) executable_->wait();
  resize(input_leaves_[index], sizes);
  inputs_[index] = {std::move(block), true, 0};
  point_input(index, inputs_[index].block.get());
}

void CompiledGraph::take_inputs(std::span<const std::pair<size_t, const Ints*>> given,
                                FunctionRef<void(size_t k)> store) {
  if (is_symbolic_) {
    // The sizes as they would be; where all are known, the program for them is chosen now.
    std::vector<std::pair<Ints, bool>> before;
    for (const auto& [index, sizes] : given)
      before.emplace_back(input_leaves_[index].sizes, input_leaves_[index].set);
    const auto restore = [&] {
      for (size_t k = 0; k < before.size(); ++k) {
        Leaf& leaf = input_leaves_[given[k].first];
        leaf.sizes = std::move(before[k].first), leaf.set = before[k].second;
      }
      resized_ = true;
    };
    size_t unset = unset_;
    try {
      for (const auto& [index, sizes] : given) {
        Leaf& leaf = input_leaves_[index];
        resize(leaf, *sizes);
        if (!leaf.set) leaf.set = true, --unset;
      }
      if (unset == 0 && resized_) bind_sizes();
    } catch (...) {
      restore();
      throw;
    }
    const bool bound = !resized_;
    restore();
    for (size_t k = 0; k < given.size(); ++k) store(k);
    if (bound) resized_ = false;  // the sizes are those again
    return;
  }
  for (size_t k = 0; k < given.size(); ++k) store(k);
}

void CompiledGraph::set_input(const std::string& name, const DeviceTensor& value) {
  const Use use(*this);
  within_memory([&] {
    const size_t i = input_index(name);
    check_type("input", name, input_leaves_[i].type, value.type());
    check_device("input", name, value);
    share_input(i, value.sizes(), value.data());
  });
}

void CompiledGraph::set_input(const std::string& name, const Tensor& value) {
  const Use use(*this);
  within_memory([&] {
    const size_t i = input_index(name);
    check_type("input", name, input_leaves_[i].type, value.type());
    store_input(i, value.sizes(), value.raw());
  });
}

void CompiledGraph::point_input(size_t index, const std::byte* data) {
  Leaf& leaf = input_leaves_[index];
  if (leaf.set != (data != nullptr)) unset_ += leaf.set ? 1 : size_t(-1);
  leaf.set = data != nullptr;
  leaf.gone = false;
  input_pointers_[index] = data;
}

namespace {

// Where there are no elements there may be no pointer.
const std::byte* pointer_to(const void* data, int64_t bytes) {
  static const std::byte nothing{};
  return data || bytes > 0 ? static_cast<const std::byte*>(data) : &nothing;
}

}  // namespace

void CompiledGraph::bind_input(size_t index, const void* data) {
  const Use use(*this);
  const Leaf& leaf = input_leaf(index);
  user_check(!leaf.is_symbolic || leaf.set || !data, "input-sizes",
             "input \"{}\" is {}: a pointer to it needs sizes", leaf.name, leaf.type);
  point_input(index, leaf.is_symbolic ? static_cast<const std::byte*>(data)
                                      : pointer_to(data, leaf.bytes()));
}

void CompiledGraph::bind_input(size_t index, const void* data, Ints sizes) {
  const Use use(*this);
  within_memory([&] {
    Leaf& leaf = input_leaf(index);
    check_type("input", leaf.name, leaf.type, {leaf.type.dtype, Shape::of(sizes)});
    for (int64_t size : sizes)
      user_check(size >= 0, "input-sizes", "input \"{}\" cannot have the size {}", leaf.name, size);
    resize(leaf, sizes);
    point_input(index, pointer_to(data, leaf.bytes()));
  });
}

CompiledGraph::Leaf& CompiledGraph::input_leaf(size_t index) {
  user_check(index < input_leaves_.size(), "input-unknown", "there is no input {}; there are {}",
             index, input_leaves_.size());
  return input_leaves_[index];
}

void CompiledGraph::check_output(size_t index) const {
  user_check(index < outputs_.size(), "output-index", "there is no output {}; there are {}", index,
             outputs_.size());
}

void CompiledGraph::bind_output(size_t index, void* data) {
  const Use use(*this);
  check_output(index);
  if (outputs_[index]) within_memory([&] { executable_->wait(); });  // a run may still write it
  outputs_[index].reset();
  output_pointers_[index] = static_cast<std::byte*>(data);
  outputs_made_ = false;
}

void CompiledGraph::unbind() {
  const Use use(*this);
  within_memory([&] { executable_->wait(); });
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (input_pointers_[i] && input_pointers_[i] != inputs_[i].block.get()) point_input(i, nullptr);
  for (size_t i = 0; i < outputs_.size(); ++i)
    if (!outputs_[i]) output_pointers_[i] = nullptr, outputs_made_ = false;
}

void CompiledGraph::make_outputs() {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (output_pointers_[i]) continue;
    outputs_[i] = executable_->backend().allocate(output_bytes_[i]);
    output_pointers_[i] = outputs_[i].get();
  }
  outputs_made_ = true;
}

const void* CompiledGraph::output(size_t index) const {
  const Use use(*this);
  check_output(index);
  const bool bound = !outputs_[index];  // to memory of the caller's, or not at all
  user_check(output_pointers_[index] && (bound || has_run_), "output-missing",
             "output {} has no value before a run() that succeeds", index);
  return output_pointers_[index];
}

Tensor CompiledGraph::output_tensor(size_t index) const {
  const auto* const data = static_cast<const std::byte*>(output(index));
  const Use use(*this);
  const auto& [dtype, sizes] = output_types_[index];
  return within_memory([&] { return to_host({dtype, Shape::of(sizes)}, data); });
}

// ---- running

void CompiledGraph::refuse_to_run(size_t outputs) const {
  auto report = [&](const std::vector<Leaf>& leaves, std::string_view what) {
    for (const Leaf& leaf : leaves)
      user_check(leaf.set, fmt::format("{}-missing", what), "{} \"{}\" ({}) {}", what, leaf.name,
                 leaf.type,
                 leaf.gone ? "was given to the last run; set it again" : "was never set");
  };
  report(input_leaves_, "input");
  report(param_leaves_, "param");
  fail(ErrorKind::user, "output-index", "run_into: {} pointers for {} outputs", outputs,
       outputs_.size());
}

void CompiledGraph::execute(std::span<std::byte* const> outputs, const RunOptions& options) {
  struct Forget {
    CompiledGraph* f;
    bool is_done = true;  // a run that fails is over
    ~Forget() {
      if (f->donates_) f->forget_donated(is_done);
    }
  } forget{this};
  executable_->run(input_pointers_.data(), outputs.data(), options);
  if (donates_) copy_from_donors(outputs, options.wait);
  forget.is_done = options.wait;
}

// ---- donated inputs

std::span<const int32_t> CompiledGraph::donors() {
  const Use use(*this);
  return within_memory([&]() -> std::span<const int32_t> {
    get_ready(outputs_.size());
    return executable_->bound()->donors;
  });
}

// Outputs that somebody wants elsewhere than in their donors' memory.
void CompiledGraph::copy_from_donors(std::span<std::byte* const> outputs, bool wait) {
  Stream& stream = executable_->stream();
  bool copied = false;
  for (size_t k = 0; k < outputs.size(); ++k) {
    const int32_t donor = executable_->bound()->donor(k);
    if (donor < 0 || !outputs[k]) continue;
    const std::byte* const there = input_pointers_[static_cast<size_t>(donor)];
    if (there == outputs[k]) continue;
    stream.copy(outputs[k], there, output_bytes_[k]);
    copied = true;
  }
  if (copied && wait) stream.wait();
}

// Nobody has their values any more. What a run that was not waited for reads stays until the input is set again.
void CompiledGraph::forget_donated(bool is_done) {
  for (size_t i = 0; i < input_leaves_.size(); ++i) {
    if (!input_leaves_[i].donated || !input_leaves_[i].set) continue;
    point_input(i, nullptr);
    input_leaves_[i].gone = true;
    if (is_done)
      inputs_[i] = {};
    else
      inputs_[i].shared = true;  // not to be written
  }
}

// Of an output that has a donor: the donor's memory, where that is not the caller's alone.
MemoryBlock CompiledGraph::memory_of_donor(size_t output) const {
  const int32_t donor = executable_->bound()->donor(output);
  if (donor < 0) return nullptr;
  const auto i = static_cast<size_t>(donor);
  return inputs_[i].block.get() == input_pointers_[i] ? inputs_[i].block : nullptr;
}

// Outputs that nobody has bound stay where their donors are.
void CompiledGraph::take_donors() {
  for (size_t k = 0; k < outputs_.size(); ++k) {
    if (output_pointers_[k] && !outputs_[k]) continue;  // bound
    if (MemoryBlock block = memory_of_donor(k)) {
      outputs_[k] = std::move(block);
      output_pointers_[k] = outputs_[k].get();
    }
  }
}

// What comes before a run.
void CompiledGraph::get_ready(size_t outputs) {
  if (unset_ != 0 || outputs != outputs_.size()) [[unlikely]]
    refuse_to_run(outputs);
  if (resized_) [[unlikely]]
    bind_sizes();
}

void CompiledGraph::run(const RunOptions& options) {
  const Use use(*this);
  has_run_ = false;
  within_memory([&] {
    get_ready(outputs_.size());
    if (donates_) take_donors();
    if (!outputs_made_) make_outputs();
    execute(output_pointers_, options);
  });
  has_run_ = true;
}

void CompiledGraph::run_into(std::span<void* const> outputs, const RunOptions& options) {
  const Use use(*this);
  within_memory([&] { get_ready(outputs.size()); });
  for (size_t i = 0; i < std::min(outputs.size(), output_types_.size()); ++i)
    user_check(
        outputs[i] || product(output_types_[i].second) == 0 || executable_->bound()->donor(i) >= 0,
        "output-index", "run_into: the pointer for output {} is null", i);
  within_memory([&] {
    // A pointer is a pointer: what is behind it is the device's business.
    execute({reinterpret_cast<std::byte* const*>(outputs.data()), outputs.size()}, options);
  });
}

void CompiledGraph::wait() {
  const Use use(*this);
  within_memory([&] { executable_->wait(); });
}

void CompiledGraph::after(const CompiledGraph& other) {
  if (&other == this) return;  // in order anyway
  const Use use(*this), theirs(other);
  within_memory([&] { executable_->stream().wait_for(other.executable_->stream().record()); });
}

std::vector<Tensor> CompiledGraph::run_to_tensors(const RunOptions& options) {
  RunOptions waited = options;
  waited.wait = true;
  std::vector<Tensor> out;
  for (const DeviceTensor& t : run_to_device(waited))
    out.push_back(t.is_on_host() ? Tensor::over(t.dtype(), t.sizes(), t.data())
                                 : to_host(t.type(), t.data().get()));
  return out;
}

std::vector<DeviceTensor> CompiledGraph::run_to_device(const RunOptions& options) {
  get_ready(outputs_.size());
  std::vector<DeviceTensor> out;
  std::vector<std::byte*> pointers;
  const auto backend = executable_->shared_backend();
  for (size_t i = 0; i < output_types_.size(); ++i) {
    const auto& [dtype, sizes] = output_types_[i];
    MemoryBlock block = donates_ ? memory_of_donor(i) : nullptr;
    if (!block) block = backend->allocate(output_bytes_[i]);
    out.emplace_back(backend, dtype, sizes, std::move(block));
    pointers.push_back(out.back().data().get());
  }
  execute(pointers, options);
  return out;
}

std::vector<DeviceTensor> CompiledGraph::run_on_device(const NamedDeviceTensors& inputs,
                                                       const RunOptions& options) {
  const Use use(*this);
  return within_memory([&] {
    for (const auto& [name, value] : inputs) {
      check_type("input", name, input_leaves_[input_index(name)].type, value.type());
      check_device("input", name, value);
    }
    std::vector<std::pair<size_t, const Ints*>> given;
    std::vector<const DeviceTensor*> values;
    for (const auto& [name, value] : inputs)
      given.emplace_back(input_index(name), &value.sizes()), values.push_back(&value);
    take_inputs(
        given, [&](size_t k) { share_input(given[k].first, *given[k].second, values[k]->data()); });
    return run_to_device(options);
  });
}

std::vector<Tensor> CompiledGraph::run(const NamedTensors& inputs, const RunOptions& options) {
  const Use use(*this);
  return within_memory([&] {
    for (const auto& [name, value] : inputs)
      check_type("input", name, input_leaves_[input_index(name)].type, value.type());
    std::vector<std::pair<size_t, const Ints*>> given;
    std::vector<const Tensor*> values;
    for (const auto& [name, value] : inputs)
      given.emplace_back(input_index(name), &value.sizes()), values.push_back(&value);
    take_inputs(given,
                [&](size_t k) { store_input(given[k].first, *given[k].second, values[k]->raw()); });
    return run_to_tensors(options);
  });
}

std::vector<Tensor> CompiledGraph::run_typed(std::span<const TypedInput> inputs,
                                             const RunOptions& options) {
  const Use use(*this);
  return within_memory([&] {
    for (const TypedInput& in : inputs) {
      const Leaf& leaf = input_leaves_[input_index(in.name)];
      user_check(!leaf.is_symbolic || in.sizes.size() == leaf.type.shape.size(), "input-sizes",
                 "input \"{}\" is {}: its bytes need sizes", in.name, leaf.type);
      Type type = leaf.type;
      if (leaf.is_symbolic) type.shape = Shape::of(in.sizes);
      check_type("input", in.name, leaf.type, type);
      user_check(
          leaf.type.dtype == in.dtype && static_cast<size_t>(type.bytes()) == in.bytes.size(),
          "input-type", "input \"{}\" is {} ({} bytes), given are {} bytes of {}", in.name, type,
          type.bytes(), in.bytes.size(), in.dtype);
    }
    std::vector<std::pair<size_t, const Ints*>> given;
    for (const TypedInput& in : inputs) given.emplace_back(input_index(in.name), &in.sizes);
    take_inputs(given, [&](size_t k) {
      store_input(given[k].first, *given[k].second, inputs[k].bytes.data());
    });
    return run_to_tensors(options);
  });
}

std::vector<StepTime> CompiledGraph::times() const {
  const Use use(*this);
  return within_memory([&] { return executable_->times(); });
}

int64_t CompiledGraph::resident_bytes() const {
  const Use use(*this);
  int64_t bytes = executable_->resident_bytes() + static_cast<int64_t>(sizeof(*this));
  // A leaf, its place by name and its pointers; what is known of an output.
  bytes += static_cast<int64_t>(input_leaves_.size() + param_leaves_.size()) *
               static_cast<int64_t>(sizeof(Leaf) + 128) +
           static_cast<int64_t>(outputs_.size()) * 128;
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].block) bytes += inputs_[i].shared ? input_leaves_[i].bytes() : inputs_[i].bytes;
  for (size_t i = 0; i < outputs_.size(); ++i)
    if (outputs_[i]) bytes += output_bytes_[i];
  return bytes;
}

}  // namespace rlx
