// A graph on the CPU against the reference.
//
//   check_on_cpu(c.graph, c.operands, "softmax T[2, 3]");
//   if (auto g = gradient_of_squares(c)) check_on_cpu(*g, c.operands, "its gradient");
#pragma once

#include <gtest/gtest.h>

#include "samples.h"

namespace rlx::testing {

// Within a few units in the last place of the dtype, relative to the largest magnitude around: sums
// of a few terms, or a chain of rounded steps; or within what rounding can do to this very graph
// (error_bound.h), where that is more. Integers are equal. Runs on poisoned memory.
void check_on_cpu(const Graph& g, const Tensors& in, const std::string& what);

// The sum of squares of all real results and its gradient by every float operand; nothing where
// there are none of either.
std::optional<Graph> gradient_of_squares(const Case& c);

}  // namespace rlx::testing
