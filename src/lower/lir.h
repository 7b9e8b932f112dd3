// LIR: kernels in order over planned buffers. What a backend runs.
//
// A program is a list of steps; a step runs one kernel on views of buffers. Views are free:
// transpose, slice, broadcast and reshape only change dims and strides. Buffers lie in the arena
// (planned by memory_plan.h), or belong to an input, an output, a parameter or a constant.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "rlx/ir/graph.h"
#include "rlx/lower/block_span.h"

namespace rlx {

// A strided window into a buffer; strides and offset count elements.
struct View {
  int32_t buffer = -1;
  DType dtype = DType::F32;
  Ints dims, strides;
  int64_t offset = 0;

  int64_t elements() const;
  bool is_dense() const;  // row-major without gaps (dims of size 1 may have any stride)
  Type type() const { return {dtype, Shape::of(dims)}; }
  static View dense(int32_t buffer, const Type& type);
};

// Views of views; nullopt when only a copy will do.
std::optional<View> view_reshape(const View& v, const Ints& dims);
View view_transpose(const View& v, const Ints& perm);
View view_slice(const View& v, const Ints& start, const Ints& limit, const Ints& stride);
View view_broadcast(const View& v, const Ints& dims);
View view_reverse(const View& v, const Ints& axes);

enum class Place : uint8_t { arena, input, output, param, constant, packed };

struct Buffer;
// Whether the view is all of the buffer, in order.
bool covers(const View& v, const Buffer& b);

struct Buffer {
  Place place = Place::arena;
  int32_t index = 0;  // which input, output, parameter, constant or packed weight
  int64_t bytes = 0;
  int64_t offset = 0;             // in the arena
  int32_t first = -1, last = -1;  // steps that write it first and touch it last
  int32_t shares = -1;            // arena: lives in the memory of this buffer (in-place reuse)
};

// What a kernel reports through StepMemory::flag when the values it was given have no result.
enum class RunFault : uint32_t { none, index_range, singular };
inline void report(uint32_t* flag, RunFault fault) {
  __atomic_store_n(flag, static_cast<uint32_t>(fault), __ATOMIC_RELAXED);
}

// The request to stop a run, as those who work on it see it. A request that anybody has seen counts,
// even when the caller takes it back: some work was left out.
class Cancellation {
 public:
  void begin(const std::atomic<bool>* request) {
    request_ = request;
    seen_.store(false, std::memory_order_relaxed);
  }
  bool watched() const { return request_ != nullptr; }
  bool poll() {
    if (!request_ || !request_->load(std::memory_order_relaxed)) return seen();
    seen_.store(true, std::memory_order_relaxed);
    return true;
  }
  bool seen() const { return seen_.load(std::memory_order_relaxed); }

 private:
  const std::atomic<bool>* request_ = nullptr;
  std::atomic<bool> seen_{false};
};

// Where a step's kernel finds its memory at run time: pointers to the first element of each view.
struct StepMemory {
  void* const* operands;  // inputs, then results
  std::byte* scratch;     // of this worker
  uint32_t* flag;         // a RunFault; 1 when an index is out of range
  Cancellation* cancellation = nullptr;
  // For loops inside a block that takes long: once it is true, the results do not matter any more.
  bool cancelled() const { return cancellation && cancellation->poll(); }
};

// A kernel made for one step: shapes, strides and constants are fixed. Runs blocks [begin, end) of
// its work; what a block is never depends on the number of threads. Thread-safe; allocates nothing.
// Whoever runs it polls for cancellation between blocks.
class StepKernel {
 public:
  virtual ~StepKernel() = default;
  virtual std::string name() const = 0;
  virtual int64_t blocks() const = 0;
  virtual size_t scratch_bytes() const { return 0; }  // per worker
  virtual void run(const StepMemory& memory, int64_t begin, int64_t end) const = 0;
  // May result `out` lie in the memory of operand `in` (same view)?
  virtual bool may_share(int in, int out) const {
    (void)in, (void)out;
    return false;
  }
  // Rough cost in elements; small steps run on the calling thread.
  virtual int64_t work() const { return 1 << 20; }
  // Floating-point operations, for reports.
  virtual double flops() const { return 0; }
  // Weights that do not change from run to run may be stored in the kernel's own form: packed(i) is
  // this kernel reading operand i in that form, and of the result packed_bytes() is the form's size
  // and pack() makes it. nullptr: no such form.
  virtual std::shared_ptr<const StepKernel> packed(int in) const {
    (void)in;
    return nullptr;
  }
  virtual size_t packed_bytes() const { return 0; }
  virtual void pack(const void* source, void* target) const { (void)source, (void)target; }
  // What a block touches of an operand (inputs, then results), as narrowly as the kernel knows;
  // nullopt: any element of the view.
  virtual std::optional<BlockSpan> span(size_t operand) const {
    (void)operand;
    return std::nullopt;
  }
  // A kernel may leave some of its node's results to a second step that runs after all its blocks:
  // it writes partials[i] in the place of result results[i], and `kernel` makes the one of the
  // other.
  struct Rest {
    std::vector<size_t> results;
    Types partials;
    std::shared_ptr<const StepKernel> kernel;
  };
  virtual const Rest* rest() const { return nullptr; }
  // Kernels that work row by row can be run tile by tile with their neighbours (Chain). rows() > 0:
  // block b computes exactly the rows [b * n, (b + 1) * n) of its dense results, n =
  // rows_per_block(). Which operands it reads only there follows from span().
  virtual int64_t rows() const { return 0; }
  virtual int64_t rows_per_block() const { return 0; }
};

struct Program;

struct Step {
  std::string label;  // what it computes: op names, provenance
  std::vector<View> in, out;
  std::vector<int64_t> in_bytes, out_bytes;  // control flow: sizes of the operands and results
  std::shared_ptr<const StepKernel> kernel;  // nullptr for control flow
  // Control flow: which, and the nested programs. Operands are bound to the inputs of the body.
  enum class Control : uint8_t { none, scan, cond, loop } control = Control::none;
  std::vector<std::shared_ptr<const Program>> bodies;
  int64_t length = 0, carries = 0, xs = 0;
  // Buffer for the bodies' arenas, then two copies of each carry, for loops the predicate. Loops: length
  // is the limit, -1 for none; bodies are the condition and the body.
  int32_t workspace = -1;
  bool reverse = false;
};

// Inputs, then results.
inline size_t operand_count(const Step& s) { return s.in.size() + s.out.size(); }
inline const View& operand_of(const Step& s, size_t i) {
  return i < s.in.size() ? s.in[i] : s.out[i - s.in.size()];
}

// Steps [begin, end) that run one row tile after the other, so that what one step writes is still
// in cache when the next reads it: products with their epilogues and prologues. One step alone is a
// chain too.
struct Chain {
  int32_t begin = 0, end = 0;
  int64_t rows = 0, tile = 0;  // 0: not by rows; one step
};

struct PackedWeight {
  int32_t step = 0;  // whose kernel reads it
  View source;       // in a parameter or constant
};

struct Program {
  Graph graph;  // what was lowered (after all passes)
  std::vector<Step> steps;
  std::vector<Chain> chains;  // cover the steps in order
  std::vector<Buffer> buffers;
  std::vector<View> outputs;  // one per graph output
  std::vector<Tensor> constants;
  // By order of leaves. A parameter's buffer here is its value from before the run; one that an update
  // writes in place has a second buffer in the same memory, the new value.
  std::vector<int32_t> input_buffers, param_buffers;
  std::vector<bool> param_updated;
  std::vector<PackedWeight> packed;
  int64_t arena_bytes = 0, scratch_bytes = 0, unshared_bytes = 0;
  std::string target;             // whose kernels these are
  int generated = 0, cached = 0;  // distinct kernels of generated code; those that were on disk
  int64_t code_bytes = 0;
};

std::string to_string(const Program& p);

}  // namespace rlx
