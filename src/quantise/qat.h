// Training with the rounding of the program that will run: fake quantisation in front of products, with straight-through
// gradients, and what was trained as integers or four-bit weights.
//
//   QatProgram q = prepare_qat(loss, params, {.weight_bits = 4, .activation_bits = 0});
//   TrainStep step = train_step(q.graph, q.params, {.params = q.trained});
//   Quantised r = convert_qat(prepare_qat(network, params, same options).graph, trained_params);
//
// Weights: fake_quantize with a scale per output channel from the weight itself in each step. Activations: one scale, the
// running average of what batches had, in the parameter "<layer>.x_scale" that the program updates (0: no batch was seen).
// learned: fake_quantize_lsq instead, with the scales as parameters to be trained, "<layer>.w_scale" and "<layer>.x_scale",
// that begin at 2 mean|x| / sqrt(q_max) of the weight and of the data.
//
// Both calls find the same layers by the same names in the network and in its loss, so one's parameters are the other's.
// Raises Error(user): what quantise raises of policies; "quant-bits"; "calibration-data" (learned scales of activations
// without data); "leaf-name" where such a parameter is there already; convert_qat: "qat-scale" for an activation without a
// scale of its own (no batch seen, or a scale of each batch), "qat-idle" where nothing is fake-quantised.
#pragma once

#include "rlx/ops/quant/quantise.h"
#include "rlx/quantise/quantise.h"

namespace rlx {

struct QatOptions {
  int64_t weight_bits = 8;      // 2 to 8
  int64_t activation_bits = 8;  // 0: activations stay float
  bool learned = false;
  SteKind ste = SteKind::clipped_identity;
  double decay = 0.9;                   // of the running scales
  FormatChoices ops = {}, layers = {};  // those named "float" stay so
};

struct QatProgram {
  Graph graph;
  NamedTensors params;               // those given, and the new ones at their first values
  std::vector<std::string> trained;  // TrainOptions::params: all but the running scales
};

QatProgram prepare_qat(const Graph& g, const NamedTensors& params, const QatOptions& options = {},
                       Batches data = {});

// Weights of four bits or less become nibbles with a scale per output channel, which products and convolutions read as
// floats of the very values that training saw; activations then stay float. Weights of more bits become i8, and so do
// activations, so that products are of integers.
Quantised convert_qat(const Graph& g, const NamedTensors& params,
                      const Device& device = default_device());

}  // namespace rlx
