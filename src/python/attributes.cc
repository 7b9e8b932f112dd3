#include "rlx/python/attributes.h"

#include <nanobind/stl/string.h>

#include "rlx/ops/table.h"
#include "rlx/python/dims.h"

namespace rlx::python {

namespace {

// A value in the text form of a field's type, which the field's codec then reads. Raises Python's
// own errors for a value of the wrong kind.
std::string text_of(const std::string& type, nb::handle v);

std::string list_text(const std::string& item, nb::handle v) {
  if (!PySequence_Check(v.ptr()) || PyUnicode_Check(v.ptr()))
    return "[" + text_of(item, v) + "]";  // a single one
  std::string out = "[";
  for (nb::handle x : nb::borrow<nb::sequence>(v)) {
    if (out.size() > 1) out += ", ";
    out += text_of(item, x);
  }
  return out + "]";
}

std::string bool_text(nb::handle v) {
  const int truth = PyObject_IsTrue(v.ptr());
  if (truth < 0) throw nb::python_error();
  return truth ? "true" : "false";
}

std::string text_of(const std::string& type, nb::handle v) {
  if (type.ends_with('?'))
    return v.is_none() ? "none" : text_of(type.substr(0, type.size() - 1), v);
  if (type.starts_with('[')) return list_text(type.substr(1, type.size() - 2), v);
  if (type == "bool") return bool_text(v);
  if (type == "int") {
    if (PyBool_Check(v.ptr())) throw nb::type_error("is an integer, not a bool");
    const nb::object index = nb::steal(PyNumber_Index(v.ptr()));
    if (!index.is_valid()) throw nb::python_error();
    return nb::cast<std::string>(nb::str(index));
  }
  if (type == "float") {
    const double x = PyFloat_AsDouble(v.ptr());
    if (x == -1 && PyErr_Occurred()) throw nb::python_error();
    return number_text(x);
  }
  if (type == "dim") return read_dim(v).to_string();
  if (type == "dtype") return std::string(to_string(read_dtype(v)));
  if (type == "string") return quote(nb::cast<std::string>(v));
  return nb::cast<std::string>(nb::str(v));  // one of several words
}

// A list or tuple of plain integers; false for anything else.
bool read_integers(nb::handle v, Ints& out) {
  if (!PyList_CheckExact(v.ptr()) && !PyTuple_CheckExact(v.ptr())) return false;
  Ints read;
  for (nb::handle x : nb::borrow<nb::sequence>(v)) {
    if (!PyLong_CheckExact(x.ptr())) return false;
    read.push_back(nb::cast<int64_t>(x));
  }
  out = std::move(read);
  return true;
}

// Members that have no useful text, or that are common.
bool set_directly(const FieldInfo& f, void* member, nb::handle v) {
  const std::type_info& type = *f.member_type->id;
  if (type == typeid(int64_t) && PyLong_CheckExact(v.ptr())) {
    *static_cast<int64_t*>(member) = nb::cast<int64_t>(v);
  } else if (type == typeid(Ints)) {
    return read_integers(v, *static_cast<Ints*>(member));
  } else if (type == typeid(bool) && PyBool_Check(v.ptr())) {
    *static_cast<bool*>(member) = v.is(Py_True);
  } else if (type == typeid(double) && PyFloat_CheckExact(v.ptr())) {
    *static_cast<double*>(member) = PyFloat_AS_DOUBLE(v.ptr());
  } else if (type == typeid(std::string) && PyUnicode_Check(v.ptr())) {
    *static_cast<std::string*>(member) = nb::cast<std::string>(v);
  } else if (type == typeid(DType)) {
    *static_cast<DType*>(member) = read_dtype(v);
  } else if (type == typeid(Body)) {
    *static_cast<Body*>(member) = Body(nb::cast<Graph>(v));
  } else if (type == typeid(std::vector<Body>)) {
    for (nb::handle g : nb::cast<nb::sequence>(v))
      static_cast<std::vector<Body>*>(member)->emplace_back(nb::cast<Graph>(g));
  } else if (type == typeid(std::optional<Body>)) {
    *static_cast<std::optional<Body>*>(member) = Body(nb::cast<Graph>(v));
  } else if (type == typeid(Tensor)) {
    const nb::object array = hooks().as_array(v);
    *static_cast<Tensor*>(member) = tensor_of(*as_array(array));
  } else {
    return false;
  }
  return true;
}

void read_field(const OpDef& op, const FieldInfo& f, void* attrs, nb::handle v) {
  std::string why;
  try {
    if (set_directly(f, f.member(attrs), v)) return;
    const std::string text = text_of(f.type(), v);
    Reader r{Lexer(text), nullptr, &op_table()};
    f.read(r, attrs);
    if (r.lex.done()) return;
    why = "more than one value";
  } catch (nb::python_error& e) {
    why = nb::cast<std::string>(nb::str(e.value()));
  } catch (const nb::builtin_exception& e) {
    throw nb::type_error(fmt::format("{}: attribute {} {}", op.name, f.name, e.what()).c_str());
  } catch (const nb::cast_error&) {
    why = "of the wrong type";
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::data) throw;
    why = e.message();
  }
  fail(ErrorKind::user, "attribute", "{}: attribute {} takes {}, given is {} ({})", op.name, f.name,
       f.type(), nb::repr(v).c_str(), why);
}

nb::object value_of_text(const std::string& type, Lexer& lex) {
  if (type.ends_with('?') && lex.accept("none")) return nb::none();
  if (type.ends_with('?')) return value_of_text(type.substr(0, type.size() - 1), lex);
  if (type.starts_with('[')) {
    nb::list out;
    lex.expect("[");
    while (!lex.accept("]")) {
      out.append(value_of_text(type.substr(1, type.size() - 2), lex));
      lex.accept(",");
    }
    return nb::tuple(out);
  }
  if (type == "bool") return nb::bool_(lex.accept("true"));
  if (type == "int") return nb::cast(lex.integer());
  if (type == "float") return nb::cast(lex.number());
  if (type == "string") return nb::cast(lex.quoted());
  if (type == "dim") {
    const auto size = Dim::read(lex).static_value();
    return size ? nb::cast(*size) : nb::none();
  }
  const std::string word(lex.word());
  if (type == "dtype") return nb::cast(std::string(info(*parse_dtype(word)).numpy));
  return nb::cast(word);
}

}  // namespace

Attrs read_attributes(const OpDef& op, const nb::tuple& values) {
  const std::span<const FieldInfo> fields = op.attr_type->fields;
  check(values.size() == fields.size(), "{}: {} attributes, given {}", op.name, fields.size(),
        values.size());
  static const Attrs* const none = new Attrs;
  if (op.attr_type == none->type()) return *none;
  std::shared_ptr<void> data = op.attr_type->make();
  for (size_t i = 0; i < fields.size(); ++i)
    if (const nb::handle v = values[i]; !v.is_none()) read_field(op, fields[i], data.get(), v);
  return Attrs(op.attr_type, std::move(data));
}

nb::object default_value(const FieldInfo& field, const void* attrs) {
  const std::string type = field.type();
  if (type.find("graph") != std::string::npos || type.find("tensor") != std::string::npos)
    return nb::none();
  Printer p;
  field.print(p, attrs);
  Lexer lex(p.out);
  return value_of_text(type, lex);
}

}  // namespace rlx::python
