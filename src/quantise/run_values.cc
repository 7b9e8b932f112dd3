#include "rlx/quantise/run_values.h"

#include <algorithm>

#include "rlx/base/suggest.h"
#include "rlx/transform/walk.h"

namespace rlx {

Graph part_for(const Graph& g, Operands values) {
  const std::vector<bool> needed = needed_nodes(g, values, 0, g.size());
  Builder b(g.name);
  ResultMap<Values> map(g);
  for (int32_t i = 0; i < g.size(); ++i) {
    if (!needed[static_cast<size_t>(i)]) continue;
    b.set_origin(g.node(i).origin);
    map[i] = b.clone(g.node(i), map.at(g.node(i).in));
  }
  for (Value v : values) b.output(map.at(v));
  return b.finish();
}

ValueRunner::ValueRunner(const Graph& g, Operands values, const NamedTensors& params,
                         const Device& device)
    : program_(Session(device).compile(part_for(g, values))) {
  for (Value v : g.inputs()) known_.push_back(g.node(v).get<LeafAttrs>().name);
  for (Value v : program_.signature().params()) {
    const std::string& name = program_.signature().node(v).get<LeafAttrs>().name;
    if (const auto it = params.find(name); it != params.end()) program_.set_param(name, it->second);
  }
}

std::vector<Tensor> ValueRunner::operator()(const NamedTensors& inputs) {
  ++batches_;
  NamedTensors used;
  for (const auto& [name, value] : inputs) {
    user_check(std::find(known_.begin(), known_.end(), name) != known_.end(), "input-unknown",
               "there is no input {}; inputs are {}{}", quote(name), fmt::join(known_, ", "),
               did_you_mean(name, {known_.begin(), known_.end()}));
    if (program_.signature().find_leaf(name).valid()) used.emplace(name, value);
  }
  for (Value v : program_.signature().inputs()) {
    const std::string& name = program_.signature().node(v).get<LeafAttrs>().name;
    user_check(inputs.contains(name), "input-missing", "batch {} of the data lacks the input {}",
               batches_, quote(name));
  }
  return program_.run(used);
}

}  // namespace rlx
