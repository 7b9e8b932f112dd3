#include "rlx/python/explain.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "rlx/explain/explain.h"
#include "rlx/python/program.h"

namespace rlx::python {

namespace {

NamedTensors host_tensors(const nb::dict& values) {
  NamedTensors out;
  for (const auto& [name, value] : values) {
    const nb::object array = hooks().as_array(value);
    out.emplace(nb::cast<std::string>(name), tensor_of(*as_array(array)));
  }
  return out;
}

std::string explain_graph(const Graph& g, const std::string& device, const nb::dict& inputs,
                          const nb::dict& params, const DimBinding& dims, bool run, int runs,
                          const std::optional<std::pair<double, double>>& limits, int threads,
                          bool fast_math, bool fuse) {
  ExplainOptions options;
  options.inputs = host_tensors(inputs);
  options.params = host_tensors(params);
  options.compile.dims = dims;
  options.compile.threads = threads;
  options.compile.fast_math = fast_math;
  options.compile.fuse = fuse;
  options.run = run;
  options.runs = runs;
  if (limits) options.limits = MachineLimits{limits->first, limits->second};
  std::string json;
  run_interruptibly(true, true, [&](const std::atomic<bool>* cancel) {
    options.cancel = cancel;
    json = explain(g, Device(device), options).json();
  });
  return json;
}

}  // namespace

void bind_explain(nb::module_& m) {
  m.def("explain", explain_graph, nb::arg("graph"), nb::arg("device"), nb::arg("inputs"),
        nb::arg("params"), nb::arg("dims"), nb::arg("run"), nb::arg("runs"),
        nb::arg("limits").none(), nb::arg("threads"), nb::arg("fast_math"), nb::arg("fuse"));
  m.def("explanation_html", [](const std::string& json) { return Explanation(json).html(); });
}

}  // namespace rlx::python
