#include "rlx/python/program.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <csignal>

#include "rlx/base/large_blocks.h"
#include "rlx/ir/op.h"
#include "rlx/python/call.h"

namespace rlx::python {

// ---- Ctrl-C

namespace {

std::atomic<bool> interrupted{false};
struct sigaction python_action;

// Python is told first: whoever sees the flag finds the signal there, whichever thread it came to.
// The second one, while the run has not noticed the first, ends the process.
extern "C" void on_interrupt(int signal) {
  python_action.sa_handler(signal);
  if (interrupted.exchange(true, std::memory_order_release)) {
    struct sigaction usual{};
    usual.sa_handler = SIG_DFL;
    sigaction(signal, &usual, nullptr);
    ::raise(signal);
  }
}

bool in_main_thread() {
  static const auto main = nb::cast<unsigned long>(
      nb::module_::import_("threading").attr("main_thread")().attr("ident"));
  return PyThread_get_thread_ident() == main;
}

// While it lives SIGINT also sets the flag; Python only looks at signals between two of its own
// instructions.
class Watch {
 public:
  Watch() {
    interrupted.store(false, std::memory_order_relaxed);
    sigaction(SIGINT, nullptr, &python_action);
    watches_ = !(python_action.sa_flags & SA_SIGINFO) && python_action.sa_handler != SIG_DFL &&
               python_action.sa_handler != SIG_IGN;
    if (!watches_) return;
    struct sigaction ours = python_action;
    ours.sa_handler = on_interrupt;
    sigaction(SIGINT, &ours, nullptr);
  }
  ~Watch() {
    if (watches_) sigaction(SIGINT, &python_action, nullptr);
  }
  Watch(const Watch&) = delete;

 private:
  bool watches_ = false;
};

// As Python does for a signal that it was given.
void call_handler() {
  PyFrameObject* frame = PyEval_GetFrame();
  nb::module_::import_("signal").attr("getsignal")(SIGINT)(
      SIGINT, frame ? nb::borrow(reinterpret_cast<PyObject*>(frame)) : nb::none());
}

// Whether Python's handler is the one that raises KeyboardInterrupt.
bool interrupts_raise() {
  const nb::module_ signals = nb::module_::import_("signal");
  return signals.attr("getsignal")(SIGINT).is(signals.attr("default_int_handler"));
}

}  // namespace

void run_interruptibly(bool is_long, bool repeatable,
                       FunctionRef<void(const std::atomic<bool>*)> f) {
  if (!is_long || !in_main_thread()) {
    nb::gil_scoped_release unlocked;
    f(nullptr);
    return;
  }
  for (;;) {
    std::optional<Error> cancelled;
    bool came_before = false;  // after Python looked last; it looks again after the run
    {
      const Watch watch;
      came_before = PyOS_InterruptOccurred() != 0;
      try {
        nb::gil_scoped_release unlocked;
        if (!came_before) f(&interrupted);
      } catch (const Error& e) {
        if (e.code() != "cancelled") throw;
        cancelled = e;
      }
    }
    // Python's handler runs when ours is gone: it may set another.
    if (came_before) {
      call_handler();
      continue;
    }
    if (interrupted && PyErr_CheckSignals() != 0) throw nb::python_error();
    if (!cancelled) return;
    if (!repeatable || !interrupted) throw Error(*cancelled);
  }
}

// ---- programs

namespace {

bool may_be_long(const Graph& signature, const CompileInfo& info) {
  if (info.interpreted || signature.size() > 64) return true;
  if (info.flops > 1e7 || info.planned_bytes > (4 << 20)) return true;
  for (const Node& n : signature.nodes)
    if (n.op->kind == Kind::control) return true;
  return has_symbols(signature);  // how long depends on them
}

}  // namespace

ArrayProgram::ArrayProgram(std::shared_ptr<ProgramPool> pool, Donation donation)
    : pool_(std::move(pool)),
      donation_(std::move(donation)),
      function_(std::make_shared<const std::string>(donation_.function)),
      device_(pool_->device()),
      backend_(backend_for(device_)),
      is_long_(may_be_long(pool_->signature(), pool_->info())) {
  const Graph& g = pool_->signature();
  for (Value v : g.inputs()) sized_.push_back(!g.type(v).shape.is_static());
}

namespace {

[[noreturn]] void refuse_mixed(const Device& a, const Device& b) {
  fail(ErrorKind::user, "device-mixed",
       "arrays in memory of {} and of {} meet; move one with to_device()", name(a), name(b));
}

}  // namespace

void ArrayProgram::bind(CompiledGraph& f, size_t input, const Ints& sizes,
                        const MemoryBlock& memory) const {
  if (sized_[input])
    f.bind_input(input, memory.get(), sizes);
  else
    f.bind_input(input, memory.get());
}

ArrayProgram::Held ArrayProgram::bind(CompiledGraph& f, std::span<Array* const> inputs) const {
  Held held;
  held.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const DeviceTensor& t = device_tensor_of(*inputs[i]);
    if (t.backend() != backend_ && t.device() != backend_->memory()) {
      if (!inputs[i]->goes_along()) refuse_mixed(t.device(), backend_->memory());
      held.push_back(t.to(device_).data());
    } else {
      held.push_back(t.data());
    }
    bind(f, i, t.sizes(), held.back());
  }
  return held;
}

namespace {

// The first few names, quoted as the arguments that they are of.
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kMost = 5;
  const auto shown = std::span(names).first(std::min(names.size(), kMost));
  return fmt::format(
      "{}{}", fmt::join(shown, ", "),
      names.size() > kMost ? fmt::format(", and {} more", names.size() - kMost) : "");
}

// As Python's filters want it: shown, ignored or raised.
void warn(const std::string& text) {
  if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) != 0) throw nb::python_error();
}

// Whether the memory of an array is held by it and by this run alone.
bool is_alone(const Array& a, const MemoryBlock& held) {
  if (a.lent) return false;
  const bool moved = a.tensor->data() != held;
  if (held.use_count() > (moved ? 1 : 2)) return false;
  MemoryBlock(held).reset();  // what others did with it before they let go has happened
  return true;
}

}  // namespace

void ArrayProgram::warn_of_idle(std::span<const int32_t> donors, std::span<Array* const> inputs) {
  if (told_idle_ || pool_->info().interpreted) return;
  std::vector<std::string> idle;
  for (size_t k = 0; k < donation_.inputs.size(); ++k) {
    const size_t i = donation_.inputs[k];
    const auto input = static_cast<int32_t>(i);
    if (std::find(donors.begin(), donors.end(), input) == donors.end() &&
        inputs[i]->tensor->bytes() > 0 && !inputs[i]->weak)
      idle.push_back(fmt::format("{} ({})", donation_.names[k], inputs[i]->type()));
  }
  if (idle.empty()) return;
  told_idle_ = true;
  warn(fmt::format("{}: no result could use the memory of donated arguments: {}",
                   donation_.function, listed(idle)));
}

std::vector<int32_t> ArrayProgram::take_donated(CompiledGraph& f, std::span<Array* const> inputs,
                                                Held& held) {
  const std::span<const int32_t> donors = f.donors();
  warn_of_idle(donors, inputs);
  std::vector<std::string> copied;
  for (size_t k = 0; k < donation_.inputs.size(); ++k) {
    const size_t i = donation_.inputs[k];
    (void)device_tensor_of(*inputs[i]);  // another thread may have been faster
    if (std::find(donors.begin(), donors.end(), static_cast<int32_t>(i)) == donors.end() ||
        is_alone(*inputs[i], held[i]))
      continue;
    copied.push_back(donation_.names[k]);
    const Ints sizes = inputs[i]->tensor->sizes();
    held[i] = DeviceTensor(backend_, inputs[i]->tensor->dtype(), sizes, held[i]).copy().data();
    bind(f, i, sizes, held[i]);
  }
  if (!copied.empty() && !told_copied_) {
    told_copied_ = true;
    warn(
        fmt::format("{}: donated arguments were copied, because something else uses their memory "
                    "(a view, another argument, another run): {}",
                    donation_.function, listed(copied)));
  }
  return {donors.begin(), donors.end()};
}

std::vector<DeviceTensor> ArrayProgram::run_bound(CompiledGraph& f, std::span<Array* const> inputs,
                                                  Held held) {
  const Types& types = f.output_types();
  std::vector<int32_t> donors;
  const bool donates = !donation_.inputs.empty();
  if (donates) donors = take_donated(f, inputs, held);
  std::vector<DeviceTensor> results;
  std::vector<void*> pointers;
  results.reserve(types.size()), pointers.reserve(types.size());
  for (size_t k = 0; k < types.size(); ++k) {
    const Type& t = types[k];
    const bool has_donor = !donors.empty() && donors[k] >= 0;
    results.emplace_back(
        backend_, t.dtype, t.shape.sizes(),
        has_donor ? held[static_cast<size_t>(donors[k])] : backend_->allocate(t.bytes()));
    pointers.push_back(results.back().data().get());
  }
  for (const size_t i : donation_.inputs) inputs[i]->donate(function_);
  // Where the handler raises nothing, a run that has taken arrays must have its result.
  const bool stops = is_long_ && (!donates || interrupts_raise());
  run_interruptibly(stops, /*repeatable=*/!donates, [&](const std::atomic<bool>* cancel) {
    f.run_into(pointers, {.cancel = cancel});
  });
  return results;
}

std::vector<DeviceTensor> ArrayProgram::run(std::span<Array* const> inputs) {
  const ProgramPool::Lease f = pool_->take();
  return run_bound(*f, inputs, bind(*f, inputs));
}

std::variant<std::vector<DeviceTensor>, std::string> ArrayProgram::run_guarded(
    std::span<Array* const> inputs) {
  const ProgramPool::Lease f = pool_->take();
  Held held = bind(*f, inputs);
  try {
    const nb::gil_scoped_release unlocked;
    (void)f->output_types();  // binds the sizes
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::user) throw;
    return e.message();
  }
  return run_bound(*f, inputs, std::move(held));
}

namespace {

Device& chosen_device() {
  static thread_local Device device = default_device();
  return device;
}

}  // namespace

const Device& current_device() { return chosen_device(); }

Device device_for(std::span<const Array* const> arrays) {
  const DeviceTensor *fixed = nullptr, *loose = nullptr;
  bool agree = true;  // the loose ones, on where they lie
  auto apart = [](const DeviceTensor& a, const DeviceTensor& b) {
    return a.backend() != b.backend() && a.device() != b.device();
  };
  for (const Array* a : arrays) {
    if (!a || a->traced() || a->weak) continue;
    const DeviceTensor& t = *a->tensor;
    const DeviceTensor*& first = a->loose ? loose : fixed;
    if (!first) {
      first = &t;
    } else if (apart(*first, t)) {
      if (!a->loose) refuse_mixed(first->device(), t.device());
      agree = false;
    }
  }
  const DeviceTensor* where = fixed ? fixed : agree ? loose : nullptr;
  if (!where || where->backend()->device() == current_device() ||
      backend_for(current_device())->memory() == where->device())
    return current_device();
  return where->device();
}

namespace {

ProgramCache& graph_cache() {
  static auto* cache = new ProgramCache(kCacheBytes);
  return *cache;
}

template <class Compile>
std::shared_ptr<ArrayProgram> without_lock(Compile&& compile, Donation donation = {}) {
  std::shared_ptr<ProgramPool> pool;
  run_interruptibly(true, /*repeatable=*/false,
                    [&](const std::atomic<bool>*) { pool = compile(); });
  return std::make_shared<ArrayProgram>(std::move(pool), std::move(donation));
}

}  // namespace

std::shared_ptr<ArrayProgram> compile_cached(const Graph& g, const Device& device,
                                             int64_t memory_budget, Donation donation) {
  const std::vector<size_t> donate = donation.inputs;
  return without_lock([&] { return graph_cache().compile(g, device, memory_budget, donate); },
                      std::move(donation));
}

std::shared_ptr<ArrayProgram> compile_interruptibly(const Device& device, const Graph& g) {
  return without_lock([&] { return std::make_shared<ProgramPool>(Session(device).compile(g)); });
}

// ---- what jit keeps

namespace {

struct FunctionEntry {
  std::shared_ptr<ArrayProgram> program;
  int64_t captured_bytes;
  nb::tuple entry;
};
constexpr int64_t kRecordBytes = 2048;  // what the interpreter keeps of an entry, about
using FunctionCache = LruCache<uint64_t, FunctionEntry>;
FunctionCache& function_cache() {
  static auto* cache = new FunctionCache(kCacheBytes, [](const FunctionEntry& e) {
    return e.program->resident_bytes() + e.captured_bytes + kRecordBytes;
  });
  return *cache;
}

auto has_number(uint64_t number) {
  return [number](uint64_t other) { return other == number; };
}

}  // namespace

KeptFunction::KeptFunction(nb::tuple entry) {
  static uint64_t last = 0;
  number_ = ++last;
  int64_t bytes = 0;
  for (nb::handle h : nb::cast<nb::list>(entry[1])) bytes += device_tensor_of(*as_array(h)).bytes();
  auto program = nb::cast<std::shared_ptr<ArrayProgram>>(entry[0]);
  function_cache().insert(number_, number_, {std::move(program), bytes, std::move(entry)});
}

KeptFunction::~KeptFunction() { function_cache().erase(number_, has_number(number_)); }

nb::object KeptFunction::use() {
  const FunctionEntry* found = function_cache().find(number_, has_number(number_));
  return found ? nb::object(found->entry) : nb::none();
}

bool KeptFunction::is_kept() const {
  return function_cache().contains(number_, has_number(number_));
}

void clear_caches() {
  function_cache().clear();
  graph_cache().clear();
  clear_eager_cache();
  drop_kept_blocks();
}

void bind_program(nb::module_& m) {
  nb::class_<ArrayProgram>(m, "Program", "A compiled function.")
      .def("run",
           [](const std::shared_ptr<ArrayProgram>& p, const nb::sequence& operands) {
             std::vector<Array*> inputs;
             for (nb::handle h : operands) inputs.push_back(as_array(h));
             return wrap_all(p->run(inputs), inputs);
           })
      .def("run_guarded",  // a message where the program has no meaning at the sizes of the arrays
           [](const std::shared_ptr<ArrayProgram>& p, const nb::sequence& operands) -> nb::object {
             std::vector<Array*> inputs;
             for (nb::handle h : operands) inputs.push_back(as_array(h));
             auto results = p->run_guarded(inputs);
             if (const auto* why = std::get_if<std::string>(&results)) return nb::cast(*why);
             return wrap_all(std::get<0>(std::move(results)), inputs);
           })
      .def_prop_ro("per_size", [](const ArrayProgram& p) { return p.info().per_size; })
      .def_prop_ro("seconds", [](const ArrayProgram& p) { return p.info().seconds; });
  nb::class_<KeptFunction>(m, "KeptFunction", "What jit keeps of a function.")
      .def(nb::init<nb::tuple>())
      .def("use", &KeptFunction::use)
      .def_prop_ro("is_kept", &KeptFunction::is_kept);
  // donated: the inputs that are given away, and how messages call them.
  m.def(
      "compile_cached",
      [](const Graph& g, const std::string& device, int64_t memory_budget,
         const std::string& function, std::vector<size_t> donated, std::vector<std::string> names) {
        return compile_cached(g, device, memory_budget,
                              {function, std::move(donated), std::move(names)});
      },
      nb::arg("graph"), nb::arg("device"), nb::arg("memory_budget"), nb::arg("function") = "",
      nb::arg("donated") = std::vector<size_t>(), nb::arg("names") = std::vector<std::string>());
  m.def("device_for", [](const nb::sequence& arrays) {
    std::vector<const Array*> list;
    for (nb::handle h : arrays) list.push_back(as_array(h));
    return name(device_for(list));
  });
  m.def("program_counts", [] {
    const ProgramCache::Counts c = graph_cache().counts();
    return nb::make_tuple(c.hits, c.compilations, c.programs, c.bytes);
  });
  m.def("clear_caches", clear_caches);
  m.def("get_backend", [] { return name(current_device()); });
  m.def("set_backend",
        [](const std::string& text) { chosen_device() = backend_for(text)->device(); });
  m.def("backends", [] {
    std::vector<std::string> names;
    for (const Device& d : available_devices()) names.push_back(name(d));
    return names;
  });
}

}  // namespace rlx::python
