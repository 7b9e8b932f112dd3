#include "rlx/quantise/calibrate.h"

#include "rlx/ops/core.h"
#include "rlx/quantise/run_values.h"
#include "rlx/transform/walk.h"

namespace rlx {

namespace {

std::string tap_name(const Graph& g, Value v) {
  const Node& n = g.node(v);
  if (n.op == &op::input || n.op == &op::param) return n.get<LeafAttrs>().name;
  return describe(g, v);
}

void check_taps(const Graph& g, std::span<const CalibrationTap> taps) {
  for (const CalibrationTap& t : taps) {
    user_check(t.value.node >= 0 && t.value.node < g.size() && t.value.index >= 0 &&
                   static_cast<size_t>(t.value.index) < g.node(t.value).out.size(),
               "calibration-tap", "calibrate: \"{}\" has no value {}", g.name, t.value);
    user_check(is_float(g.type(t.value).dtype), "calibration-dtype",
               "calibrate: the tap {} is {}; only floats are quantised", t.name, g.type(t.value));
  }
}

// Observers of those taps that are weights, or of the others, fed with the data.
void observe(const Graph& g, const NamedTensors& params, Batches data, const Device& device,
             std::span<const CalibrationTap> taps, bool weights, std::vector<Observer>& seen) {
  Values values;
  std::vector<size_t> which;
  for (size_t i = 0; i < taps.size(); ++i)
    if (taps[i].is_weight == weights) values.push_back(taps[i].value), which.push_back(i);
  if (values.empty()) return;
  user_check(weights || !data.empty(), "calibration-data",
             "calibrate: there is no data; {} values of \"{}\" depend on it", values.size(),
             g.name);
  ValueRunner run(g, values, params, device);
  const NamedTensors none;
  for (const NamedTensors& batch : weights ? Batches(&none, 1) : data) {
    const std::vector<Tensor> out = run(batch);
    for (size_t k = 0; k < which.size(); ++k) seen[which[k]].add(out[k]);
  }
}

}  // namespace

std::vector<CalibrationTap> default_taps(const Graph& g, std::span<const Layer> layers,
                                         bool per_channel) {
  std::map<Value, CalibrationTap> taps;
  for (const Layer& l : layers) {
    const Node& n = g.node(l.node);
    if (n.op == &op::gather) continue;
    const Value x = n.in[l.x], w = n.in[l.weight];
    taps.try_emplace(x, CalibrationTap{x, tap_name(g, x)});
    CalibrationTap weight{w, l.has_weight ? l.name : tap_name(g, w)};
    weight.is_weight = l.has_weight;
    if (l.has_weight && per_channel) weight.axis = l.channel_axis;
    const auto [it, fresh] = taps.try_emplace(w, weight);
    if (!fresh && it->second.axis != weight.axis) it->second.axis.reset();
  }
  std::vector<CalibrationTap> out;
  for (auto& [value, tap] : taps) out.push_back(std::move(tap));
  return out;
}

CalibrationRecord calibrate(const Graph& g, const NamedTensors& params, Batches data,
                            const CalibrationOptions& options,
                            std::span<const CalibrationTap> taps) {
  check_range_options(options.activations);
  check_range_options(options.weights);
  check_taps(g, taps);
  std::vector<Observer> seen;
  for (const CalibrationTap& t : taps) seen.emplace_back(t.name, t.axis);
  for (bool weights : {true, false}) observe(g, params, data, options.device, taps, weights, seen);
  CalibrationRecord out;
  for (size_t i = 0; i < taps.size(); ++i)
    out[taps[i].value] = seen[i].entry(taps[i].is_weight ? options.weights : options.activations);
  return out;
}

CalibrationRecord calibrate(const Graph& g, const NamedTensors& params, Batches data,
                            const CalibrationOptions& options) {
  const std::vector<Layer> layers = find_layers(g);
  return calibrate(g, params, data, options, default_taps(g, layers, options.per_channel));
}

}  // namespace rlx
