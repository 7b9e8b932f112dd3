// Graphs, their transforms and compiled graphs, for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace rlx::python {

void bind_graphs(nanobind::module_& m);

}  // namespace rlx::python
