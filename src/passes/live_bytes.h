// How much memory the values of a program take at once, about: what lowering will plan, seen on the graph.
//
//   LiveBytes live(fused);
//   live.peak;             // bytes; leaves and what is written where the caller wants it do not count
//
// The order of nodes is the order of time. A view lies in what it is a view of; a region's result may take the place of
// an operand of its size that nobody reads later. What kernels need besides is not known here.
#pragma once

#include "rlx/ir/graph.h"

namespace rlx {

// Whether lowering makes no step of it: its result is another view of its operand.
bool is_view(const OpDef& op);

struct LiveBytes {
  // Sizes must be known.
  explicit LiveBytes(const Graph& g);

  int64_t peak = 0;
  int32_t fullest = -1;     // the node at which that is
  std::vector<int64_t> at;  // at each node
};

// Bytes of all results; 0 for views and leaves.
int64_t result_bytes(const Node& n);

}  // namespace rlx
