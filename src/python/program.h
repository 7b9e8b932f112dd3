// ArrayProgram: a compiled graph without parameters, run on Python's arrays by any thread, and the caches that keep programs.
//
//   std::shared_ptr<ArrayProgram> p = compile_cached(graph, device_for(arrays));
//   std::vector<DeviceTensor> y = p->run(arrays);      // gives the interpreter lock away meanwhile
//
// Where the graph has symbols they stand for the sizes that the arrays have. Ctrl-C stops a long run; a second one that comes
// before the run has noticed ends the process.
//
// Arrays that are donated are gone when the run begins, whatever becomes of it. The run writes results into their memory,
// unless somebody else can see that memory: an array that shares it, a reader of the buffer protocol, another run. Then it
// works on a copy, and a warning says so once.
#pragma once

#include <variant>

#include "rlx/base/function_ref.h"
#include "rlx/base/lru_cache.h"
#include "rlx/python/array.h"
#include "rlx/runtime/program_cache.h"

namespace rlx::python {

// Which inputs of a function are given away, and how messages call them.
struct Donation {
  std::string function;
  std::vector<size_t> inputs;
  std::vector<std::string> names;  // of these
};

class ArrayProgram {
 public:
  explicit ArrayProgram(std::shared_ptr<ProgramPool> pool, Donation donation = {});
  ArrayProgram(const ArrayProgram&) = delete;
  // Weak arrays, which stand for numbers, are moved to the device; others must lie there: "device-mixed". Raises "donated"
  // for arrays that are gone.
  std::vector<DeviceTensor> run(std::span<Array* const> inputs);
  // As run(); the message where the program has no meaning at these sizes ("dim-guard").
  std::variant<std::vector<DeviceTensor>, std::string> run_guarded(std::span<Array* const> inputs);
  const CompileInfo& info() const { return pool_->info(); }
  int64_t resident_bytes() const { return pool_->resident_bytes(); }

 private:
  // What a run reads, by input. Held until the run is over: arrays may be donated, and dropped, by other threads meanwhile.
  using Held = std::vector<MemoryBlock>;
  // Gives the inputs to a clone; arrays that lie elsewhere are moved for that.
  Held bind(CompiledGraph& f, std::span<Array* const> inputs) const;
  void bind(CompiledGraph& f, size_t input, const Ints& sizes, const MemoryBlock& memory) const;
  // The donor of each result, -1 for none, all of which nobody else can see now; the donated arrays are gone then.
  std::vector<int32_t> take_donated(CompiledGraph& f, std::span<Array* const> inputs, Held& held);
  void warn_of_idle(std::span<const int32_t> donors, std::span<Array* const> inputs);
  std::vector<DeviceTensor> run_bound(CompiledGraph& f, std::span<Array* const> inputs, Held held);

  std::shared_ptr<ProgramPool> pool_;
  std::vector<bool> sized_;  // by input: its sizes are symbols
  Donation donation_;
  std::shared_ptr<const std::string> function_;   // that donated arrays name
  bool told_idle_ = false, told_copied_ = false;  // warnings come once
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
                                             int64_t memory_budget = 0, Donation donation = {});

// Runs f without the interpreter lock; Ctrl-C sets the flag that f is given and raises
// KeyboardInterrupt afterwards. Where the program has a handler of its own that raises nothing, the
// run goes on: from the beginning where it is `repeatable`, else Error(user, "cancelled") is raised.
void run_interruptibly(bool is_long, bool repeatable,
                       FunctionRef<void(const std::atomic<bool>*)> f);

void clear_caches();
void bind_program(nb::module_& m);

}  // namespace rlx::python
