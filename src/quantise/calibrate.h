// Calibration: scales of values by running data through a program.
//
//   CalibrationRecord r = calibrate(g, params, batches);        // operands of products and convolutions; weights per channel
//   Graph h = insert_q_dq(g, r);
//   CalibrationRecord s = calibrate(g, params, batches, {.activations = {.method = CalibrationMethod::entropy}}, taps);
//
// A batch is the inputs by name. Values that need no input are read once. Raises Error(user): "calibration-data" (no batch),
// "calibration-value" (NaN or infinity, with the tap and the batch, counted from 0), "calibration-tap", "calibration-dtype",
// "calibration-percentile", "calibration-scale", what run_values.h raises.
#pragma once

#include "rlx/quantise/layers.h"
#include "rlx/quantise/observer.h"
#include "rlx/runtime/runtime.h"

namespace rlx {

struct CalibrationOptions {
  RangeOptions activations;
  RangeOptions weights{.smallest_scale = 1e-12};
  bool per_channel = true;  // weights: a scale for each output channel
  Device device = default_device();
};

// A value to be watched, with its name in messages; weights are what every run gives alike.
struct CalibrationTap {
  Value value;
  std::string name;
  std::optional<int64_t> axis = {};
  bool is_weight = false;
};

using Batches = std::span<const NamedTensors>;

// What the layers read: activations per tensor, weights per output channel. A value that several layers read is one tap.
std::vector<CalibrationTap> default_taps(const Graph& g, std::span<const Layer> layers,
                                         bool per_channel = true);

CalibrationRecord calibrate(const Graph& g, const NamedTensors& params, Batches data,
                            const CalibrationOptions& options,
                            std::span<const CalibrationTap> taps);
// Of the default taps of all products and convolutions.
CalibrationRecord calibrate(const Graph& g, const NamedTensors& params, Batches data,
                            const CalibrationOptions& options = {});

}  // namespace rlx
