// Executable: a compiled program with its state on a device. One implementation (program_executable.cc) runs LIR on
// every device that has kernels, over nothing but the device's memory and a stream of it; the reference device,
// which has none, brings its own.
//
// Inputs and outputs are memory of the device in the dtypes and order of the graph's signature; sizes and names are
// checked above (runtime/runtime.h).
//
// Where the signature has symbols, bind() says what they stand for before a run, and may say it again: a program for other
// sizes over the same parameters, stream and memory.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "rlx/base/clock.h"
#include "rlx/device/backend.h"
#include "rlx/ir/graph.h"

namespace rlx {

struct StepTime {
  std::string label, kernel;
  double seconds = 0;  // of the last run
  double flops = 0;
};

struct CompileInfo {
  int nodes = 0;             // of the graph as given
  bool interpreted = false;  // walked node by node, without kernels
  int kernels_before_fusion = 0, kernels = 0;
  int generated = 0,
      cached = 0;              // distinct kernels of generated code; those whose code was on disk
  int64_t planned_bytes = 0;   // arena, outputs and scratch
  int64_t unshared_bytes = 0;  // the same without reuse
  int64_t param_bytes = 0;
  double seconds = 0, codegen_seconds = 0;
  double flops = 0;                // of one run
  std::string recognition_report;  // what was recognised and what nearly was, and why not
  std::string fusion_report;       // what fused and what did not, and why
  std::string per_size;            // why there is a compilation for each size; empty: there is not
  std::shared_ptr<const Program> program;
  std::string plan() const;  // the steps and where their buffers lie
};

// A program at certain sizes; immutable.
struct Bound {
  DimBinding sizes;  // of the symbols
  Types inputs, params, outputs;
  std::shared_ptr<const Program> program;  // none where the backend has no target: it walks
  std::shared_ptr<const Graph> graph;      // this one
  // Of the program's parameters, which lack those that nobody reads: where they stand in the signature.
  std::vector<size_t> param_of;
  std::vector<int32_t> donors;  // by output; empty where there are none
  // The donated input in whose memory the output lies; -1: it has its own.
  int32_t donor(size_t output) const { return donors.empty() ? -1 : donors[output]; }
  CompileInfo info;
  int64_t bytes = 0;  // that this takes, about, without code that programs of other sizes run, too
};

// What a run did when: steps that were launched together, and control flow around what ran inside of it.
struct RunSpan {
  std::string label, kernel;
  double start = 0, seconds = 0;  // since the run began
  int depth = 0;                  // inside so many others
  double flops = 0;
};
struct RunTrace {
  static constexpr size_t kMost = 1'000'000;  // spans that are kept
  Clock::time_point began;                    // when the run did
  std::vector<RunSpan> spans;                 // in the order in which they began
  int64_t dropped = 0;                        // spans beyond those
};

struct RunOptions {
  // Polled between blocks of work, so that a run ends some milliseconds after it was set, except inside
  // a single call of a library (docs/runtime.md lists them); raises Error(user, "cancelled").
  const std::atomic<bool>* cancel = nullptr;
  // Raise Error(user, "nan") naming the first step of the run that made one; what was folded before is none.
  bool check_nan = false;
  bool profile = false;       // fill times()
  RunTrace* trace = nullptr;  // not null: is made the trace of this run
  // False: return when all work is in the device's stream; whatever the run reads and writes must stay
  // until wait(), which raises what this would have. Runs that are watched by one of the above, and the host's own,
  // are done on return all the same.
  bool wait = true;
};

class Executable {
 public:
  virtual ~Executable() = default;
  virtual const Graph& signature() const = 0;   // inputs, params and outputs in order
  virtual const CompileInfo& info() const = 0;  // at the sizes of bound(), if there are some
  // The program that run() runs. nullptr: the signature has symbols, and none was bound yet.
  virtual const Bound* bound() const = 0;
  // Raises Error(user, "dim-guard") where the program has no meaning at these sizes, and stays as it is.
  virtual void bind(const DimBinding& sizes) = 0;
  // Parameters. upload_param copies from the host; share_param takes memory of the device, whose bytes nobody
  // changes from then on (where the program updates it, it takes a copy). param: its current value, nullptr where its size
  // is not known yet.
  virtual void upload_param(size_t index, const void* data, int64_t bytes) = 0;
  virtual void share_param(size_t index, MemoryBlock value, int64_t bytes) = 0;
  // The same, and where the program updates the parameter it writes this memory, until another value comes. Clones take
  // copies of what the program updates.
  virtual void bind_param(size_t index, MemoryBlock value, int64_t bytes) = 0;
  virtual MemoryBlock param(size_t index) const = 0;
  virtual bool is_updated(size_t param) const = 0;
  // Whether a run may write over the input (CompileOptions::donate).
  virtual bool is_donated(size_t input) const = 0;
  // Writes every byte of the outputs, unless it raises. Outputs that have a donor (Bound::donors) go to the memory of that
  // input instead: their pointers are not looked at.
  virtual void run(const std::byte* const* inputs, std::byte* const* outputs,
                   const RunOptions& options) = 0;
  // Until all runs are done; raises what went wrong in one that was not waited for.
  virtual void wait() {}
  // Puts parameters into the form that kernels read, where that is not done; run() does it otherwise.
  virtual void prepare() {}
  // Shares code, parameters that no update writes, and what prepare() has made of them; leaves this
  // one as it is.
  virtual std::unique_ptr<Executable> clone() const = 0;
  // Where its runs, and copies in order with them, happen.
  virtual Stream& stream() const = 0;
  virtual const std::shared_ptr<const Backend>& shared_backend() const = 0;
  const Backend& backend() const { return *shared_backend(); }
  // Memory that it keeps between runs: parameters, prepared forms, the arena, code.
  virtual int64_t resident_bytes() const { return 0; }
  virtual std::vector<StepTime> times() const { return {}; }
};

// What the executables of a program share.
struct Compiled {
  std::shared_ptr<const Backend> backend;
  Graph signature;                  // as given
  std::vector<bool> param_updated;  // by signature
  std::vector<bool> donated;        // by input; empty where none is
  bool is_donated(size_t input) const { return !donated.empty() && donated[input]; }
  CompileInfo info;
  int threads = 1;
  bool poison = false;
  std::shared_ptr<const Bound> bound;  // where all sizes are known
  int64_t bytes = 0;                   // that this takes, about; code included
  // Else: the program for these sizes. May be called by several threads at once; keeps what it made, within limits.
  std::function<std::shared_ptr<const Bound>(const DimBinding& sizes)> bind;
  std::function<int64_t()> bound_bytes;  // of what it keeps now
  int64_t kept_bytes() const { return bytes + (bound_bytes ? bound_bytes() : 0); }
};

// The executable of all devices with kernels.
std::unique_ptr<Executable> load_program(std::shared_ptr<const Compiled> compiled);

}  // namespace rlx
