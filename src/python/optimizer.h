// The optimizer under the names of its documents, for Python: functions from graph to graph, and reports.
#pragma once

#include <nanobind/nanobind.h>

namespace rlx::python {

void bind_optimizer(nanobind::module_& m);

}  // namespace rlx::python
