// Forward mode: directional derivatives as new nodes.
//
//   Values ty = forward(b, {y}, {x}, {tx});  // inside a builder: appends the tangents' nodes
//   Graph g2 = jvp(g, {"x"});                // inputs: those of g and "tangent_x"
//                                            // outputs: [y.., tangent of y..]
//
// Only nodes on a path from `wrt` to the outputs are visited. A node answers by its stated `jvp`,
// else `derivative`, else (a linear op) by itself, else its decomposition. Raises as reverse.h
// does.
#pragma once

#include "rlx/ir/builder.h"

namespace rlx {

// The tangents of `outputs` when `wrt` move along `tangents`; kNone stands for zero on both sides.
Values forward(Builder& b, Operands outputs, Operands wrt, Operands tangents);

// Outputs: the forward outputs, then their tangents (zeros where nothing arrives; none for outputs
// of integers and bools). The input "tangent_<name>" is followed by "_1", "_2".. where that name is
// taken. The name gets the ending "_jvp".
Graph jvp(const Graph& g, const std::vector<std::string>& wrt);

// Hessian-vector products, forward over reverse: jvp of value_and_grad along `wrt`.
// Outputs: [loss, aux.., gradients.., <gradient, v>, tangents of aux.., Hv..] with v in the inputs
// "tangent_<name>".
Graph hvp(const Graph& g, const std::vector<std::string>& wrt);

}  // namespace rlx
