// Taylor mode: derivatives of every order up to one, along a curve.
//
//   Graph t = jet(g, {"x"}, 3);   // inputs: those of g and "d1_x", "d2_x", "d3_x"
//                                 // outputs: [y.., y'.., y''.., y'''..]
//
// x moves with the time along a curve whose k-th derivative now is d<k>_x (zeros for k > 1: a
// straight line); the results are the derivatives of the outputs by the time. Those of a node follow
// from those of its operands by Leibniz' rule, so that an op costs about as much as its order
// squared, where nested jvp doubles the program with each order. An op that states nothing but a
// forward rule, as scan, cond and while do, is differentiated again and again by that rule; bodies of
// control flow do double.
#pragma once

#include "rlx/ir/builder.h"

namespace rlx {

// Outputs: the forward outputs, then for each order the derivatives of those that are
// differentiable (zeros where nothing arrives). Inputs "d<k>_<name>" are followed by "_1", "_2"..
// where that name is taken. The name gets the ending "_jet". Raises as jvp does, and "order-range"
// for an order below 1.
Graph jet(const Graph& g, const std::vector<std::string>& wrt, int order);

}  // namespace rlx
