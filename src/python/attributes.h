// Attributes of ops from Python values, by the fields of the op's attribute struct.
//
//   read_attributes(op::softmax.def, (-1,))      // one value per field, None for the default
//
// Raises Error(user, "attribute") naming the op, the attribute, its type and what was given.
#pragma once

#include "rlx/ir/op.h"
#include "rlx/python/array.h"

namespace rlx::python {

Attrs read_attributes(const OpDef& op, const nb::tuple& values);

// A field's default as a Python value: a number, a bool, a string, a tuple; None where there is no
// such thing (graphs, tensors, absent options).
nb::object default_value(const FieldInfo& field, const void* attrs);

}  // namespace rlx::python
