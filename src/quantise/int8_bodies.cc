#include "rlx/quantise/int8_bodies.h"

#include "rlx/quantise/observe_bodies.h"
#include "rlx/quantise/run_values.h"

namespace rlx {

namespace {

using Found = std::map<size_t, std::optional<Int8InBody>>;

QuantizeAttrs attrs_of(const CalibrationEntry& e) { return {e.axis, e.scales, e.zero_points}; }

Value rounded(Builder& b, Value v, const QuantizeAttrs& q) {
  return op::dequantize(b, op::quantize(b, v, q), q);
}

// Scales of weights, and their codes.
void code_weights(const AllLayers& all, const NamedTensors& params, const CalibrationOptions& o,
                  Found& found) {
  std::vector<size_t> which;
  Values weights, codes;
  for (const auto& [k, at] : found)
    if (at && all.layers[k].has_weight) which.push_back(k), weights.push_back(all.weights[k]);
  if (which.empty()) return;
  const std::vector<Tensor> values = ValueRunner(all.graph, weights, params, o.device)({});
  Builder b;
  b.mutable_graph() = all.graph;
  for (size_t i = 0; i < which.size(); ++i) {
    const Layer& l = all.layers[which[i]];
    Observer range(l.name, o.per_channel ? std::optional(l.channel_axis) : std::nullopt);
    range.add(values[i]);
    Int8InBody& at = *found[which[i]];
    at.weight = attrs_of(range.entry(o.weights));
    codes.push_back(op::quantize(b, weights[i], at.weight));
  }
  const std::vector<Tensor> coded = ValueRunner(b.graph(), codes, params, o.device)({});
  for (size_t i = 0; i < which.size(); ++i) found[which[i]]->codes = coded[i];
}

}  // namespace

Found int8_in_bodies(const AllLayers& all, const Graph& g, std::span<const size_t> which,
                     const NamedTensors& params, Batches data, const CalibrationOptions& o) {
  std::vector<BodyTap> taps;  // of each layer x, and what it is multiplied with where that varies
  for (size_t k : which) {
    const Layer& l = all.layers[k];
    const Node& n = graph_of(g, l).node(l.node);
    taps.push_back({l.in, n.in[l.x], l.name});
    if (!l.has_weight) taps.push_back({l.in, n.in[l.weight], l.name});
  }
  const auto seen = observe_in_bodies(g, params, data, o.device, taps);
  Found out;
  size_t next = 0;
  for (size_t k : which) {
    std::optional<Int8InBody>& at = out[k];
    if (seen[next]) at = Int8InBody{.x = attrs_of(seen[next]->entry(o.activations))};
    ++next;
    if (all.layers[k].has_weight) continue;
    if (at) at->weight = attrs_of(seen[next]->entry(o.activations));
    ++next;
  }
  code_weights(all, params, o, out);
  return out;
}

Value layer_over_codes(Builder& b, const Node& n, const Layer& l, const Int8InBody& at, Values in,
                       Operands codes) {
  in[l.x] = rounded(b, in[l.x], at.x);
  in[l.weight] =
      l.has_weight ? op::dequantize(b, codes[0], at.weight) : rounded(b, in[l.weight], at.weight);
  return b.emit(*n.op, n.attrs, in)[0];
}

}  // namespace rlx
