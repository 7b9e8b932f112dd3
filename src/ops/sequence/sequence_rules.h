// What sequence.cc and recurrent.cc share.
#pragma once

#include "rlx/base/function_ref.h"
#include "rlx/ops/nn/nn_rules.h"

namespace rlx {

// One step of a recurrence: the carries, the slices of the stacked inputs and the constants ->
// the next carries, then the slices of the stacked results.
using RecurrenceStep =
    FunctionRef<std::vector<Expr>(const std::vector<Expr>& carries, const std::vector<Expr>& slices,
                                  const std::vector<Expr>& constants)>;
// A scan over the first axis of `stacked` -> the last carries, then the stacked results.
Values recurrence(Builder& b, std::string_view name, const Values& carries, const Values& stacked,
                  const Values& constants, const Dim& length, bool reverse, RecurrenceStep step);

// [B, S, *] <-> [S, B, *]
Value swap_leading_axes(Builder& b, Value x);
// x with an axis of size 1 before its axis `at` (negative: from the end; -1 appends).
Expr with_axis(Expr x, int64_t at);
// Raises "sequence-shape" unless the operand has this shape, as far as is known.
void require_shape(const InferArgs& a, size_t operand, const Shape& shape, std::string_view what);
void require_rank(const InferArgs& a, size_t operand, int64_t rank, std::string_view what);

}  // namespace rlx
