#include "rlx/python/program.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <csignal>

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

bool may_be_long(const CompiledGraph& f) {
  if (f.info().interpreted || f.signature().size() > 64) return true;
  if (f.info().flops > 1e7 || f.info().planned_bytes > (4 << 20)) return true;
  for (const Node& n : f.signature().nodes)
    if (n.op->kind == Kind::control) return true;
  return false;
}

}  // namespace

Program::Program(CompiledGraph compiled)
    : prototype_(std::move(compiled)),
      outputs_(prototype_.signature().output_types()),
      device_(prototype_.device()),
      backend_(backend_for(device_)),
      is_long_(may_be_long(prototype_)) {
  prototype_.prepare();
}

int64_t Program::resident_bytes() const {
  const int64_t shared = prototype_.resident_bytes();
  int64_t bytes = shared;
  for (const auto& f : idle_) bytes += f->resident_bytes() - shared;
  return bytes;
}

namespace {

[[noreturn]] void refuse_mixed(const Device& a, const Device& b) {
  fail(ErrorKind::user, "device-mixed",
       "arrays in memory of {} and of {} meet; move one with to_device()", name(a), name(b));
}

}  // namespace

std::vector<DeviceTensor> Program::run(std::span<const Array* const> inputs) {
  if (idle_.empty()) idle_.push_back(std::make_unique<CompiledGraph>(prototype_.clone()));
  struct Lease {
    std::vector<std::unique_ptr<CompiledGraph>>& home;
    std::unique_ptr<CompiledGraph> f;
    ~Lease() { home.push_back(std::move(f)); }
  } lease{idle_, std::move(idle_.back())};
  idle_.pop_back();

  std::vector<DeviceTensor> moved;
  moved.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const DeviceTensor* t = &device_tensor_of(*inputs[i]);
    if (t->backend() != backend_ && t->device() != backend_->memory()) {
      if (!inputs[i]->goes_along()) refuse_mixed(t->device(), backend_->memory());
      t = &moved.emplace_back(t->to(device_));
    }
    lease.f->bind_input(i, t->data().get());
  }
  std::vector<DeviceTensor> results;
  std::vector<void*> pointers;
  results.reserve(outputs_.size()), pointers.reserve(outputs_.size());
  for (const Type& t : outputs_) {
    results.emplace_back(backend_, t.dtype, t.shape.sizes(), backend_->allocate(t.bytes()));
    pointers.push_back(results.back().data().get());
  }
  run_interruptibly(is_long_, true, [&](const std::atomic<bool>* cancel) {
    lease.f->run_into(pointers, {.cancel = cancel});
  });
  return results;
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

struct GraphKey {
  Device device;
  Graph graph;
};
using GraphCache = LruCache<GraphKey, std::shared_ptr<Program>>;
GraphCache& graph_cache() {
  static auto* cache =
      new GraphCache(kCacheBytes, [](const auto& p) { return p->resident_bytes(); });
  return *cache;
}

}  // namespace

std::shared_ptr<Program> compile_cached(const Graph& g, const Device& device) {
  const uint64_t hash = mix(g.hash(), rlx::hash(device));
  auto same = [&](const GraphKey& k) { return k.device == device && k.graph == g; };
  if (auto* hit = graph_cache().find(hash, same)) return *hit;
  return *graph_cache().insert(hash, {device, g}, compile_interruptibly(device, g));
}

std::shared_ptr<Program> compile_interruptibly(const Device& device, const Graph& g) {
  std::optional<CompiledGraph> compiled;
  run_interruptibly(true, /*repeatable=*/false, [&](const std::atomic<bool>*) {
    compiled.emplace(Session(device).compile(g));
  });
  return std::make_shared<Program>(std::move(*compiled));
}

// ---- what jit keeps

namespace {

struct FunctionEntry {
  std::shared_ptr<Program> program;
  int64_t captured_bytes;
  nb::tuple entry;
};
using FunctionCache = LruCache<uint64_t, FunctionEntry>;
FunctionCache& function_cache() {
  static auto* cache = new FunctionCache(kCacheBytes, [](const FunctionEntry& e) {
    return e.program->resident_bytes() + e.captured_bytes;
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
  auto program = nb::cast<std::shared_ptr<Program>>(entry[0]);
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
}

void bind_program(nb::module_& m) {
  nb::class_<Program>(m, "Program", "A compiled function.")
      .def("run", [](const std::shared_ptr<Program>& p, const nb::sequence& operands) {
        std::vector<const Array*> inputs;
        for (nb::handle h : operands) inputs.push_back(as_array(h));
        return wrap_all(p->run(inputs), inputs);
      });
  nb::class_<KeptFunction>(m, "KeptFunction", "What jit keeps of a function.")
      .def(nb::init<nb::tuple>())
      .def("use", &KeptFunction::use)
      .def_prop_ro("is_kept", &KeptFunction::is_kept);
  m.def("compile_cached",
        [](const Graph& g, const std::string& device) { return compile_cached(g, device); });
  m.def("device_for", [](const nb::sequence& arrays) {
    std::vector<const Array*> list;
    for (nb::handle h : arrays) list.push_back(as_array(h));
    return name(device_for(list));
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
