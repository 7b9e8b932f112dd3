// Linear maps as programs of their own.
//
//   Linearized l = linearize(g, {"x"});     // l.value: [y.., residuals..]; l.tangent: residuals and
//                                           // "tangent_x" -> the tangents of y
//   Graph t = linear_transpose(g, {"x"});   // g linear in x: "d_output" -> the cotangent of x
#pragma once

#include "rlx/ir/builder.h"

namespace rlx {

// A function at a point, and its derivative there, which is computed once and applied to many
// tangents.
struct Linearized {
  // The leaves and updates of the function; outputs: its outputs, then what the tangent reads.
  Graph value;
  // Inputs "residual_<i>", of the types of those outputs, and "tangent_<name>" for each leaf; the
  // tangents of the differentiable outputs, linear in those of the leaves.
  Graph tangent;
  size_t residuals = 0;
};

// Endings "_value" and "_tangent". Raises as jvp does.
Linearized linearize(const Graph& g, const std::vector<std::string>& wrt);

// The transpose of a function that is linear in the leaves `wrt`: those are gone from its
// signature; inputs are the cotangents of the differentiable outputs, named as vjp names them,
// outputs the cotangents of the leaves (zeros where none arrives). A constant that the function adds is
// no part of its transpose. Ending "_transpose". Raises as vjp does, and "not-linear", with the op,
// when the derivative depends on one of the leaves.
Graph linear_transpose(const Graph& g, const std::vector<std::string>& wrt);

}  // namespace rlx
