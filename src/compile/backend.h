// Backend: what a kind of device gives to the one way from a program to running code (compile.h): its
// kernels (a Target) and what runs them (an Executable). Nothing else is asked of it.
//
// Inputs and outputs of an Executable are raw memory in the dtypes and order of the graph's signature;
// sizes and names are checked above.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "rlx/ir/graph.h"

namespace rlx {

class Target;    // lower/target.h
struct Program;  // lower/lir.h

struct CompileOptions {
  int threads = 0;         // 0: all of the machine
  DimBinding dims;         // sizes of symbolic dims
  bool fast_math = false;  // allow algebra that changes values (x + 0, x * 0, reassociation)
  bool fuse = true;
  bool verify = verify_by_default();  // between passes
  bool cache = true;                  // keep generated code on disk (docs/runtime.md)
  int vector_bits = 0;                // 0: the widest this CPU has
  bool poison = false;                // fill fresh and freed memory with NaN patterns (tests)
  std::string dump_dir;               // not empty: IR after each pass, kernels as IR and assembly

  // In builds with assertions, and where RLX_VERIFY=1 is set.
  static bool verify_by_default();
};

struct StepTime {
  std::string label, kernel;
  double seconds = 0;  // of the last run
  double flops = 0;
};

struct CompileInfo {
  int nodes = 0;  // of the graph as given
  int kernels_before_fusion = 0, kernels = 0;
  int generated = 0,
      cached = 0;              // distinct kernels of generated code; those whose code was on disk
  int64_t planned_bytes = 0;   // arena, outputs and scratch
  int64_t unshared_bytes = 0;  // the same without reuse
  int64_t param_bytes = 0;
  double seconds = 0, codegen_seconds = 0;
  double flops = 0;           // of one run
  std::string fusion_report;  // what fused and what did not, and why
  std::string plan;           // the steps and where their buffers lie
};

struct RunOptions {
  // Polled between blocks of work, so that a run ends some milliseconds after it was set, except inside
  // a single call of a library (docs/runtime.md lists them); raises Error(user, "cancelled").
  const std::atomic<bool>* cancel = nullptr;
  bool check_nan = false;  // raise Error(user, "nan") naming the first node that made one
  bool profile = false;    // fill times()
};

class Executable {
 public:
  virtual ~Executable() = default;
  virtual const Graph& signature() const = 0;  // static; inputs, params and outputs in order
  virtual const CompileInfo& info() const = 0;
  virtual void set_param(size_t index, const void* data) = 0;
  virtual const void* param(size_t index) const = 0;
  // Writes every byte of the outputs, unless it raises.
  virtual void run(const void* const* inputs, void* const* outputs, const RunOptions& options) = 0;
  // Puts parameters into the form that kernels read, where that is not done; run() does it otherwise.
  virtual void prepare() {}
  // Shares code, parameters that no update writes, and what prepare() has made of them; leaves this
  // one as it is.
  virtual std::unique_ptr<Executable> clone() const = 0;
  // Memory that it keeps between runs: parameters, prepared forms, the arena, code.
  virtual int64_t resident_bytes() const { return 0; }
  virtual std::vector<StepTime> times() const { return {}; }
};

// What the executables of a program share; immutable.
struct Compiled {
  Graph signature;                         // as given, all sizes known
  std::shared_ptr<const Program> program;  // none where the backend has no target
  // Of the program's parameters, which lack those that nobody reads: where they stand in the signature.
  std::vector<size_t> param_of;
  std::vector<bool> param_updated;  // by signature
  CompileInfo info;
  int threads = 1;
  bool poison = false;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  // Its kernels, for one compilation. nullptr: it walks graphs node by node, as they are given.
  virtual std::unique_ptr<Target> make_target(const CompileOptions& options) const = 0;
  virtual std::unique_ptr<Executable> load(std::shared_ptr<const Compiled> compiled) const = 0;
};

}  // namespace rlx
