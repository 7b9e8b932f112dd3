// What quantisation did, layer by layer, for people and for programs.
//
//   Quantised q = quantise(g, params, data, {.format = "int8"});
//   q.report.to_string();      // a table
//   q.report.to_json();
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace rlx {

struct LayerReport {
  std::string name, op;
  std::string format;                         // "float" for a layer that stays as it was
  std::string skipped;                        // why it does; empty for the others
  int64_t bytes_before = 0, bytes_after = 0;  // of its weight
  // Of the layer's output in the quantised program, against that of the float one: what earlier layers lost counts. None
  // where nothing was measured, and for layers in bodies.
  std::optional<double> relative_rms;     // root of (squared differences over squared values)
  std::optional<double> sqnr_db() const;  // -20 log10 of it; infinite where nothing differs
};

struct QuantiseReport {
  std::vector<LayerReport> layers;   // in the order of the program
  std::vector<LayerReport> outputs;  // of the program, named by their numbers: the errors alone
  int64_t bytes_before = 0, bytes_after = 0;  // of all parameters
  std::string to_string() const;
  std::string to_json() const;  // an infinite or missing number is null
};

}  // namespace rlx
