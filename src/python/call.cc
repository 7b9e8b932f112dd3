#include "rlx/python/call.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/table.h"
#include "rlx/python/attributes.h"
#include "rlx/python/dims.h"
#include "rlx/python/program.h"
#include "rlx/python/scope.h"

namespace rlx::python {

namespace {

// ---- operands

// A number of Python or a scalar of NumPy, which has a kind but no dtype yet.
struct Number {
  DType natural = DType::F32;  // beside arrays that cannot hold its kind, and alone
  int64_t integer = 0;
  Complex value = 0;
  nb::handle scalar;  // NumPy's, which alone has its own dtype
};

Number read_integer(nb::handle h) {
  int overflow = 0;
  const int64_t i = PyLong_AsLongLongAndOverflow(h.ptr(), &overflow);
  user_check(overflow == 0, "scalar-range", "the number {} does not fit in 64 bits",
             nb::repr(h).c_str());
  return {DType::I64, i, static_cast<double>(i)};
}

Number read_bool(bool b) { return {DType::Bool, b, b ? 1.0 : 0.0}; }

// Whether NumPy or ml_dtypes calls one of our floats so; to NumPy those of ml_dtypes are of no kind.
bool is_float_name(std::string_view name) {
  return std::any_of(kDTypes.begin(), kDTypes.end(), [&](const DTypeInfo& d) {
    return d.cls == DTypeClass::floating && d.numpy == name;
  });
}

// A scalar of NumPy; none for those that are no numbers.
std::optional<Number> read_scalar(nb::handle h) {
  const nb::object dtype = h.attr("dtype");
  const auto kind = nb::cast<std::string>(dtype.attr("kind"));
  Number n;
  if (kind == "b") {
    n = read_bool(PyObject_IsTrue(h.ptr()) == 1);
  } else if (kind == "i" || kind == "u") {
    n = read_integer(nb::steal(PyNumber_Index(h.ptr())));
  } else if (kind == "c") {
    const Py_complex c = PyComplex_AsCComplex(h.ptr());
    n = {DType::C64, 0, {c.real, c.imag}};
  } else if (kind == "f" || is_float_name(nb::cast<std::string>(dtype.attr("name")))) {
    n.value = PyFloat_AsDouble(h.ptr());
  } else {
    return std::nullopt;
  }
  if (PyErr_Occurred()) throw nb::python_error();
  n.scalar = h;
  return n;
}

std::optional<Number> read_number(nb::handle h) {
  PyObject* o = h.ptr();
  if (PyFloat_CheckExact(o)) return Number{DType::F32, 0, PyFloat_AS_DOUBLE(o)};
  if (PyBool_Check(o)) return read_bool(o == Py_True);
  if (PyLong_CheckExact(o)) return read_integer(h);
  if (PyComplex_CheckExact(o))
    return Number{DType::C64, 0, {PyComplex_RealAsDouble(o), PyComplex_ImagAsDouble(o)}};
  if (nb::isinstance(h, hooks().scalar_type)) return read_scalar(h);
  // Classes derived from numbers (an IntEnum) are numbers; NumPy's scalars of that sort are above.
  if (PyFloat_Check(o)) return Number{DType::F32, 0, PyFloat_AS_DOUBLE(o)};
  if (PyLong_Check(o)) return read_integer(h);
  if (PyComplex_Check(o))
    return Number{DType::C64, 0, {PyComplex_RealAsDouble(o), PyComplex_ImagAsDouble(o)}};
  return std::nullopt;
}

// The number that a concrete weak array holds.
Number number_of(const Tensor& t) {
  if (is_bool(t.dtype())) return read_bool(t.get_int(0) != 0);
  if (is_int(t.dtype())) return {DType::I64, t.get_int(0), static_cast<double>(t.get_int(0))};
  if (is_complex(t.dtype())) return {DType::C64, 0, t.get_complex(0)};
  return {DType::F32, 0, t.get_float(0)};
}

Tensor scalar_of(const Number& n, DType dtype) {
  if (!is_int(dtype)) return Tensor::scalar(dtype, n.value);
  Tensor t(dtype, {});
  t.set_int(0, n.integer);
  user_check(t.get_int(0) == n.integer, "scalar-range", "the number {} is not an {}", n.integer,
             dtype);
  return t;
}

struct Operand {
  Array* array = nullptr;  // nullptr: a number
  Number number;
  std::optional<Dim> size;  // the number is not known yet: a size of the program being traced
  // Whether it takes the dtype of what it meets: a number, or what stands for one in a trace.
  bool weak() const { return !array || array->weak; }
  DType natural() const { return array ? array->natural() : number.natural; }
};

struct OperandList {
  std::vector<Operand> all;
  std::vector<const Array*> arrays;  // nullptr for numbers
  std::vector<nb::object> made;      // keeps what had to be converted
};

OperandList read_operands(nb::handle given) {
  OperandList out;
  for (nb::handle h : given) {
    Operand o;
    o.array = as_array(h);
    if (o.array && o.array->weak && !o.array->traced()) {
      o.number = number_of(o.array->tensor->to_host());
      o.array = nullptr;
    } else if (!o.array) {
      if (is_dim(h)) {
        o.size = read_dim(h);
        o.number.natural = DType::I64;
      } else if (const auto number = read_number(h)) {
        o.number = *number;
      } else {
        out.made.push_back(hooks().as_array(h));
        o.array = as_array(out.made.back());
      }
    }
    out.all.push_back(o);
    out.arrays.push_back(o.array);
  }
  const bool alone = std::all_of(out.all.begin(), out.all.end(),
                                 [](const Operand& o) { return o.array == nullptr; });
  for (Operand& o : out.all)
    if (alone && o.number.scalar) o.number.natural = read_dtype(o.number.scalar.attr("dtype"));
  return out;
}

// ---- promotion

using DTypes = std::vector<DType>;

// The dtype of a number beside arrays of dtype `joint`.
DType dtype_beside(DType natural, DType joint) {
  const bool fits = info(natural).cls <= info(joint).cls;
  return fits ? joint : natural;
}

// The dtype that the operands have in common: that of the arrays, widened where it cannot hold the
// kind of a number.
DType joint_dtype(std::span<const Operand> operands) {
  std::optional<DType> arrays, all;
  const auto join = [](std::optional<DType>& to, DType d) { to = to ? promote(*to, d) : d; };
  for (const Operand& o : operands)
    if (!o.weak()) join(arrays, o.natural());
  for (const Operand& o : operands)
    join(all, o.weak() && arrays ? dtype_beside(o.natural(), *arrays) : o.natural());
  return all.value_or(DType::F32);
}

// Elementwise functions of floats take integers and bools as floats.
bool takes_floats_only(const OpDef& op) {
  return op.kind == Kind::elementwise && op.dtypes.has(DType::F32) && !op.dtypes.has(DType::I64);
}

// The dtypes to try, in order: as they are; numbers in their natural dtype; all in one; all but the
// first in one; all as floats.
std::vector<DTypes> candidates(const OpDef& op, std::span<const Operand> operands) {
  DTypes plain, natural;
  std::optional<DType> arrays;
  bool numbers = false, mixed = false;
  for (const Operand& o : operands) {
    natural.push_back(o.natural());
    if (o.weak()) {
      numbers = true;
      continue;
    }
    mixed = mixed || (arrays && *arrays != o.natural());
    arrays = arrays ? promote(*arrays, o.natural()) : o.natural();
  }
  const DType joint = joint_dtype(operands);
  for (const Operand& o : operands)
    plain.push_back(!o.weak() ? o.natural() : dtype_beside(o.natural(), arrays.value_or(joint)));
  std::vector<DTypes> out{plain};
  if (numbers || mixed) {
    if (natural != plain) out.push_back(natural);
    out.emplace_back(plain.size(), joint);
    if (operands.size() > 1) {
      out.emplace_back(plain.size(), joint_dtype(operands.subspan(1)));
      out.back()[0] = plain[0];
    }
  }
  if (takes_floats_only(op) && info(joint).cls < DTypeClass::floating)
    out.emplace_back(plain.size(), DType::F32);
  return out;
}

// A number that is cast keeps all its digits until then.
DTypes dtypes_to_cast(const Operand& o) {
  if (!o.weak()) return {o.natural()};
  return {is_float(o.natural()) ? DType::F64 : o.natural()};
}

// A graph of the op alone; its inputs are the operands, arrays in their dtype and numbers in the
// one wanted.
Graph graph_of(const OpDef& op, const Attrs& attrs, std::span<const Operand> operands,
               const DTypes& wanted) {
  Builder b{std::string(op.name)};
  Values in;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Array* a = operands[i].array;
    const Type type = a ? a->type() : Type{wanted[i], {}};
    Value v = b.input(fmt::format("x{}", i), type);
    in.push_back(type.dtype == wanted[i] ? v : op::cast(b, v, {wanted[i]}));
  }
  for (Value v : b.emit(op, attrs, in)) b.output(v);
  return b.finish();
}

// The first of the candidates that the op takes, with its graph; else what it says to the first.
std::pair<Graph, DTypes> choose(const OpDef& op, const Attrs& attrs,
                                std::span<const Operand> operands) {
  if (&op == &op::cast) {
    DTypes wanted = dtypes_to_cast(operands[0]);
    return {graph_of(op, attrs, operands, wanted), std::move(wanted)};
  }
  std::exception_ptr first;
  for (DTypes& wanted : candidates(op, operands)) {
    try {
      return {graph_of(op, attrs, operands, wanted), std::move(wanted)};
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::user) throw;
      if (!first) first = std::current_exception();
    }
  }
  std::rethrow_exception(first);
}

// ---- outside of traces: one compiled program per op, attributes and types

struct EagerKey {
  const OpDef* op;
  Device device;
  Attrs attrs;
  std::vector<std::pair<DType, Ints>> arrays;
  std::vector<bool> is_array;
};
struct EagerEntry {
  std::shared_ptr<ArrayProgram> program;
  DTypes wanted;  // of numbers
};
using EagerCache = LruCache<EagerKey, EagerEntry>;
EagerCache& eager_cache() {
  static auto* cache =
      new EagerCache(kCacheBytes, [](const EagerEntry& e) { return e.program->resident_bytes(); });
  return *cache;
}

uint64_t hash_call(const OpDef& op, const Device& device, const Attrs& attrs,
                   std::span<const Operand> operands) {
  uint64_t h = mix(reinterpret_cast<uintptr_t>(&op), rlx::hash(device));
  h = mix(h, attrs.hash());
  for (const Operand& o : operands) {
    h = mix(h, static_cast<uint64_t>(o.natural()) * 2 + (o.array != nullptr));
    if (o.array)
      for (int64_t s : o.array->tensor->sizes()) h = mix(h, static_cast<uint64_t>(s));
  }
  return h;
}

bool same_call(const EagerKey& k, const OpDef& op, const Device& device, const Attrs& attrs,
               std::span<const Operand> operands) {
  if (k.op != &op || k.device != device || k.arrays.size() != operands.size() ||
      !(k.attrs == attrs))
    return false;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Operand& o = operands[i];
    if (k.is_array[i] != (o.array != nullptr) || k.arrays[i].first != o.natural()) return false;
    if (o.array && k.arrays[i].second != o.array->tensor->sizes()) return false;
  }
  return true;
}

EagerEntry& compiled_call(const OpDef& op, const Device& device, const Attrs& attrs,
                          std::span<const Operand> operands) {
  const uint64_t hash = hash_call(op, device, attrs, operands);
  auto same = [&](const EagerKey& k) { return same_call(k, op, device, attrs, operands); };
  if (EagerEntry* hit = eager_cache().find(hash, same)) return *hit;
  auto [graph, wanted] = choose(op, attrs, operands);
  std::shared_ptr<ArrayProgram> program = compile_interruptibly(device, graph);
  EagerKey key{&op, device, attrs, {}, {}};
  for (const Operand& o : operands) {
    key.arrays.emplace_back(o.natural(), o.array ? o.array->tensor->sizes() : Ints{});
    key.is_array.push_back(o.array != nullptr);
  }
  return *eager_cache().insert(hash, std::move(key), {std::move(program), std::move(wanted)});
}

std::vector<DeviceTensor> run_op(const OpDef& op, const Attrs& attrs, const OperandList& list) {
  const std::span<const Operand> operands = list.all;
  const Device device = device_for(list.arrays);
  EagerEntry& entry = compiled_call(op, device, attrs, operands);
  const std::shared_ptr<ArrayProgram> program = entry.program;  // another thread may drop the entry
  std::vector<Array> numbers;
  numbers.reserve(operands.size());
  std::vector<Array*> inputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Operand& o = operands[i];
    if (!o.array)
      numbers.emplace_back(DeviceTensor::on(device, scalar_of(o.number, entry.wanted[i])));
    inputs.push_back(o.array ? o.array : &numbers.back());
  }
  return program->run(inputs);
}

// ---- in a trace

// Where a value of a size goes: the program being traced.
const std::shared_ptr<ProgramScope>& scope_of_sizes(const Dim& size) {
  user_check(!trace_stack().empty(), "unbound-dim",
             "the size {} is not known here; only in the function or graph that it belongs to",
             size);
  return trace_stack().back();
}

// A size as a value; dims are integers, so that floats of it are rounded once.
Value value_of(Builder& b, const Dim& size, DType dtype) {
  if (!is_bool(dtype) && !is_complex(dtype)) return op::dim_size(b, {}, {size, dtype});
  return op::cast(b, op::dim_size(b, {}, {size, DType::I64}), {dtype});
}

// Where the call goes; nullptr: it runs now. Sizes that are not known yet belong to the program being traced.
std::shared_ptr<ProgramScope> scope_of_call(const OperandList& list, const Attrs& attrs) {
  if (auto scope = target_scope(list.arrays)) return scope;
  for (const Operand& o : list.all)
    if (o.size) return scope_of_sizes(*o.size);
  return has_symbols(attrs) && !trace_stack().empty() ? trace_stack().back() : nullptr;
}

Values emit_op(ProgramScope& scope, const OpDef& op, const Attrs& attrs,
               std::span<const Operand> operands) {
  DTypes wanted;
  bool plain = !takes_floats_only(op);
  for (const Operand& o : operands) {
    plain = plain && !o.weak() && o.natural() == operands[0].natural();
    wanted.push_back(o.natural());
  }
  if (!plain) wanted = choose(op, attrs, operands).second;
  Builder& b = scope.builder;
  Values in;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Operand& o = operands[i];
    const Value v = o.array  ? scope.import(*o.array)
                    : o.size ? value_of(b, *o.size, wanted[i])
                             : b.constant(scalar_of(o.number, wanted[i]));
    in.push_back(b.type(v).dtype == wanted[i] ? v : op::cast(b, v, {wanted[i]}));
  }
  return b.emit(op, attrs, in);
}

nb::object one_or_tuple(const OpDef& op, const nb::list& results) {
  if (results.size() == 1 && !op.variadic_results) return results[0];
  return nb::tuple(results);
}

void check_open(const ProgramScope& scope) {
  user_check(scope.open(), "trace-ended",
             "an array of \"{}\" was used after that program was finished",
             scope.builder.graph().name);
}

}  // namespace

nb::object call_op(const OpDef& op, const nb::tuple& operands, const nb::tuple& attributes) {
  const OperandList list = read_operands(operands);
  const Attrs attrs = read_attributes(op, attributes);
  const std::shared_ptr<ProgramScope> scope = scope_of_call(list, attrs);
  if (!scope) return one_or_tuple(op, wrap_all(run_op(op, attrs, list), list.arrays));
  check_open(*scope);
  nb::list out;
  for (Value v : emit_op(*scope, op, attrs, list.all)) out.append(wrap(scope->make(v)));
  return one_or_tuple(op, out);
}

nb::list call_graph(const Graph& g, const nb::sequence& operands) {
  std::vector<nb::object> keep;
  std::vector<Array*> arrays;
  for (nb::handle h : operands) {
    keep.push_back(as_array(h) ? nb::borrow(h) : hooks().as_array(h));
    arrays.push_back(as_array(keep.back()));
  }
  if (const std::shared_ptr<ProgramScope> scope = target_scope(arrays)) {
    check_open(*scope);
    Values in;
    for (const Array* a : arrays) in.push_back(scope->import(*a));
    nb::list out;
    for (Value v : scope->builder.inline_graph(g, in)) out.append(wrap(scope->make(v)));
    return out;
  }
  const Values leaves = g.inputs();
  check(leaves.size() == arrays.size(), "\"{}\" takes {} arrays, given {}", g.name, leaves.size(),
        arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i)
    check(g.type(leaves[i]) == arrays[i]->type(), "\"{}\": array {} is {} where {} is wanted",
          g.name, i, arrays[i]->type(), g.type(leaves[i]));
  return wrap_all(compile_cached(g, device_for(arrays))->run(arrays), arrays);
}

namespace {

// Of concrete arrays: what they are besides their sizes, as bytes to look up by, and all sizes in a row. None when one
// is traced.
nb::object types_key(const nb::list& arrays) {
  std::string kinds;
  size_t axes = 0;
  for (nb::handle h : arrays) {
    const Array* a = as_array(h);
    if (a->traced()) return nb::none();
    if (a->is_donated()) (void)device_tensor_of(*a);  // says so
    const size_t rank = a->tensor->sizes().size();
    kinds.push_back(static_cast<char>(static_cast<int>(a->dtype()) * 2 + a->weak));
    kinds.push_back(static_cast<char>(rank));
    axes += rank;
  }
  const nb::object sizes = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(axes)));
  if (!sizes.is_valid()) throw nb::python_error();
  Py_ssize_t at = 0;
  for (nb::handle h : arrays)
    for (int64_t s : as_array(h)->tensor->sizes())
      PyTuple_SET_ITEM(sizes.ptr(), at++, PyLong_FromLongLong(s));
  return nb::make_tuple(nb::bytes(kinds.data(), kinds.size()), sizes);
}

// A size as a value of the program being traced.
Array array_of_size(nb::handle h, DType dtype, bool weak) {
  const Dim size = read_dim(h);
  const std::shared_ptr<ProgramScope>& scope = scope_of_sizes(size);
  Array a = scope->make(value_of(scope->builder, size, dtype));
  a.weak = weak;
  return a;
}

}  // namespace

void clear_eager_cache() { eager_cache().clear(); }

void bind_call(nb::module_& m) {
  nb::class_<OpDef>(m, "Op", "An entry of the op table.")
      .def_prop_ro("name", [](const OpDef& op) { return std::string(op.name); })
      .def_prop_ro("doc", [](const OpDef& op) { return std::string(op.doc); })
      .def_prop_ro("kind",
                   [](const OpDef& op) {
                     return std::string(enum_names(op.kind)[static_cast<size_t>(op.kind)]);
                   })
      .def_prop_ro("stage",
                   [](const OpDef& op) {
                     return std::string(enum_names(op.stage())[static_cast<size_t>(op.stage())]);
                   })
      .def_prop_ro("arity", [](const OpDef& op) { return op.arity; })
      .def_prop_ro("min_arity", [](const OpDef& op) { return op.min_arity; })
      .def_prop_ro("variadic_results", [](const OpDef& op) { return op.variadic_results; })
      .def_prop_ro("operands",
                   [](const OpDef& op) {
                     nb::list out;
                     for (const OperandName& o : operand_names(op))
                       out.append(nb::make_tuple(std::string(o.name), o.optional));
                     return out;
                   })
      .def_prop_ro("dtypes", [](const OpDef& op) { return op.dtypes.to_string(); })
      .def_prop_ro("not_differentiable",
                   [](const OpDef& op) { return std::string(op.not_differentiable); })
      .def_prop_ro("attributes", [](const OpDef& op) {
        nb::list out;
        const std::shared_ptr<void> defaults = op.attr_type->make();
        for (const FieldInfo& f : op.attr_type->fields)
          out.append(
              nb::make_tuple(std::string(f.name), f.type(), default_value(f, defaults.get())));
        return out;
      });
  m.def("op_table", [] {
    nb::list out;
    for (const OpTable::Entry& e : op_table().entries())
      out.append(nb::make_tuple(nb::cast(e.op, nb::rv_policy::reference), std::string(e.family)));
    return out;
  });
  m.def("call_op", [](const OpDef& op, const nb::tuple& operands, const nb::tuple& attributes) {
    return call_op(op, operands, attributes);
  });
  m.def("call_graph", call_graph);
  m.def("joint_dtype", [](const nb::sequence& values) {  // of arrays and numbers together
    return static_cast<int>(joint_dtype(read_operands(values).all));
  });
  m.def("weak", [](nb::handle h) {  // what stands for a number in traces, with all its digits
    if (is_dim(h)) return wrap(array_of_size(h, DType::I64, true));
    const std::optional<Number> n = read_number(h);
    user_check(n.has_value(), "dtype", "{} is no number", nb::repr(h).c_str());
    Array a(scalar_of(*n, is_float(n->natural) ? DType::F64 : n->natural));
    a.weak = true;
    return wrap(std::move(a));
  });
  m.def("scalar", [](nb::handle h, int dtype) {  // a number in a dtype of its kind or above
    if (is_dim(h)) return wrap(array_of_size(h, static_cast<DType>(dtype), false));
    const std::optional<Number> n = read_number(h);
    check(n.has_value(), "scalar takes a number");
    return wrap(scalar_of(*n, static_cast<DType>(dtype)));
  });
  m.def("types_key", types_key);
  m.def("emit_into",  // into a builder, also without an operand to tell which
        [](const std::shared_ptr<ProgramScope>& s, const OpDef& op, const nb::tuple& operands,
           const nb::tuple& attributes) {
          const OperandList list = read_operands(operands);
          nb::list out;
          for (Value v : emit_op(*s, op, read_attributes(op, attributes), list.all))
            out.append(wrap(s->make(v)));
          return one_or_tuple(op, out);
        });
}

}  // namespace rlx::python
