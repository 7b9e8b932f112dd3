#include "rlx/python/quantising.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "rlx/passes/quant_propagate.h"
#include "rlx/python/array.h"
#include "rlx/quantise/qat.h"

namespace rlx::python {

namespace {

NamedTensors tensors_of(const nb::dict& values) {
  NamedTensors out;
  for (const auto& [name, value] : values) {
    const nb::object array = hooks().as_array(value);
    out.emplace(nb::cast<std::string>(name), tensor_of(*as_array(array)));
  }
  return out;
}

nb::dict arrays_of(const NamedTensors& values) {
  nb::dict out;
  for (const auto& [name, value] : values) out[name.c_str()] = wrap(value);
  return out;
}

std::vector<NamedTensors> batches_of(const nb::list& data) {
  std::vector<NamedTensors> out;
  for (nb::handle batch : data) out.push_back(tensors_of(nb::cast<nb::dict>(batch)));
  return out;
}

CalibrationOptions calibration_of(const nb::dict& o) {
  CalibrationOptions out;
  out.activations.method = parse_calibration_method(nb::cast<std::string>(o["method"]));
  out.activations.percentile = nb::cast<double>(o["percentile"]);
  out.activations.asymmetric = nb::cast<bool>(o["asymmetric"]);
  out.weights.method = parse_calibration_method(nb::cast<std::string>(o["weight_method"]));
  out.per_channel = nb::cast<bool>(o["per_channel"]);
  return out;
}

nb::tuple quantised(const Quantised& q) {
  return nb::make_tuple(q.graph, arrays_of(q.params), q.report.to_json(), q.report.to_string());
}

// (node, index, axis, scales, zero points) of each tap.
using Entry =
    std::tuple<int32_t, int32_t, std::optional<int64_t>, std::vector<double>, std::vector<int64_t>>;

}  // namespace

void bind_quantising(nb::module_& m) {
  m.def("quantise", [](const Graph& g, const nb::dict& params, const nb::list& data,
                       const std::string& format, const FormatChoices& ops,
                       const FormatChoices& layers, const nb::dict& calibration, bool measure) {
    return quantised(quantise(g, tensors_of(params), batches_of(data),
                              {format, ops, layers, calibration_of(calibration), measure}));
  });
  m.def("calibrate", [](const Graph& g, const nb::dict& params, const nb::list& data,
                        const nb::dict& options, const std::vector<std::string>& names) {
    const CalibrationOptions o = calibration_of(options);
    std::vector<CalibrationTap> taps;
    for (const std::string& name : names) {
      const Value v = g.find_leaf(name);
      user_check(v.valid(), "calibration-tap", "calibrate: \"{}\" has no value {}", g.name,
                 quote(name));
      taps.push_back({v, name});
    }
    if (names.empty()) taps = default_taps(g, find_layers(g), o.per_channel);
    std::vector<Entry> out;
    for (const auto& [value, e] : calibrate(g, tensors_of(params), batches_of(data), o, taps))
      out.emplace_back(value.node, value.index, e.axis, e.scales,
                       std::vector<int64_t>(e.zero_points.begin(), e.zero_points.end()));
    return out;
  });
  m.def("insert_q_dq", [](const Graph& g, const std::vector<Entry>& record) {
    CalibrationRecord r;
    for (const auto& [node, index, axis, scales, zeros] : record)
      r[{node, index}] = {axis, scales, Ints(zeros.begin(), zeros.end())};
    return insert_q_dq(g, r);
  });
  m.def("quant_propagate", [](Graph g) {
    const int64_t gone = quant_propagate::run(g);
    return std::pair(std::move(g), gone);
  });
  m.def("leaf_values", [](const Graph& g) {
    std::map<std::string, int32_t> out;
    for (const Values& leaves : {g.inputs(), g.params()})
      for (Value v : leaves) out[g.node(v).get<LeafAttrs>().name] = v.node;
    return out;
  });
  m.def("plain_products", [](const Graph& g) { return plain_products(g); });
  m.def("prepare_qat", [](const Graph& g, const nb::dict& params, int64_t weight_bits,
                          int64_t activation_bits, bool learned, const std::string& ste,
                          const FormatChoices& ops, const FormatChoices& layers,
                          const nb::list& data) {
    const auto names = enum_names(SteKind{});
    const auto at = std::find(names.begin(), names.end(), ste);
    user_check(at != names.end(), "enum", "ste is {}, not {}", fmt::join(names, ", "), quote(ste));
    QatOptions o{.weight_bits = weight_bits,
                 .activation_bits = activation_bits,
                 .learned = learned,
                 .ste = static_cast<SteKind>(at - names.begin()),
                 .ops = ops,
                 .layers = layers};
    const QatProgram q = prepare_qat(g, tensors_of(params), o, batches_of(data));
    return nb::make_tuple(q.graph, arrays_of(q.params), q.trained);
  });
  m.def("convert_qat", [](const Graph& g, const nb::dict& params) {
    return quantised(convert_qat(g, tensors_of(params)));
  });
  // A traced function whose first inputs are parameters of these names, and the last ones known.
  m.def("with_params", [](const Graph& g, const std::vector<std::string>& params, size_t kept,
                          const nb::sequence& captured) {
    Builder b(g.name);
    const Values inputs = g.inputs();
    Values in;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Type& type = g.type(inputs[i]);
      if (i < params.size())
        in.push_back(b.param(params[i], type));
      else if (i < params.size() + kept)
        in.push_back(b.input(fmt::format("x{}", i - params.size()), type));
      else
        in.push_back(b.constant(tensor_of(*as_array(captured[i - params.size() - kept]))));
    }
    for (Value v : b.inline_graph(g, in)) b.output(v);
    return b.finish();
  });
}

}  // namespace rlx::python
