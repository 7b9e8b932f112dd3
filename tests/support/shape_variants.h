// Shapes made from the sample table: a row says how an op is called, its variants call it with other
// sizes.
//
//   conv T[2, 3, 5] T[4, 3, 3]    ->  T[0, 3, 5] T[4, 3, 3]     a size everywhere it occurs: 0, 1, larger
//                                     T[2, 3, 5] T[4, 3, 5]     at some of the places it occurs
//   add T[2, 3] T[3]              ->  T[] T[]                   ranks: none, fewer, more
//                                     T[2, 2, 3] T[3]
//                                     T[2, 3] T[1]              broadcast
//   reshape {shape=[3, 2]} T[2, 3] -> {shape=[5, 2]} T[2, 5]    attributes that hold sizes follow
//
// Which of them are legal is asked of the op's own inference (and, for operands that are indices,
// of a run); what it refuses is counted. Whatever else it raises comes out of here. The same rows
// give the same variants, on every machine.
#pragma once

#include "op_checks.h"

namespace rlx::testing {

// All rows of an op with the same attributes, and shapes made from them.
struct Combination {
  std::string op, attrs;
  std::vector<const Sample*> rows;
  std::vector<Sample> variants;  // no two have the same operand shapes, none has a row's
  int64_t refused = 0;           // candidates that were not legal
};

// Enough variants that rows and variants make `wanted` shapes, or as many as there are: empty ones
// first, then by turns other ranks, broadcast ones, other sizes.
Combination shape_variants(const std::vector<const Sample*>& rows, size_t wanted);

// Shapes of each combination of an op's attributes (and so at least as many of each op).
constexpr size_t kShapes = 10;

// The differentiable rows of the table, combination by combination.
std::vector<Combination> combinations(size_t wanted);

// The dtype at which derivatives are checked: f64 where the op takes it, else f32 or c64; none where
// the row has nothing to differentiate.
std::optional<DType> derivative_dtype(const Sample& s);

// Runs `test` on the variants at every dtype at which they have derivatives to check.
template <class Test>
void for_each_variant(const std::vector<Combination>& all, Test&& test) {
  for (const Combination& combination : all)
    for_each_case(combination.variants, {DType::F64, DType::F32, DType::C64}, [&](const Case& c) {
      if (has_derivatives(c)) test(c);
    });
}

// Shapes of 2^40 rows without elements and of no rows of 2^40 elements, wherever the op takes them: at most
// `most`. Their operands have no elements, or as few as the row's.
std::vector<Sample> huge_empty_variants(const Sample& row, DType d, size_t most);

// "T[2, 3] i64[3]:index<4"
std::string operands_text(const Sample& s);
std::vector<Ints> shapes_of(const Sample& s);

}  // namespace rlx::testing
