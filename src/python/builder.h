// rlx.GraphBuilder: the methods of rlx::GraphBuilder on Python's arrays. python/generate_builder.py makes the table of them
// from the header, so there is no second list.
#pragma once

#include <nanobind/nanobind.h>

namespace rlx::python {

void bind_builder(nanobind::module_& m);

}  // namespace rlx::python
