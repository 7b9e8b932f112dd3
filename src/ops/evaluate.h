// The reference evaluator: the value of a graph by the stated rules, node by node.
//
//   Evaluated r = evaluate(g, {{"x", x}, {"w", w}});
//   r.outputs[0];  r.updates.at("w");
//
// A node's value is its op's `eval`; an op without one is evaluated through its decomposition.
// Symbols are bound from the sizes of the leaves. Every value is checked against the inferred type.
// Raises "leaf-missing", "leaf-unknown", "leaf-type" (user) for wrong leaves, whatever the rules
// raise (an index out of range, say), and "no-rule" (internal) for an op with neither rule. No rule is
// asked for results without elements.
#pragma once

#include <map>

#include "rlx/ir/builder.h"

namespace rlx {

struct Evaluated {
  Tensors outputs;
  NamedTensors updates;  // by parameter
};

// Every input and parameter by name.
Evaluated evaluate(const Graph& g, const NamedTensors& leaves);

// The outputs; leaves (inputs and parameters) in the order of their nodes. Bodies are run this way.
Tensors evaluate(const Graph& g, std::span<const Tensor> leaves);

// `poll` is called before each node that is evaluated (those of bodies and decompositions too); what it
// raises ends the evaluation.
using Poll = FunctionRef<void()>;
inline constexpr auto no_poll = [] {};

// The same with the updates, telling `observe` the results of each computed node as they come.
using NodeObserver = FunctionRef<void(int32_t node, const Tensors& results)>;
Evaluated evaluate(const Graph& g, std::span<const Tensor> leaves, NodeObserver observe,
                   Poll poll = no_poll);

// The results of one node on given operands.
Tensors evaluate_node(const Node& n, std::span<const Tensor> in, Poll poll = no_poll);

// How many scalar operations evaluate_node takes, about, on operands of these types: one for each element
// of operands and results, and what the op states (OpDef::cost), else the cost of its decomposition.
// Infinite where a size or the number of iterations is not known.
double evaluation_cost(const Node& n, std::span<const Type> in);
double evaluation_cost(const Graph& g);
double element_count(const Type& t);

// The sizes of the symbols in the declared types of the leaves, given actual sizes. Raises
// "leaf-type" when they do not fit.
DimBinding match_symbols(const Graph& g, std::span<const Tensor> leaves);

// A node as a graph of its own, after one step of decomposition, which its op must state: inputs "0",
// "1", ... of the given types; outputs are the node's results.
Graph decomposed(const Node& n, std::span<const Type> in);

}  // namespace rlx
