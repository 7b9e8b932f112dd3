// LIR: kernels in order over planned buffers. What a backend runs.
//
// A program is a list of steps; a step runs one kernel on views of buffers. Views are free:
// transpose, slice, broadcast and reshape only change dims and strides. Buffers lie in the arena
// (planned by memory_plan.h), or belong to an input, an output, a parameter or a constant.
#pragma once

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

enum class Place : uint8_t { arena, input, output, param, constant, joined, packed };

struct Buffer;
// Whether the view is all of the buffer, in order.
bool covers(const View& v, const Buffer& b);

struct Buffer {
  Place place = Place::arena;
  int32_t index = 0;  // which input, output, parameter, constant, joined or packed weight
  int64_t bytes = 0;
  int64_t offset = 0;             // in the arena
  int32_t first = -1, last = -1;  // steps that write it first and touch it last
  // Lives in the memory of this buffer: one of the arena in that of another (in-place reuse), an output in that of a
  // donated input.
  int32_t shares = -1;
};

// What a kernel reports when the values it was given have no result.
enum class RunFault : uint32_t { none, index_range, singular };

// What planning, proofs and reports ask of a kernel that was made for one step: shapes, strides and
// constants are fixed. How it is run is a matter between a device's target, which makes it, and its
// streams, which launch it (device/backend.h); nothing here is memory of the host.
//
// Its work is cut into blocks that may run in any order or at once; what a block is never depends on
// how many do.
class StepKernel {
 public:
  virtual ~StepKernel() = default;
  virtual std::string name() const = 0;
  virtual int64_t blocks() const { return 1; }
  // Memory of the device that it needs while it runs, planned with the buffers.
  virtual int64_t workspace_bytes() const { return 0; }
  // May result `out` lie in the memory of operand `in` (same view)?
  virtual bool may_share(int in, int out) const {
    (void)in, (void)out;
    return false;
  }
  // Rough cost in elements.
  virtual int64_t work() const { return 1 << 20; }
  // About what the object takes, its code apart.
  virtual int64_t kept_bytes() const { return 512; }
  // Floating-point operations, for reports.
  virtual double flops() const { return 0; }
  // Weights that do not change from run to run may be stored in the kernel's own form: packed(i) is
  // this kernel reading operand i in that form, and of the result packed_bytes() is the form's size.
  // nullptr: no such form.
  virtual std::shared_ptr<const StepKernel> packed(int in) const {
    (void)in;
    return nullptr;
  }
  virtual int64_t packed_bytes() const { return 0; }
  // Names that form: kernels that name the same one, also those of other sizes, read what one of them has packed of the
  // same source.
  virtual std::string packed_form() const { return {}; }
  // Makes that form of an operand that may change, in a step before this kernel's: where it is read by many blocks.
  // nullptr: this kernel reads it as it is.
  virtual std::shared_ptr<const StepKernel> packing(int in) const {
    (void)in;
    return nullptr;
  }
  // What a block touches of an operand (inputs, then results), as narrowly as the kernel knows;
  // nullopt: any element of the view.
  virtual std::optional<BlockSpan> span(size_t operand) const {
    (void)operand;
    return std::nullopt;
  }
  // A kernel may leave some of its node's results to a second step that runs after all its blocks:
  // it writes partials[i] in the place of result results[i], and `kernel` makes the one of the
  // other. That one may leave its own to a third.
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
  int32_t node = -1;  // of the graph, for which it runs
  std::vector<View> in, out;
  std::vector<int64_t> in_bytes, out_bytes;  // control flow: sizes of the operands and results
  std::shared_ptr<const StepKernel> kernel;  // nullptr for control flow
  // Control flow: which, and the nested programs. Operands are bound to the inputs of the body.
  enum class Control : uint8_t { none, scan, cond, loop, sweep } control = Control::none;
  std::vector<std::shared_ptr<const Program>> bodies;
  int64_t length = 0, carries = 0, xs = 0;
  // Scans that keep carries, and sweeps (ops/control/scan_checkpoints.h): the steps that these enter. A scan's last
  // `carries` results are what it keeps.
  Ints times;
  // Sweeps: bodies are the forward and the reverse one; `entering` are the carries of the forward one, of which the
  // sweep may write over its operands, snapshots that no other step reads, and holds `slots` and the first at most; `xs`
  // counts the stacked inputs of the scan, `cotangents` what is stacked besides.
  int64_t entering = 0, cotangents = 0, slots = 0;
  // Buffer of what the kernel asks for; for control flow of the bodies' arenas, then a copy of each carry, which takes
  // turns with the result; for loops the predicate and two copies; for sweeps see SweepMemory. Loops: length is the
  // limit, -1 for none; bodies are the condition and the body.
  int32_t workspace = -1;
  bool reverse = false;
};

// The workspace of a sweep: where each part begins. In a part, the values of the carries follow each other, each at a
// multiple of 64 bytes.
struct SweepMemory {
  explicit SweepMemory(const Step& s);
  int64_t
      ahead;  // entering carries while steps go forward: the bodies' arenas come before, and the reverse one's over it
  int64_t swept;  // a copy of each carry, which takes turns with the result
  int64_t here;   // the carries that enter the step which is taken back, where no snapshot is
  int64_t more;   // snapshots besides those that the operands have room for, one after the other
  int64_t bytes;
};

// Inputs, then results.
inline size_t operand_count(const Step& s) { return s.in.size() + s.out.size(); }
inline const View& operand_of(const Step& s, size_t i) {
  return i < s.in.size() ? s.in[i] : s.out[i - s.in.size()];
}

// Steps [begin, end) that are launched together, one row tile after the other, so that what one step writes
// is still in cache when the next reads it: products with their epilogues and prologues. One step alone is a
// chain too. Which there are is the target's to say (Target::arrange).
struct Chain {
  int32_t begin = 0, end = 0;
  int64_t rows = 0, tile = 0;  // 0: not by rows; one step
};

struct PackedWeight {
  int32_t step = 0;  // whose kernel reads it
  View source;       // in a parameter, a constant or a joined weight
  std::string form;  // how it is packed
};

struct Program;
// What is made of parameters, and constants with them, that no run changes: joined weights, weights with a scale in them, .. It is
// made once, and again when one of the sources is set, by a program whose inputs are their buffers and whose output it is.
struct JoinedWeight {
  std::string label;  // of the node; one of each among programs of one origin, at all sizes
  std::vector<int32_t> sources;
  std::shared_ptr<const Program> program;
};

inline std::shared_ptr<const void> make_origin() { return std::make_shared<char>(); }

struct Program {
  Graph graph;                         // what was lowered (after all passes)
  std::shared_ptr<const void> origin;  // who numbered its nodes: programs of one outline have one
  std::vector<Step> steps;
  std::vector<Chain> chains;  // cover the steps in order
  std::vector<Buffer> buffers;
  std::vector<View> outputs;  // one per graph output
  std::vector<Tensor> constants;
  // By order of leaves. A parameter's buffer here is its value from before the run; one that an update
  // writes in place has a second buffer in the same memory, the new value.
  std::vector<int32_t> input_buffers, param_buffers;
  std::vector<bool> param_updated;
  // By input, empty where there are none: a run may write over it, because nobody reads it afterwards. Outputs may then lie
  // in its memory (donor_of).
  std::vector<bool> donated;
  std::vector<JoinedWeight> joined;
  std::vector<PackedWeight> packed;
  int64_t arena_bytes = 0, unshared_bytes = 0;
  int64_t scratch_bytes = 0;      // besides, of each worker that a stream has; the target says
  std::string target;             // whose kernels these are
  int generated = 0, cached = 0;  // distinct kernels of generated code; those that were on disk
  int64_t code_bytes = 0;
};

// The donated input in whose memory the output lies, by its index; -1: it has memory of its own.
int32_t donor_of(const Program& p, size_t output);

std::string to_string(const Program& p);

}  // namespace rlx
