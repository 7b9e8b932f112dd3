// Fake quantisation twice with one scale is once.
//
//   int64_t n = quant_propagate::run(g);     // of n nodes the readers read what the node read
//
// A fake_quantize of fixed scale goes where what it reads was made by another one of equal attributes and the same state
// (or by one whose running scale is that state), and then was only moved, clipped by relu or pooled for its maximum. With
// scales per channel only relu and pools over other axes may lie between. Results stay as they are, bit for bit; and so do
// gradients, for it is done where the stand-in derivative is 1 in range (identity, clipped_identity).
#pragma once

#include "rlx/passes/passes.h"

namespace rlx::quant_propagate {

// Returns how many nodes went; others that nobody reads now are left to dead_code.
int64_t run(Graph& g);

}  // namespace rlx::quant_propagate
