// Random typed graphs with values for their leaves: every op of the sample table, mixed dtypes,
// generated and sampled bodies of control flow, broadcasting, chains of views, sizes 0 and 1 and
// rank 0, several outputs (leaves and views among them) and parameter updates (swaps among them).
//
//   RandomProgram p = random_program(7);
//   evaluate(p.graph, p.leaves);
//
// A step takes a row of tests/samples, so an op with a row takes part by itself. Sizes of the
// row are renamed by a map that belongs to the graph (2 becomes 17, say) where the op allows it.
// Operands come from values that are there already, through views, casts, or from new leaves of the
// row's kind. The generator knows every value: it keeps a node only if its results are finite and
// tame and do not change their nature under rounding noise (error_bound.h), so comparisons and
// casts never hang on a last bit. A few graphs in a hundred may hold NaN and infinity.
#pragma once

#include <map>

#include "rlx/ops/evaluate.h"

namespace rlx::testing {

struct RandomProgram {
  Graph graph;
  NamedTensors leaves;
  bool large = false;  // made of matrices: by random_large_program or random_square_program
};

RandomProgram random_program(uint64_t seed);

// Few nodes on large operands: matrices whose sides are equal or nearly so, from 60 to 300, beyond one
// tile and block of every kernel; values per row and per column, with and without kept axes, read
// both ways; products, views, and some steps as above.
RandomProgram random_large_program(uint64_t seed);
// The same with sides from 2 to 9: many of them are quickly run, and which values read which does not
// depend on the size.
RandomProgram random_square_program(uint64_t seed);

// Few nodes of f64 on small operands, of ops that have derivatives of second order; more control flow, no updates.
RandomProgram random_smooth_program(uint64_t seed);

// How often each op occurs, bodies included.
using OpCounts = std::map<std::string, int>;
void count_ops(const Graph& g, OpCounts& counts);

// The program as text with its leaves' values, to be put into a test.
std::string to_string(const RandomProgram& p);

// A program that `fails` made smaller while it still does: fewer outputs and updates, nodes
// replaced by leaves with their values.
RandomProgram shrink(RandomProgram p, FunctionRef<bool(const RandomProgram&)> fails);

}  // namespace rlx::testing
