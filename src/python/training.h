// What training in Python needs of C++: optimisers, schedules and clipping as programs, checkpoints.
#pragma once

#include <nanobind/nanobind.h>

namespace rlx::python {

void bind_training(nanobind::module_& m);

}  // namespace rlx::python
