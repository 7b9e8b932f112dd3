// The steps of nested_transforms.h: what each makes of a program, and what it is compared with.
#pragma once

#include <optional>

#include "differences.h"
#include "nested_transforms.h"

namespace rlx::testing {

// A program whose outputs are all of f64, with values for its leaves; after a step, what was wrong with it.
struct Nested {
  Graph graph;
  NamedTensors leaves;
  std::string fault = {};
};

// The program after a step, which was compared with the one before; nothing where there is nothing to differentiate by,
// or too much.
std::optional<Nested> step_of(const NestedStep& s, const Nested& before, DifferenceCounts& counts);

// A few outputs of f64 with few elements, of all there are; false when there is none.
bool keep_some_outputs(Nested& n, uint64_t seed);

}  // namespace rlx::testing
