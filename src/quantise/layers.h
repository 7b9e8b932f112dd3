// The layers of a program that quantisation is about: products, convolutions and rows of tables.
//
//   Graph g = plain_products(f);                   // fused ops and blocks become what they are made of
//   for (const Layer& l : find_layers(g)) ...      // l.name == "fc1.weight"
//
// A layer is called after the parameter that its weight is made of, else by its label, else by its node ("%7 matmul"); a
// name that is taken gets "#2". Only nodes of the program itself count, not those of bodies.
#pragma once

#include "rlx/passes/passes.h"

namespace rlx {

struct Layer {
  int32_t node = -1;
  std::string name;
  size_t x = 0, weight = 1;   // its operands
  bool has_weight = false;    // that operand is made of weights alone
  int64_t channel_axis = -1;  // of the weight: the axis of output channels
  Value value() const { return {node, 0}; }
};

Graph plain_products(Graph g);
std::vector<Layer> find_layers(const Graph& g);

// Names as people write them: equal, or with a * at the end for any ending.
bool name_matches(std::string_view pattern, std::string_view name);

}  // namespace rlx
