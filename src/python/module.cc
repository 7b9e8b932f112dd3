// rlx._core: the C++ half of the Python package. The Python half (python/rlx) adds operators, trees
// and transforms of functions, and generates a function per op from the table that this one shows.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#ifdef RLX_CPU
#include "rlx/backend/hidden/backend.h"
#endif
#include "rlx/python/array.h"
#include "rlx/python/builder.h"
#include "rlx/python/call.h"
#include "rlx/python/dims.h"
#include "rlx/python/explain.h"
#include "rlx/python/graphs.h"
#include "rlx/python/optimizer.h"
#include "rlx/python/program.h"
#include "rlx/python/quantising.h"
#include "rlx/python/scope.h"
#include "rlx/python/training.h"
#include "rlx/version.h"

namespace rlx::python {

namespace {

// Our errors become rlx.Error; whatever else C++ throws is left to nanobind.
void translate(const std::exception_ptr& error, void*) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    const nb::object exception = hooks().make_error(std::string(name(e.kind())), e.code(),
                                                    e.message(), e.where(), std::string(e.what()));
    PyErr_SetObject(exception.type().ptr(), exception.ptr());
  }
}

}  // namespace

NB_MODULE(_core, m) {
  nb::register_exception_translator(translate);
  bind_dims(m);
  bind_array(m);
  bind_scope(m);
  bind_graphs(m);
  bind_optimizer(m);
  bind_quantising(m);
  bind_builder(m);
  bind_call(m);
  bind_program(m);
  bind_training(m);
  bind_explain(m);
  m.attr("version") = RLX_VERSION;
  m.def("set_hooks", [](nb::object array_type, nb::object as_array, nb::object scalar_type,
                        nb::object dtype_name, nb::object make_error, nb::object dim_type) {
    hooks() = {std::move(array_type), std::move(as_array),   std::move(scalar_type),
               std::move(dtype_name), std::move(make_error), std::move(dim_type)};
  });
#ifdef RLX_CPU
  // For tests: a device whose memory the host cannot touch.
  m.def("register_hidden_device",
        [](int ordinal) { register_backend(hidden::make_hidden_backend(ordinal)); });
#endif
  m.def("forget", [] {  // at exit
    clear_caches();
    hooks() = {};
  });
}

}  // namespace rlx::python
