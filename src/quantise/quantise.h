// Quantisation of a float program: weights and products in fewer bits.
//
//   Quantised q = quantise(g, params, batches);                          // int8, calibrated with the batches
//   Quantised w = quantise(g, params, {}, {.format = "q4_0"});            // weights alone; nothing is run
//   Quantised m = quantise(g, params, batches, {.format = "int8", .layers = {{"head*", "float"}, {"fc*", "int4/32"}}});
//   CompiledGraph f = Session().compile(q.graph);
//   f.set_params(q.params);
//   fmt::print("{}", q.report.to_string());
//
// "int8": what a product or convolution reads becomes i8 codes with calibrated scales, activations one for all, weights one
// per output channel; the product is of integers (passes/fuse_quantised.cc). Any scheme of quant/format.h ("int4/32",
// "gguf_q4k", also "q4k"): the weight is stored in blocks, activations stay float. Rows of tables (embeddings) take the ggml
// schemes. "float" leaves a layer as it is.
//
// Parameters that are stored otherwise are replaced by new ones, called after them: "fc.weight.int8", "fc.weight.q4_0",
// "fc.weight.int4.scale". Inputs, outputs and their dtypes stay. A layer that the format does not fit stays float, and the
// report says why.
//
// Layers in bodies of scan, while_loop and cond count where their weights come in from outside alike in every step: what
// stores them is outside and comes in. Activations there are calibrated over all steps (observe_bodies.h).
//
// Raises Error(user): "quant-format" for a format that is none, "policy-op" for an op that is no matmul, conv or gather,
// "policy-layer" for a layer that is not there, "policy-idle" where nothing is quantised, what calibrate.h raises.
#pragma once

#include "rlx/quant/format.h"
#include "rlx/quantise/calibrate.h"
#include "rlx/quantise/report.h"

namespace rlx {

// A format for what a name means; the last that matches counts.
using FormatChoices = std::vector<std::pair<std::string, std::string>>;

struct QuantiseOptions {
  std::string format = "int8";
  FormatChoices ops = {};     // by op: {"conv", "float"}
  FormatChoices layers = {};  // by layer, before those by op; "head*" is all that begin so
  CalibrationOptions calibration = {};
  bool measure = true;  // errors, where there is data
};

struct Quantised {
  Graph graph;
  NamedTensors params;  // all that the graph has and that were given
  QuantiseReport report;
};

Quantised quantise(const Graph& g, const NamedTensors& params, Batches data,
                   const QuantiseOptions& options = {});

// How one layer is stored: as it is, as int8 codes on both sides, or its weight in a scheme.
struct LayerFormat {
  enum class Kind : uint8_t { keep, int8, weight } kind = Kind::keep;
  QuantScheme scheme;
  std::string to_string() const;
};
// "float", "int8", or a scheme with or without its "gguf_".
LayerFormat parse_layer_format(std::string_view text);
// For each layer; checks all names.
std::vector<LayerFormat> choose_formats(const Graph& g, std::span<const Layer> layers,
                                        const std::string& otherwise, const FormatChoices& ops,
                                        const FormatChoices& by_name);

}  // namespace rlx
