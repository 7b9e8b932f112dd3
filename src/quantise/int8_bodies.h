// Layers in bodies as products of codes: the scales of what they read, and the ops written around them.
//
//   auto found = int8_in_bodies(all, g, which, params, batches, calibration);
//   if (const auto& at = found[k]) y = layer_over_codes(b, node, layer, *at, operands, codes);      // in the copied body
//
// quantize and dequantize stand where the layer stands, and fuse_quantised makes integers of them there.
// Raises Error(user): what observe_bodies.h raises.
#pragma once

#include "rlx/ops/quant/quantise.h"
#include "rlx/quantise/calibrate.h"

namespace rlx {

struct Int8InBody {
  QuantizeAttrs x, weight;
  Tensor codes;  // of the weight, where it is one
};

// Of all.layers[k] for each k in `which`; none where no batch came to the body. all: find_all_layers(g).
std::map<size_t, std::optional<Int8InBody>> int8_in_bodies(const AllLayers& all, const Graph& g,
                                                           std::span<const size_t> which,
                                                           const NamedTensors& params, Batches data,
                                                           const CalibrationOptions& options);

// The layer's node n over operands of b, and over its codes where it has a weight.
Value layer_over_codes(Builder& b, const Node& n, const Layer& layer, const Int8InBody& at,
                       Values in, Operands codes);

}  // namespace rlx
