// vmap: a graph for one sample becomes the graph for a batch.
//
//   Graph many = vmap(g, {{"x", 0}}, 32);   // x: [3] -> [32, 3]; outputs gain the axis in front
//
// The named leaves (inputs or parameters) gain an axis of `size` (a symbol is fine) at the given
// place; all others are shared. A node without a batched operand is copied as it is. Else it
// answers by its stated `vmap`, else (elementwise) by itself with ranks aligned, else by its
// decomposition. Raises (user) "no-leaf" for an unknown name, "axis-range", "update-batched" when a
// shared parameter would be updated with a batch of values; (unsupported) "no-rule".
#pragma once

#include <map>

#include "rlx/ir/builder.h"

namespace rlx {

// Outputs are always batched, with the batch axis at `out_axis`. The name gets the ending "_vmap".
Graph vmap(const Graph& g, const std::map<std::string, int64_t>& batched, const Dim& size,
           int64_t out_axis = 0);

// A value with or without the batch axis (in front).
struct Batched {
  Value value;
  bool batched = false;
};

// Appends g to the builder with its leaves (inputs and parameters, in order) bound to the given
// values; returns its outputs, batched where they depend on a batched leaf.
std::vector<Batched> vmap_inline(Builder& b, const Graph& g, std::span<const Batched> leaves,
                                 const Dim& size);

}  // namespace rlx
