// Quantisation of float programs, for Python: python/rlx/_quantise.py.
#pragma once

#include <nanobind/nanobind.h>

namespace rlx::python {

void bind_quantising(nanobind::module_& m);

}  // namespace rlx::python
