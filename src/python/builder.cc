#include "rlx/python/builder.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "rlx/ops/table.h"
#include "rlx/python/attributes.h"
#include "rlx/python/dims.h"
#include "rlx/python/scope.h"
#include "rlx/stages/builders/graph_builder.h"

namespace rlx::python {
namespace {

// ---- arguments

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

Value read_node(ProgramScope& s, nb::handle h) {
  if (const Array* a = as_array(h)) return s.import(*a);
  return s.import(*as_array(hooks().as_array(h)));
}

// (4, 8), of f32, or ((4, 8), "float16").
Type read_type(nb::handle h) {
  if (nb::isinstance<nb::tuple>(h) && nb::len(h) == 2 && PySequence_Check(h[0].ptr()) &&
      !PyUnicode_Check(nb::object(h[0]).ptr()))
    return {read_dtype(h[1]), read_shape(h[0])};
  return {DType::F32, read_shape(h)};
}

// The attributes of an op, by name.
Attrs read_named(const OpDef& op, const nb::dict& given) {
  nb::list values;
  size_t used = 0;
  for (const FieldInfo& f : op.attr_type->fields) {
    const std::string field(f.name);
    const bool has = given.contains(field.c_str());
    values.append(has ? nb::object(given[field.c_str()]) : nb::none());
    used += has;
  }
  user_check(used == given.size(), "attribute", "{}: has no attribute of some name in {}", op.name,
             nb::repr(given).c_str());
  return read_attributes(op, nb::tuple(values));
}

// "softmax", or ("softmax", {"axis": 0}).
AnyOp read_op(nb::handle h) {
  const bool pair = nb::isinstance<nb::tuple>(h);
  const auto name = nb::cast<std::string>(pair ? nb::object(h[0]) : nb::borrow(h));
  const OpDef* op = op_table().find(name);
  user_check(op != nullptr, "op-unknown", "there is no op {}", quote(name));
  return {*op, read_named(*op, pair ? nb::cast<nb::dict>(h[1]) : nb::dict())};
}

template <class T>
T read_argument(ProgramScope& s, nb::handle h) {
  if constexpr (std::is_same_v<T, NodeId>) {
    return read_node(s, h);
  } else if constexpr (std::is_same_v<T, Values>) {
    Values out;
    for (nb::handle x : nb::cast<nb::sequence>(h)) out.push_back(read_node(s, x));
    return out;
  } else if constexpr (std::is_same_v<T, GaussianSplatInputs>) {
    const Values v = read_argument<Values>(s, h);
    user_check(v.size() == 7, "arity",
               "positions, scales, rotations, opacities, colors, sh_coeffs and meta are 7 arrays, "
               "not {}",
               v.size());
    return {v[0], v[1], v[2], v[3], v[4], v[5], v[6]};
  } else if constexpr (IsOptional<T>::value) {
    if (h.is_none()) return std::nullopt;
    return read_argument<typename T::value_type>(s, h);
  } else if constexpr (std::is_same_v<T, Type>) {
    return read_type(h);
  } else if constexpr (std::is_same_v<T, AnyOp>) {
    return read_op(h);
  } else if constexpr (std::is_same_v<T, Graph>) {
    return nb::cast<Graph>(nb::hasattr(h, "value") ? h.attr("value") : nb::borrow(h));
  } else if constexpr (std::is_same_v<T, DType>) {
    return read_dtype(h);
  } else if constexpr (std::is_same_v<T, Dim>) {
    return read_dim(h);
  } else if constexpr (std::is_same_v<T, Shape>) {
    return read_shape(h);
  } else if constexpr (requires { T::fields(); }) {  // parameters by name
    const OpDef op{.name = "parameters", .doc = "", .attr_type = &kAttrType<T>};
    return read_named(op, h.is_none() ? nb::dict() : nb::cast<nb::dict>(h)).template get<T>();
  } else if constexpr (std::is_enum_v<T> || std::is_same_v<T, AttentionMask> ||
                       std::is_same_v<T, QuantScheme>) {  // a word
    const auto word = nb::cast<std::string>(h);
    Reader r{Lexer(word)};
    T out{};
    Codec<T>::read(r, out);
    if (!r.lex.done()) r.lex.error("text follows the word");
    return out;
  } else {
    return nb::cast<T>(h);
  }
}

// ---- results

nb::object give(ProgramScope& s, GraphBuilder&, NodeId v) { return wrap(s.make(v)); }
nb::object give(ProgramScope& s, GraphBuilder&, const NodePair& p) {
  return nb::make_tuple(wrap(s.make(p.first)), wrap(s.make(p.second)));
}
nb::object give(ProgramScope& s, GraphBuilder&, const Values& values) {
  nb::list out;
  for (Value v : values) out.append(wrap(s.make(v)));
  return nb::tuple(out);
}
nb::object give(ProgramScope& s, GraphBuilder& g, const std::tuple<NodeId, NodeId, NodeId>& t) {
  return give(s, g, Values{std::get<0>(t), std::get<1>(t), std::get<2>(t)});
}
nb::object give(ProgramScope& s, GraphBuilder& g, const MultiOutputHandle& handle) {
  Values out;
  for (size_t i = 0; i < handle.n_outputs(); ++i) out.push_back(handle.output(g, i));
  return give(s, g, out);
}

// ---- calls

// The program of a scope in the hands of a GraphBuilder for a while.
struct Borrowed {
  explicit Borrowed(ProgramScope& s) : scope(s), g(std::move(s.builder.mutable_graph())) {
    const SharedText label = scope.builder.set_label({});
    g.builder().set_label(label);
    scope.builder.set_label(label);
  }
  ~Borrowed() { scope.builder.mutable_graph() = std::move(g.builder().mutable_graph()); }
  Borrowed(const Borrowed&) = delete;
  ProgramScope& scope;
  GraphBuilder g;
};

struct WrongKind {
  size_t argument;
};
template <class T>
T read_place(ProgramScope& s, const nb::tuple& args, size_t i) {
  try {
    return read_argument<T>(s, args[i]);
  } catch (const std::bad_cast&) {
    throw WrongKind{i};
  }
}

template <class... A, class Method, size_t... I>
nb::object call_with(ProgramScope& s, const nb::tuple& args, Method method,
                     std::index_sequence<I...>) {
  check(args.size() == sizeof...(A), "a builder of {} arguments is given {}", sizeof...(A),
        args.size());
  // In braces, so that they are read from left to right.
  std::tuple<std::remove_cvref_t<A>...> values{read_place<std::remove_cvref_t<A>>(s, args, I)...};
  Borrowed borrowed(s);
  auto results = std::apply([&](const auto&... a) { return (borrowed.g.*method)(a...); }, values);
  return give(s, borrowed.g, results);
}
template <class R, class... A>
nb::object call_method(ProgramScope& s, const nb::tuple& args, R (GraphBuilder::*method)(A...)) {
  return call_with<A...>(s, args, method, std::index_sequence_for<A...>());
}
template <class R, class... A>
nb::object call_method(ProgramScope& s, const nb::tuple& args,
                       R (GraphBuilder::*method)(A...) const) {
  return call_with<A...>(s, args, method, std::index_sequence_for<A...>());
}
template <auto method>
nb::object call(ProgramScope& s, const nb::tuple& args) {
  return call_method(s, args, method);
}

struct BuilderMethod {
  const char *name, *parameters, *doc;
  nb::object (*call)(ProgramScope&, const nb::tuple&);
};
constexpr BuilderMethod kBuilderMethods[] = {
#include "builder_methods.inc"
};

}  // namespace

void bind_builder(nb::module_& m) {
  m.def("builder_methods", [] {  // (name, parameters as C++ has them, doc)
    nb::list out;
    for (const BuilderMethod& b : kBuilderMethods)
      out.append(nb::make_tuple(b.name, b.parameters, b.doc));
    return out;
  });
  m.def("call_builder",
        [](const std::shared_ptr<ProgramScope>& s, size_t index, const nb::tuple& args) {
          user_check(s->open(), "trace-ended", "\"{}\" is finished", s->builder.graph().name);
          const BuilderMethod& method = kBuilderMethods[index];
          try {
            return method.call(*s, args);
          } catch (const WrongKind& w) {
            const std::string text =
                fmt::format("GraphBuilder.{}({}): argument {} cannot be {}", method.name,
                            method.parameters, w.argument + 1, nb::repr(args[w.argument]).c_str());
            throw nb::type_error(text.c_str());
          }
        });
}

}  // namespace rlx::python
