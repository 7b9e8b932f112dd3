#include "rlx/python/graphs.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "rlx/formats/graph_file.h"
#include "rlx/ir/text.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/table.h"
#include "rlx/passes/passes.h"
#include "rlx/python/dims.h"
#include "rlx/python/program.h"
#include "rlx/stages/inspect.h"
#include "rlx/stages/json.h"
#include "rlx/stages/svg.h"
#include "rlx/transform/transform.h"

namespace rlx::python {

namespace {

using Names = std::vector<std::string>;

nb::list leaves(const Graph& g, const Values& values) {
  nb::list out;
  for (Value v : values)
    out.append(nb::make_tuple(g.node(v).get<LeafAttrs>().name,
                              std::string(to_string(g.type(v).dtype)),
                              shape_tuple(g.type(v).shape)));
  return out;
}

nb::list output_types(const Graph& g) {
  nb::list out;
  for (const Type& t : g.output_types())
    out.append(nb::make_tuple(std::string(to_string(t.dtype)), shape_tuple(t.shape)));
  return out;
}

// The graph for a batch: inputs with an axis (others: none, -1) carry the batch there. Returns it
// with a flag per output that says whether it is batched, in front.
std::pair<Graph, std::vector<bool>> batched(const Graph& g, const std::vector<int64_t>& axes,
                                            const Dim& size) {
  Builder b(g.name + "_vmap");
  std::vector<Batched> in;
  const Values inputs = g.inputs();
  check(axes.size() == inputs.size(), "vmap: {} axes for {} inputs", axes.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    Type t = g.type(inputs[i]);
    if (axes[i] >= 0) t.shape.insert(t.shape.begin() + axes[i], size);
    Value v = b.input(g.node(inputs[i]).get<LeafAttrs>().name, t);
    if (axes[i] > 0) {
      Ints perm{axes[i]};
      for (int64_t d = 0; d < t.rank(); ++d)
        if (d != axes[i]) perm.push_back(d);
      v = op::transpose(b, v, {perm});
    }
    in.push_back({v, axes[i] >= 0});
  }
  std::vector<bool> flags;
  for (const Batched& r : vmap_inline(b, g, in, size)) {
    b.output(r.value);
    flags.push_back(r.batched);
  }
  return {b.finish(), flags};
}

// The graph whose inputs after the first `kept` are these values, as constants.
Graph with_constants(const Graph& g, size_t kept, const nb::sequence& values) {
  Builder b(g.name);
  const Values inputs = g.inputs();
  check(kept + nb::len(values) == inputs.size(), "with_constants: {} of {} inputs have values",
        nb::len(values), inputs.size());
  Values in;
  for (size_t i = 0; i < kept; ++i)
    in.push_back(b.input(g.node(inputs[i]).get<LeafAttrs>().name, g.type(inputs[i])));
  for (nb::handle v : values) in.push_back(b.constant(tensor_of(*as_array(v))));
  for (Value v : b.inline_graph(g, in)) b.output(v);
  return b.finish();
}

DeviceTensor on_device_of(const CompiledGraph& f, nb::handle value) {
  const nb::object array = hooks().as_array(value);
  return device_tensor_of(*as_array(array)).to(f.device());
}

NamedDeviceTensors named_tensors(const CompiledGraph& f, const nb::dict& values) {
  NamedDeviceTensors out;
  for (const auto& [name, value] : values)
    out.emplace(nb::cast<std::string>(name), on_device_of(f, value));
  return out;
}

nb::dict info_of(const CompileInfo& i) {
  nb::dict out;
  out["nodes"] = i.nodes;
  out["kernels_before_fusion"] = i.kernels_before_fusion;
  out["kernels"] = i.kernels;
  out["generated"] = i.generated;
  out["cached"] = i.cached;
  out["planned_bytes"] = i.planned_bytes;
  out["unshared_bytes"] = i.unshared_bytes;
  out["param_bytes"] = i.param_bytes;
  out["seconds"] = i.seconds;
  out["codegen_seconds"] = i.codegen_seconds;
  out["flops"] = i.flops;
  out["recognition_report"] = i.recognition_report;
  out["fusion_report"] = i.fusion_report;
  out["per_size"] = i.per_size;
  out["plan"] = i.plan();
  return out;
}

nb::list run(CompiledGraph& f, const nb::dict& inputs, bool check_nan, bool profile) {
  const NamedDeviceTensors values = named_tensors(f, inputs);
  std::vector<DeviceTensor> results;
  const bool repeatable = f.signature().updates.empty();
  run_interruptibly(true, repeatable, [&](const std::atomic<bool>* cancel) {
    results =
        f.run_on_device(values, {.cancel = cancel, .check_nan = check_nan, .profile = profile});
  });
  nb::list out;
  for (DeviceTensor& t : results) out.append(wrap(std::move(t)));
  return out;
}

// A program of blocks as a module, by its policy's name.
HirModule hir_module(const Graph& g, const std::string& policy) {
  HirModule m = HirModule::from_graph(g);
  Reader r{Lexer(policy)};
  Codec<FusionPolicy>::read(r, m.fusion_policy);
  return m;
}

// From, to, multiples of.
using HintTuple = std::tuple<std::optional<int64_t>, std::optional<int64_t>, int64_t>;

// A policy's name, and the names of ops or kinds that it allows, denies and keeps besides.
using PolicyTuple = std::tuple<std::string, Names, Names, Names>;

PrecisionPolicy policy_of(const PolicyTuple& policy) {
  const auto& [name, allowed, denied, kept] = policy;
  return PrecisionPolicy::parse(name).allow(allowed).deny(denied).keep(kept);
}

CompiledGraph compile(const Graph& g, const std::string& device, int threads,
                      const DimBinding& dims, const std::map<std::string, HintTuple>& hints,
                      bool fast_math, const PolicyTuple& precision, bool fuse,
                      int64_t memory_budget) {
  CompileOptions options;
  options.threads = threads;
  options.dims = dims;
  for (const auto& [name, hint] : hints) {
    const auto& [min, max, multiple_of] = hint;
    options.hints[name] = {min.value_or(0), max.value_or(SizeHint::kNoMax), multiple_of};
  }
  options.fast_math = fast_math;
  options.precision = policy_of(precision);
  options.fuse = fuse;
  options.memory_budget = memory_budget;
  nb::gil_scoped_release unlocked;
  return Session(device).compile(g, options);
}

void bind_compiled(nb::module_& m) {
  nb::class_<CompiledGraph>(
      m, "CompiledGraph",
      "A graph compiled for a device. One thread at a time may use it; clone() "
      "gives another thread its own.")
      .def("run", run, nb::arg("inputs") = nb::dict(), nb::kw_only(), nb::arg("check_nan") = false,
           nb::arg("profile") = false,
           "Runs on the inputs given by name; those left out keep their values. Returns the list "
           "of outputs.")
      .def(
          "set_param",
          [](CompiledGraph& f, const std::string& name, nb::handle value) {
            f.set_param(name, on_device_of(f, value));
          },
          nb::arg("name"), nb::arg("value"), "Sets a parameter; updates of the program write it.")
      .def(
          "set_params",
          [](CompiledGraph& f, const nb::dict& values) { f.set_params(named_tensors(f, values)); },
          nb::arg("values"), "Sets several parameters, all or none.")
      .def(
          "param",
          [](CompiledGraph& f, const std::string& name) { return wrap(f.device_param(name)); },
          nb::arg("name"), "The current value of a parameter.")
      .def(
          "params",
          [](CompiledGraph& f) {
            nb::dict out;
            for (const std::string& name : f.param_names())
              out[name.c_str()] = wrap(f.device_param(name));
            return out;
          },
          "The parameters that have been set, by name.")
      .def("set_sizes", &CompiledGraph::set_sizes, nb::arg("sizes"),
           "Sizes of symbols by name, besides those that follow from inputs and parameters.")
      .def_prop_ro(
          "sizes", &CompiledGraph::sizes,
          "What the symbols stood for in the last run, by name; empty where there are none.")
      .def(
          "clone", [](CompiledGraph& f) { return f.clone(); },
          "Another one with the same code and values.")
      .def_prop_ro(
          "info", [](const CompiledGraph& f) { return info_of(f.info()); },
          "What the compiler did: kernels, memory, time, fusion report.")
      .def_prop_ro(
          "times",
          [](CompiledGraph& f) {
            nb::list out;
            for (const StepTime& t : f.times())
              out.append(nb::make_tuple(t.label, t.kernel, t.seconds, t.flops));
            return out;
          },
          "After a run with profile=True: (label, kernel, seconds, flops) of each step.");
  m.def("compile", compile, nb::arg("graph"), nb::arg("device"), nb::arg("threads"),
        nb::arg("dims"), nb::arg("hints"), nb::arg("fast_math"), nb::arg("precision"),
        nb::arg("fuse"), nb::arg("memory_budget"));
}

}  // namespace

void bind_graphs(nb::module_& m) {
  nb::class_<Graph>(m, "Graph", "A finished program, as a value.")
      .def("__str__", [](const Graph& g) { return print(g); })
      .def(
          "__eq__", [](const Graph& a, const Graph& b) { return a == b; }, nb::is_operator())
      .def("__hash__", [](const Graph& g) { return static_cast<Py_hash_t>(g.hash() >> 1); })
      .def_prop_ro("name", [](const Graph& g) { return g.name; })
      .def_prop_ro("nodes", &Graph::size)
      .def_prop_ro("inputs", [](const Graph& g) { return leaves(g, g.inputs()); })
      .def_prop_ro("params", [](const Graph& g) { return leaves(g, g.params()); })
      .def_prop_ro("outputs", output_types)
      .def_prop_ro("symbols", &Graph::symbols)
      .def("bind", [](const Graph& g, const DimBinding& dims) { return bind(g, dims); })
      .def("recognised", [](const Graph& g) { return recognised(g); })
      .def("value_and_grad",
           [](const Graph& g, const Names& wrt, bool zero_missing, int output) {
             return value_and_grad(g, wrt, {zero_missing, output});
           })
      .def("grad", [](const Graph& g, const Names& wrt, bool zero_missing,
                      int output) { return grad(g, wrt, {zero_missing, output}); })
      .def("vjp", [](const Graph& g, const Names& wrt,
                     bool zero_missing) { return vjp(g, wrt, {zero_missing, 0}); })
      .def("jvp", [](const Graph& g, const Names& wrt) { return jvp(g, wrt); })
      .def("hvp", [](const Graph& g, const Names& wrt) { return hvp(g, wrt); })
      .def("jacfwd", [](const Graph& g, const Names& wrt) { return jacfwd(g, wrt); })
      .def("jacrev", [](const Graph& g, const Names& wrt) { return jacrev(g, wrt); })
      .def("hessian", [](const Graph& g, const Names& wrt) { return hessian(g, wrt); })
      .def("jet", [](const Graph& g, const Names& wrt, int order) { return jet(g, wrt, order); })
      .def("linearize",
           [](const Graph& g, const Names& wrt) {
             Linearized l = linearize(g, wrt);
             return std::pair(std::move(l.value), std::move(l.tangent));
           })
      .def("linear_transpose",
           [](const Graph& g, const Names& wrt) { return linear_transpose(g, wrt); })
      .def("vmap", [](const Graph& g, const std::map<std::string, int64_t>& axes, nb::handle size,
                      int64_t out_axis) { return vmap(g, axes, read_dim(size), out_axis); })
      .def("batched", [](const Graph& g, const std::vector<int64_t>& axes,
                         nb::handle size) { return batched(g, axes, read_dim(size)); })
      .def("mixed_precision",
           [](const Graph& g, const PolicyTuple& policy) {
             return mixed_precision(g, policy_of(policy));
           })
      .def("with_constants", with_constants)
      .def("first_outputs",
           [](Graph g, size_t count) {
             g.outputs.resize(count);
             return g;
           })
      .def("to_bytes",
           [](const Graph& g) {
             const std::string bytes = to_bytes(g);
             return nb::bytes(bytes.data(), bytes.size());
           })
      .def("save", [](const Graph& g, const std::filesystem::path& p) { save_graph(p, g); })
      .def("to_svg", to_svg)
      .def("inspect", inspect_graph)
      .def("lower_blocks",
           [](const Graph& g, const std::string& policy) {
             return hir_module(g, policy).lower_to_mir().into_graph();
           })
      .def("inspect_hir", [](const Graph& g,
                             const std::string& policy) { return hir_module(g, policy).inspect(); })
      .def("hir_to_json", [](const Graph& g, const std::string& policy) {
        return hir_to_json(hir_module(g, policy));
      });
  m.def("hir_from_json", [](const std::string& text) {
    const HirModule h = hir_from_json(text);
    const auto policy = enum_names(h.fusion_policy)[static_cast<size_t>(h.fusion_policy)];
    return nb::make_tuple(h.graph(), std::string(policy));
  });
  m.def("parse", [](const std::string& text) { return parse(text); });
  m.def("from_bytes",
        [](const nb::bytes& bytes) { return from_bytes({bytes.c_str(), bytes.size()}); });
  m.def("load_graph", load_graph);
  bind_compiled(m);
}

}  // namespace rlx::python
