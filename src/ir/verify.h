// The verifier: a table of rules with ids. verify(g) raises the first violation; violations(g)
// lists them all.
#pragma once

#include "rlx/ir/graph.h"

namespace rlx {

struct Violation {
  std::string rule;  // stable id, e.g. "operand-order"
  std::string where;
  std::string message;
};

// Rule ids with one line each.
struct VerifyRule {
  std::string_view id;
  std::string_view text;
};
std::span<const VerifyRule> verify_rules();

// Passes nest deeper than the programs they are given: fusion puts a body (a region) into the innermost one,
// and a composite may be defined by control flow. `added` is how many levels more are allowed.
inline constexpr int kPassDepth = 64;
std::vector<Violation> violations(const Graph& g, int added = 0);
// "takes 2 operands, got 3", or empty when the op takes this many.
std::string wrong_arity(const OpDef& op, int count);
void verify(
    const Graph& g,
    std::string_view stage = {});  // Error(internal) after a pass, Error(user) when stage is empty
void verify_read(const Graph& g);  // what was read from outside: Error(data)

}  // namespace rlx
