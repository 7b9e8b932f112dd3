// The tables of angles of rope that is written out, with a column for each element of a pair: the two columns must be the
// same, by how the table is made, and one of them is what rope reads.
#pragma once

#include "rlx/passes/recognise_rules.h"

namespace rlx {

bool is_concat_along_last(const Node& n, size_t parts);

// The two that lie beside each other as pairs [.., n, 2]; columns: they are [.., n, 1] themselves.
struct Neighbours {
  Value first, second;
  bool columns = false;
};
std::optional<Neighbours> neighbours(const Graph& g, const Node& n);

// Whether the columns of each pair of v's last axis are the same, by how v is made. Pairs are halves or, interleaved,
// neighbours.
bool pairs_are_equal(const Graph& g, Value v, bool interleaved);
// One column of each pair of a table whose pairs are equal: [.., pairs]. It is made as the table is, of half as much.
Value column_of_pairs(Builder& b, Value v, bool interleaved);

}  // namespace rlx
