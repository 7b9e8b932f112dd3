// ArrayProgram: a compiled graph without parameters, run on Python's arrays by any thread, and the caches that keep programs.
//
//   std::shared_ptr<ArrayProgram> p = compile_cached(graph, device_for(arrays));
//   std::vector<DeviceTensor> y = p->run(arrays);      // gives the interpreter lock away meanwhile
//
// Where the graph has symbols they stand for the sizes that the arrays have. Ctrl-C stops a long run; a second one that comes
// before the run has noticed ends the process.
#pragma once

#include <variant>

#include "rlx/base/function_ref.h"
#include "rlx/base/lru_cache.h"
#include "rlx/python/array.h"
#include "rlx/runtime/program_cache.h"

namespace rlx::python {

class ArrayProgram {
 public:
  explicit ArrayProgram(std::shared_ptr<ProgramPool> pool);
  ArrayProgram(const ArrayProgram&) = delete;
  // Weak arrays, which stand for numbers, are moved to the device; others must lie there: "device-mixed".
  std::vector<DeviceTensor> run(std::span<const Array* const> inputs);
  // As run(); the message where the program has no meaning at these sizes ("dim-guard").
  std::variant<std::vector<DeviceTensor>, std::string> run_guarded(
      std::span<const Array* const> inputs);
  const CompileInfo& info() const { return pool_->info(); }
  int64_t resident_bytes() const { return pool_->resident_bytes(); }

 private:
  // Gives the inputs to a clone; returns what had to be moved for that.
  std::vector<DeviceTensor> bind(CompiledGraph& f, std::span<const Array* const> inputs) const;
  std::vector<DeviceTensor> run_bound(CompiledGraph& f) const;

  std::shared_ptr<ProgramPool> pool_;
  std::vector<bool> sized_;  // by input: its sizes are symbols
  Device device_;
  std::shared_ptr<const Backend> backend_;
  bool is_long_;
};

// The device that new arrays are made on and ops outside of any trace run on, per thread.
const Device& current_device();
// Where a program on these arrays runs: where those lie that are not loose, else where the loose ones lie; the current device
// if it reads that memory, or if the loose ones disagree. nullptrs are numbers. Raises "device-mixed" when arrays that
// are not loose lie in memory of several devices.
Device device_for(std::span<const Array* const> arrays);

// What the programs in a cache may keep; those used last stay.
inline constexpr int64_t kCacheBytes = ProgramCache::kDefaultBytes;

// What jit keeps of a function for one kind of arguments: `entry` is a tuple of an ArrayProgram, a list of arrays, and
// anything. All functions share one cache, bounded by the bytes of programs and arrays: an entry is there
// while its holder lives and others did not push it out.
class KeptFunction {
 public:
  explicit KeptFunction(nb::tuple entry);
  ~KeptFunction();
  KeptFunction(const KeptFunction&) = delete;
  nb::object use();  // the entry, None when it was dropped
  bool is_kept() const;

 private:
  uint64_t number_;
};

// Compiles without the interpreter lock. Ctrl-C is noticed afterwards; a second one ends the process.
std::shared_ptr<ArrayProgram> compile_interruptibly(const Device& device, const Graph& g);
// Compiles, unless an equal graph has been compiled for the device before.
std::shared_ptr<ArrayProgram> compile_cached(const Graph& g, const Device& device,
                                             int64_t memory_budget = 0);

// Runs f without the interpreter lock; Ctrl-C sets the flag that f is given and raises
// KeyboardInterrupt afterwards. Where the program has a handler of its own that raises nothing, the
// run goes on: from the beginning where it is `repeatable`, else Error(user, "cancelled") is raised.
void run_interruptibly(bool is_long, bool repeatable,
                       FunctionRef<void(const std::atomic<bool>*)> f);

void clear_caches();
void bind_program(nb::module_& m);

}  // namespace rlx::python
