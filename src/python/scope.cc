#include "rlx/python/scope.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "rlx/ir/verify.h"
#include "rlx/ops/rules.h"
#include "rlx/python/dims.h"

namespace rlx::python {

Value ProgramScope::import(const Array& a) {
  if (a.scope.get() == this) return a.value;
  Key key;
  if (a.traced()) {
    user_check(a.scope->open(), "trace-ended",
               "an array of \"{}\" ({}) was used after that program was finished; return it from "
               "the traced function instead of keeping it",
               a.scope->builder.graph().name, a.type());
    user_check(is_trace_, "trace-mixed", "an array of \"{}\" was used in \"{}\"",
               a.scope->builder.graph().name, builder.graph().name);
    key = {a.scope.get(), a.value, {}};
  } else {
    const DeviceTensor& t = device_tensor_of(a);
    key = {t.data().get(), kNone, t.sizes()};
  }
  auto [at, fresh] = imported_.try_emplace(std::move(key));
  if (!fresh) return at->second;
  at->second = is_trace_ ? builder.input(fmt::format("captured{}", captured.size()), a.type())
                         : builder.constant(tensor_of(a));
  captured.push_back(a);  // keeps what the key points to
  return at->second;
}

Graph ProgramScope::snapshot(const std::vector<const Array*>& outputs) {
  Graph g = builder.graph();
  for (const Array* a : outputs) g.outputs.push_back(import(*a));
  // An output from outside has become a leaf just now.
  for (int32_t i = g.size(); i < builder.graph().size(); ++i)
    g.nodes.push_back(builder.graph().node(i));
  verify(g);
  return g;
}

Graph ProgramScope::finish(const std::vector<const Array*>& outputs) {
  for (const Array* a : outputs) builder.output(import(*a));
  open_ = false;
  verify(builder.graph());
  return builder.graph();  // a copy: arrays that outlive the trace still know their types
}

std::vector<std::shared_ptr<ProgramScope>>& trace_stack() {
  static thread_local std::vector<std::shared_ptr<ProgramScope>> stack;
  return stack;
}

std::shared_ptr<ProgramScope> target_scope(std::span<const Array* const> operands) {
  for (const Array* a : operands)
    if (a && a->traced()) return trace_stack().empty() ? a->scope : trace_stack().back();
  return nullptr;
}

namespace {

std::vector<const Array*> arrays_of(const nb::sequence& list) {
  std::vector<const Array*> out;
  for (nb::handle h : list) {
    const Array* a = as_array(h);
    user_check(a != nullptr, "output-type", "an output must be an rlx.Array, not {}",
               nb::type_name(h.type()).c_str());
    out.push_back(a);
  }
  return out;
}

Array leaf(ProgramScope& s, const Op<LeafAttrs>& op, const std::string& name, nb::handle shape,
           nb::handle dtype) {
  user_check(!s.builder.find_leaf(name).valid(), "leaf-name",
             "{} \"{}\": \"{}\" has an input or parameter of that name", op.def.name, name,
             s.builder.graph().name);
  return s.make(op(s.builder, {}, {name, read_dtype(dtype), read_shape(shape)}));
}

nb::list values_of(const std::shared_ptr<ProgramScope>& s, const Values& values) {
  nb::list out;
  for (Value v : values) out.append(wrap(s->make(v)));
  return out;
}

}  // namespace

void bind_scope(nb::module_& m) {
  nb::class_<ProgramScope>(m, "Scope", "A program that is being written.")
      .def(nb::new_([](const std::string& name, bool is_trace) {
        return std::make_shared<ProgramScope>(name, is_trace);
      }))
      .def("input", [](ProgramScope& s, const std::string& name, nb::handle shape,
                       nb::handle dtype) { return wrap(leaf(s, op::input, name, shape, dtype)); })
      .def("param", [](ProgramScope& s, const std::string& name, nb::handle shape,
                       nb::handle dtype) { return wrap(leaf(s, op::param, name, shape, dtype)); })
      .def(
          "input_like",  // an input of the array's type, or of its dtype and these sizes
          [](ProgramScope& s, const std::string& name, const Array& a, nb::handle shape) {
            const Type type{a.dtype(), shape.is_none() ? a.type().shape : read_shape(shape)};
            Array made = s.make(s.builder.input(name, type));
            made.weak = a.weak;
            return wrap(std::move(made));
          },
          nb::arg("name"), nb::arg("array"), nb::arg("shape") = nb::none())
      .def("input_slice",  // an input of the type of a[0]
           [](ProgramScope& s, const std::string& name, const Array& a, int64_t axis) {
             Type t = a.type();
             t.shape.erase(t.shape.begin() + normalise_axis(axis, t.rank(), "slice"));
             return wrap(s.make(s.builder.input(name, t)));
           })
      .def("zeros_like", [](ProgramScope& s,
                            const Array& a) { return wrap(s.make(full(s.builder, a.type(), 0))); })
      .def("update", [](ProgramScope& s, const std::string& param,
                        const Array& a) { s.builder.update(param, s.import(a)); })
      .def("capture", [](ProgramScope& s, const Array& a) { (void)s.import(a); })
      .def_prop_ro("captured",
                   [](const ProgramScope& s) {
                     nb::list out;
                     for (Array a : s.captured) {
                       a.weak = false;  // the program's input has the dtype of its bytes
                       out.append(wrap(std::move(a)));
                     }
                     return out;
                   })
      .def_prop_ro("name", [](const ProgramScope& s) { return s.builder.graph().name; })
      .def("finish", [](ProgramScope& s,
                        const nb::sequence& outputs) { return s.finish(arrays_of(outputs)); })
      .def("snapshot", [](ProgramScope& s,
                          const nb::sequence& outputs) { return s.snapshot(arrays_of(outputs)); })
      .def("load",  // takes over a whole graph; returns its outputs
           [](const std::shared_ptr<ProgramScope>& s, Graph g) {
             const Values outputs = std::exchange(g.outputs, {});
             s->builder.mutable_graph() = std::move(g);
             return values_of(s, outputs);
           })
      .def("leaf",
           [](const std::shared_ptr<ProgramScope>& s, const std::string& name) {
             const Value v = s->builder.find_leaf(name);
             user_check(v.valid(), "no-leaf", "\"{}\" has no input or parameter \"{}\"",
                        s->builder.graph().name, name);
             return wrap(s->make(v));
           })
      .def("name_node",  // labels the node that an array is a result of
           [](ProgramScope& s, const Array& a, const std::string& label) {
             user_check(a.scope.get() == &s, "trace-mixed",
                        "an array of another program than \"{}\"", s.builder.graph().name);
             s.builder.mutable_graph().node(a.value.node).origin.label = label;
           })
      .def("set_label", [](ProgramScope& s, std::string label) {
        return s.builder.set_label(std::move(label));
      });
  m.def("push_trace", [](const std::shared_ptr<ProgramScope>& s) { trace_stack().push_back(s); });
  m.def("pop_trace", [] { trace_stack().pop_back(); });
  m.def("current_trace",  // None: this thread traces nothing
        [] { return trace_stack().empty() ? nullptr : trace_stack().back(); });
}

}  // namespace rlx::python
