#include "rlx/passes/passes.h"
#include "rlx/passes/simplify_rules.h"

namespace rlx {

const RuleSet& simplify_rules() {
  static const RuleSet rules = algebra_rules() + movement_rules() + reduction_rules();
  return rules;
}

constinit const Pass pass::simplify{
    "simplify", "Local identities to a fixed point.", [](Graph&& g, const PassOptions& o) {
      return rewrite(std::move(g), simplify_rules(), {.pass = "simplify", .fast_math = o.fast_math},
                     o.stats);
    }};

}  // namespace rlx
