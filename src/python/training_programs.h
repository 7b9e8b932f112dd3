// rlx.opt.compile_training for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace rlx::python {

void bind_training_programs(nanobind::module_& opt);

}  // namespace rlx::python
