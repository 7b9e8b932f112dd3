// Reverse mode: gradients as new nodes.
//
//   Values g = gradients(b, loss, {w1, w2});           // inside a builder: a gradient per value
//   Graph train = value_and_grad(f, {"w1", "w2"});     // on a graph: [loss, aux.., dw1, dw2]
//
// Only nodes on a path from `wrt` to the outputs are visited. A node answers by its stated `vjp`,
// else `derivative`, else the transpose of its `jvp`, else its decomposition; bool and integer
// values carry nothing, and ops that state a reason in `not_differentiable` end the path. Gradients
// are nodes like any other, so derivatives of every order follow by applying a transform again.
// Complex gradients are those a descent step may subtract (PyTorch's convention).
//
// Raises (user) "no-leaf" for an unknown name, "loss-type" when the loss is not a real scalar,
// "wrt-dtype" for a value that cannot have a gradient, "no-gradient" when nothing reaches one (with
// the reason), "output-index"; (unsupported) "no-rule" for an op without an answer.
#pragma once

#include "rlx/ir/builder.h"

namespace rlx {

struct GradOptions {
  bool zero_missing = false;  // zeros, instead of an error, where no gradient arrives
  int output = 0;             // which output of the graph is the loss
};

// ---- inside a builder

// The cotangents of `wrt`, given those of `outputs`; kNone stands for zero on both sides. A node
// whose op states `with_residuals` is replaced, in place and with its results kept, by the form
// that saves what its vjp reads.
Values reverse(Builder& b, Operands outputs, Operands cotangents, Operands wrt);

// The gradients of a real scalar; never kNone.
Values gradients(Builder& b, Value loss, Operands wrt, GradOptions options = {});

// ---- on graphs
// Every leaf and every update of the forward graph stays; the name gets the ending "_grad".

// Outputs: all forward outputs, then the gradients.
Graph value_and_grad(const Graph& g, const std::vector<std::string>& wrt, GradOptions options = {});
// Outputs: the gradients.
Graph grad(const Graph& g, const std::vector<std::string>& wrt, GradOptions options = {});
// Takes the cotangent of each differentiable output as an input: "d_output" for a graph with one
// output, else "d_<index>" (followed by "_1", "_2".. where that name is taken). Outputs: all
// forward outputs, then the cotangents of `wrt`.
Graph vjp(const Graph& g, const std::vector<std::string>& wrt, GradOptions options = {});

}  // namespace rlx
