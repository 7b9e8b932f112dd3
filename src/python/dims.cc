#include "rlx/python/dims.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace rlx::python {

nb::object wrap_dim(const Dim& d) {
  if (const auto size = d.static_value()) return nb::cast(*size);
  nb::object o = nb::inst_alloc(hooks().dim_type);
  new (nb::inst_ptr<Dim>(o)) Dim(d);
  nb::inst_mark_ready(o);
  return o;
}

bool is_dim(nb::handle h) { return nb::isinstance<Dim>(h); }

Dim read_dim(nb::handle h) {
  if (is_dim(h)) return *nb::inst_ptr<Dim>(h);
  if (PyUnicode_Check(h.ptr())) {
    const auto text = nb::cast<std::string>(h);
    if (text.find('?') == std::string::npos) return Dim::symbol(text);
    Lexer lex(text);
    return Dim::read(lex);
  }
  const nb::object index = nb::steal(PyNumber_Index(h.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  return Dim(nb::cast<int64_t>(index));
}

namespace {

// A bound from below where every symbol is at least `symbols`. Where there is one for symbols of at least 1, no
// coefficient is negative, and the polynomial only grows with them.
std::optional<int64_t> least(const Dim& d, int64_t symbols) {
  if (!d.least()) return std::nullopt;
  std::vector<std::string> names;
  d.collect_symbols(names);
  DimBinding binding;
  for (std::string& name : names) binding.emplace(std::move(name), symbols);
  return d.bind(binding).value();
}

// Whether a <= b for all symbols of at least `symbols`; None: it depends on them.
std::optional<bool> at_most(nb::handle a, nb::handle b, int64_t symbols) {
  const Dim x = read_dim(a), y = read_dim(b);
  if (const auto low = least(y - x, symbols); low && *low >= 0) return true;
  if (const auto low = least(x - y, symbols); low && *low > 0) return false;
  return std::nullopt;
}

}  // namespace

void bind_dims(nb::module_& m) {
  nb::class_<Dim>(m, "DimBase", "The storage of rlx.Dim.")
      .def("__init__",
           [](Dim* self, const std::string& name) { new (self) Dim(Dim::symbol(name)); })
      .def("__repr__", &Dim::to_string)
      .def("_symbols",
           [](const Dim& d) {
             std::vector<std::string> names;
             d.collect_symbols(names);
             return names;
           })
      .def("_hash", [](const Dim& d) { return static_cast<Py_hash_t>(d.hash() >> 1); })
      .def("_at", [](const Dim& d, const DimBinding& sizes) { return d.bind(sizes).value(); });
  m.def("dim_add", [](nb::handle a, nb::handle b) { return wrap_dim(read_dim(a) + read_dim(b)); });
  m.def("dim_sub", [](nb::handle a, nb::handle b) { return wrap_dim(read_dim(a) - read_dim(b)); });
  m.def("dim_mul", [](nb::handle a, nb::handle b) { return wrap_dim(read_dim(a) * read_dim(b)); });
  m.def("dim_floor_div",
        [](nb::handle a, int64_t b) { return wrap_dim(floor_div(read_dim(a), b)); });
  m.def("dim_divide", [](nb::handle a, nb::handle b) -> nb::object {  // None: it does not divide it
    const auto exact = read_dim(a).divide(read_dim(b));
    return exact ? wrap_dim(*exact) : nb::none();
  });
  m.def("dim_equal", [](nb::handle a, nb::handle b) { return read_dim(a) == read_dim(b); });
  m.def("dim_at_most", at_most);
}

}  // namespace rlx::python
