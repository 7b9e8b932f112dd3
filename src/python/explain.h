// explain() for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace rlx::python {

void bind_explain(nanobind::module_& m);

}  // namespace rlx::python
