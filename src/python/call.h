// Calls of ops and of whole graphs on arrays: appended to the program being traced when an operand
// is traced, else compiled once per op, attributes and types, and run.
//
// Only Python promotes: when an op refuses operands of several dtypes they are cast to one that
// holds them all (or, where the first is a mask, all but the first). A plain number takes the dtype
// of the arrays it meets, as far as that can hold its kind; alone it is a bool, i64, f32 or c64.
#pragma once

#include "rlx/ir/op.h"
#include "rlx/python/array.h"

namespace rlx::python {

// The op's result, or a tuple when there are several.
nb::object call_op(const OpDef& op, const nb::tuple& operands, const nb::tuple& attributes);
// All outputs. The operands, arrays or array-like, are the graph's inputs in order.
nb::list call_graph(const Graph& g, const nb::sequence& operands);

void clear_eager_cache();
void bind_call(nb::module_& m);

}  // namespace rlx::python
