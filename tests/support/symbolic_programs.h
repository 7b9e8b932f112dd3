// Programs with symbolic sizes, and what binding them is compared with: the same program whose sizes are constant.
#pragma once

#include <random>

#include "rlx/front/trace.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {

struct SymbolicProgram {
  std::string name;
  Graph graph;
  std::map<std::string, std::pair<int64_t, int64_t>> sizes;  // of each symbol: drawn from
};

// An encoder (of `layers` layers, `width` wide) over [?batch, ?length] tokens, a decoder over [1, ?length], a conv net over
// [2, 3, ?height, ?width], a recurrence over ?steps, and smaller programs for single matters.
SymbolicProgram symbolic_bert(int64_t layers, int64_t width, int64_t heads, int64_t vocab);
SymbolicProgram symbolic_gpt(int64_t layers, int64_t width, int64_t heads, int64_t vocab);
SymbolicProgram symbolic_conv_net();
SymbolicProgram symbolic_rnn();
std::vector<SymbolicProgram> small_symbolic_programs();

// A value for a leaf: numbers of a normal distribution, small integers, half of the bools.
Tensor random_tensor(const Type& type, std::mt19937_64& random);
NamedTensors random_params(const Graph& g, std::mt19937_64& random);
NamedTensors random_inputs(const Graph& bound, std::mt19937_64& random);
DimBinding random_sizes(const SymbolicProgram& p, std::mt19937_64& random);

// Runs the compiled program at these sizes and the static one, on the same inputs; says where bits differ.
std::string compare_with_static(const SymbolicProgram& p, CompiledGraph& symbolic,
                                const NamedTensors& params, const DimBinding& sizes,
                                std::mt19937_64& random);

}  // namespace rlx::testing
