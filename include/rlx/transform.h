// Programs from programs.
//
//   Graph g2 = value_and_grad(loss, {"w", "b"});   // outputs: loss, dw, db
//   Graph g3 = jvp(f, {"x"});                      // input "tangent_x"; outputs: y, its derivative
//   Graph g4 = vmap(f, {{"x", 0}}, 32);            // f for 32 samples at once
//   Graph g5 = hvp(loss, {"w"});                   // Hessian times vector
//   Graph g6 = jacrev(f, {"x"});                   // a whole Jacobian; jacfwd, hessian likewise
//   Graph g7 = jet(f, {"x"}, 5);                   // Taylor mode: five derivatives along a curve
//   Linearized l = linearize(f, {"x"});            // f at a point, and its derivative there
//   Graph g8 = linear_transpose(f, {"x"});         // of a linear f
//   Graph g9 = mixed_precision(f, PrecisionPolicy::mixed(Precision::BF16));  // products in bf16
//
// Transforms take and return plain graphs, so they nest in any order. Conventions are PyTorch's:
// relu'(0) = 0, ties of max share, complex gradients are those that a descent step subtracts.
#pragma once

#include "rlx/transform/transform.h"
