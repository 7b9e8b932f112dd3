// Whole matrices of derivatives: vmap of forward or reverse mode over unit vectors.
//
//   Graph j = jacrev(g, {"w"});       // y [2, 3], w [4]: an output [2, 3, 4]
//   Graph h = hessian(loss, {"x"});   // x [4]: an output [4, 4]
//
// Outputs: for each differentiable output of g, for each leaf of `wrt`, the derivatives in the shape
// of the output followed by the leaf's (zeros where none depends on the other). All leaves and updates
// of g stay. jacfwd costs a forward run per element of the leaves, jacrev one per element of the
// outputs; both run at once as a batch. Raises as jvp and grad do.
#pragma once

#include "rlx/ir/builder.h"

namespace rlx {

Graph jacfwd(const Graph& g, const std::vector<std::string>& wrt);  // ending "_jacfwd"
Graph jacrev(const Graph& g, const std::vector<std::string>& wrt);  // ending "_jacrev"

// The second derivatives of output 0, a real scalar, forward over reverse: for each leaf, for each
// leaf. Ending "_hessian".
Graph hessian(const Graph& g, const std::vector<std::string>& wrt);

}  // namespace rlx
