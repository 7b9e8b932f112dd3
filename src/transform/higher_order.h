// Derivatives of any order, by taking gradients again and again.
//
//   Graph third = nth_order_grad(g, "x", 3);                  // d3 f / dx3 of a scalar x
//   Graph curve = directional_nth_grad(g, "x", {"u", "v"});   // u^T H v; "u", "v" are inputs
//
// Output 0 of the graph is the function. Results have one output and keep all leaves; a derivative
// that vanishes is a zero.
#pragma once

#include "rlx/ir/builder.h"

namespace rlx {

// The order-th derivative by a scalar leaf; named <name>_d<order>. Raises "wrt-scalar" for another
// shape (use directions), "order-range" for a negative order.
Graph nth_order_grad(const Graph& g, const std::string& wrt, int order);

// The derivative along each direction in turn: level l contracts the gradient with an input of the
// leaf's type, named directions[l] ("dir_<l>" where that is empty). A scalar; named
// <name>_dir_d<order>.
Graph directional_nth_grad(const Graph& g, const std::string& wrt,
                           const std::vector<std::string>& directions);

}  // namespace rlx
