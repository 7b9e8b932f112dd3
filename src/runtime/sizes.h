// What the symbols of a program stand for, from the tensors that are given to it.
#pragma once

#include <span>

#include "rlx/ir/shape.h"

namespace rlx {

struct SizedLeaf {
  std::string name;   // as messages say it: input "x"
  const Shape* dims;  // as the program has them
  const Ints* sizes;  // as they are given; of the same rank
};

// Whether a tensor of these sizes may stand for it: the same rank, and the sizes that are numbers.
bool may_be(const Shape& dims, const Ints& sizes);

// Symbols that follow from the leaves: each dim is a number, or becomes one when the others are known. Those of `known` are
// added first. Raises Error(user, "dim-guard") where two leaves are at odds, naming both, with the values they ask for.
DimBinding infer_sizes(std::span<const SizedLeaf> leaves, const DimBinding& known = {});

}  // namespace rlx
