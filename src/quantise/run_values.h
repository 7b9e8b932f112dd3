// Values of a program by running it: what calibration, errors per layer and weights that are stored otherwise are read off.
//
//   ValueRunner run(g, {conv, relu}, params);
//   std::vector<Tensor> v = run({{"x", batch}});
//
// Only what the values need is compiled; inputs of the program that they do not need are ignored. Raises Error(user):
// "input-unknown" for a name that is no input of the program, "input-missing" for a batch without an input that the values
// need, and what runs raise.
#pragma once

#include "rlx/runtime/runtime.h"

namespace rlx {

// The part of a program that makes these values: its outputs, without updates and without other leaves.
Graph part_for(const Graph& g, Operands values);

class ValueRunner {
 public:
  ValueRunner(const Graph& g, Operands values, const NamedTensors& params,
              const Device& device = default_device());
  std::vector<Tensor> operator()(const NamedTensors& inputs);

 private:
  std::vector<std::string> known_;
  int64_t batches_ = 0;  // seen so far
  CompiledGraph program_;
};

}  // namespace rlx
