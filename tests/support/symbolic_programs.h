// Programs with symbolic sizes, and what binding them is compared with: the same program whose sizes are constant.
#pragma once

#include <random>

#include "../../bench/symbolic_cases.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {

using symbolic::symbolic_bert;
using symbolic::symbolic_conv_net;
using symbolic::symbolic_gpt;
using symbolic::symbolic_rnn;
using symbolic::SymbolicProgram;

// Smaller ones, for single matters.
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

// The same at `runs` random sizes of one compilation, which must make all code there is; the hints, if any, allow them.
// Where a size is 1, bits may differ. Returns how many kernels were generated.
int expect_bits_of_static(const SymbolicProgram& p, int runs, uint64_t seed,
                          const SizeHints& hints = {});

}  // namespace rlx::testing
