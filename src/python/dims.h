// Sizes as Python sees them: numbers are ints, others are rlx.Dim, whose class in Python (rlx/_dims.py) derives from this
// one and knows what a size that is not known yet may be asked.
#pragma once

#include "rlx/python/array.h"

namespace rlx::python {

nb::object wrap_dim(const Dim& d);  // an int where it is a number
Dim read_dim(nb::handle h);         // an int, an rlx.Dim, the name of a symbol or text ("2*?n")
bool is_dim(nb::handle h);

void bind_dims(nb::module_& m);

}  // namespace rlx::python
