// What values in bodies of loops and branches are while a program runs: those of every step and of each branch that ran.
//
//   std::vector<BodyTap> taps{{layer.in, body.node(layer.node).in[0], "fc.x"}};
//   auto seen = observe_in_bodies(g, params, batches, device, taps);
//   if (seen[0]) entry = seen[0]->entry(range_options);               // none: no batch came there
//
// Raises Error(user): "calibration-data" (no batch), "calibration-value" (NaN or infinity), what run_values.h raises.
#pragma once

#include "rlx/quantise/calibrate.h"

namespace rlx {

struct BodyTap {
  std::vector<BodyPlace> in;  // not empty
  Value value;                // of that body
  std::string name;
};

std::vector<std::optional<Observer>> observe_in_bodies(const Graph& g, const NamedTensors& params,
                                                       Batches data, const Device& device,
                                                       std::span<const BodyTap> taps);

}  // namespace rlx
