// ProgramScope: a program while Python code writes it.
//
// There are two sorts. A *trace* is written by running a function: it stands on the thread's stack
// of traces, ops go to the innermost one, and arrays from outside (concrete ones, or values of the
// traces around it) become inputs which are listed in `captured`. A *builder* is what rlx.Graph
// holds: ops on its values go to it, concrete arrays become constants, values of other programs are
// refused.
//
// Raises Error(user) "trace-ended" for a value whose program is finished, "trace-mixed" for one
// that belongs to another builder.
#pragma once

#include <map>
#include <tuple>

#include "rlx/ir/builder.h"
#include "rlx/python/array.h"

namespace rlx::python {

class ProgramScope : public std::enable_shared_from_this<ProgramScope> {
 public:
  ProgramScope(const std::string& name, bool is_trace) : builder(name), is_trace_(is_trace) {}

  Array make(Value v) { return Array(shared_from_this(), v); }
  // The value that an array has here.
  Value import(const Array& a);
  // The finished program with these outputs.
  Graph finish(const std::vector<const Array*>& outputs);
  // The program so far with these outputs.
  Graph snapshot(const std::vector<const Array*>& outputs);
  bool open() const { return open_; }
  bool is_trace() const { return is_trace_; }

  Builder builder;
  std::vector<Array> captured;

 private:
  // Whose bytes or whose value, and with which sizes.
  using Key = std::tuple<const void*, Value, Ints>;
  bool is_trace_, open_ = true;
  std::map<Key, Value> imported_;
};

// The traces that are being written by this thread, innermost last.
std::vector<std::shared_ptr<ProgramScope>>& trace_stack();
// Where an op on these arrays goes; nullptr when all are concrete.
std::shared_ptr<ProgramScope> target_scope(std::span<const Array* const> operands);

void bind_scope(nb::module_& m);

}  // namespace rlx::python
