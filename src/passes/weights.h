// What is made of weights alone, that is of parameters which no update writes and of constants, is the same in every run. Lowering
// computes such values once, when weights are set (JoinedWeight in lower/lir.h); fusion keeps them apart from the rest.
#pragma once

#include "rlx/ir/graph.h"

namespace rlx {

// The nodes that compute such a value for others that are not of weights alone. Only what is cheap to make and takes no more
// memory than the weights that it is made of: elementwise ops, sums and views, of static sizes.
std::vector<bool> weights_alone(const Graph& g);

// Whether v is of weights alone; `updates`: those of the program. Looks at a few nodes, then says no. In a body, `comes_in`
// says of its inputs which are.
bool is_of_weights(const Graph& g, Value v, std::span<const Update> updates,
                   FunctionRef<bool(int32_t input)> comes_in);
bool is_of_weights(const Graph& g, Value v, std::span<const Update> updates);

}  // namespace rlx
