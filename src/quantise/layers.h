// The layers of a program that quantisation is about: products, convolutions and rows of tables.
//
//   Graph g = plain_products(f);                   // fused ops and blocks become what they are made of
//   for (const Layer& l : find_layers(g)) ...      // l.name == "fc1.weight"
//
// A layer is called after the parameter that its weight is made of, else by its label, else by its node ("%7 matmul"); a
// name that is taken gets "#2". find_layers looks at nodes of the program itself; find_all_layers into the bodies of scan,
// while_loop and cond, too, where a weight is made of what comes in from outside alike in every step.
#pragma once

#include "rlx/passes/passes.h"

namespace rlx {

// The body-th body of a node.
struct BodyPlace {
  int32_t node = -1;
  size_t body = 0;
  auto operator<=>(const BodyPlace&) const = default;
};

struct Layer {
  int32_t node = -1;
  std::vector<BodyPlace> in = {};  // the bodies around it, outermost first
  const OpDef* op = nullptr;
  std::string name;
  size_t x = 0, weight = 1;   // its operands
  bool has_weight = false;    // that operand is made of weights alone
  int64_t channel_axis = -1;  // of the weight: the axis of output channels
  Value value() const { return {node, 0}; }
};
// The graph that the layer is a node of.
const Graph& graph_of(const Graph& g, const Layer& l);

Graph plain_products(Graph g);
// For programs that are run and not trained: functions with derivatives of their own, checkpoints and recurrent layers
// become what they are made of, too, where there are layers in them.
Graph plain_products_to_run(Graph g);
std::vector<Layer> find_layers(const Graph& g);

struct AllLayers {
  std::vector<Layer> layers;  // in the order of the program
  Graph
      graph;  // the program, and behind its nodes the weights of layers in bodies as they are outside
  Values weights;  // of each layer, in that graph; kNone where it has none
};
AllLayers find_all_layers(const Graph& g);

// Names as people write them: equal, or with a * at the end for any ending.
bool name_matches(std::string_view pattern, std::string_view name);

}  // namespace rlx
