// Control flow: ops with body graphs. Bodies are closed: what they need comes in as operands.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

// Operands: carries, stacked inputs ([length, *] each), constants. Body inputs: carries, one slice
// of each stacked input, constants. Body outputs: next carries, then one slice of each stacked
// output. Results: final carries, stacked outputs ([length, *]). With reverse the steps run from
// the last slice to the first (slices keep their places). With 0 < checkpoints < length, reverse mode
// keeps so many carries between segments of steps, and those of one segment at a time; with binomial so
// many in all (scan_checkpoints.h). Values and gradients do not depend on it.
struct ScanAttrs {
  Body body = {};
  Dim length = 0;
  int64_t num_carries = 0, num_xs = 0;
  bool reverse = false;
  int64_t checkpoints = 0;
  bool binomial = false;
  static constexpr auto fields() {
    return Fields<&ScanAttrs::body, &ScanAttrs::length, &ScanAttrs::num_carries, &ScanAttrs::num_xs,
                  &ScanAttrs::reverse, &ScanAttrs::checkpoints, &ScanAttrs::binomial>();
  }
};
// Operands: predicate (bool, rank 0), arguments of both bodies. Only the chosen body runs. Under
// vmap with a batched predicate both bodies run for every element and the values are selected: an
// index out of range in the body that an element did not choose fails the run.
struct CondAttrs {
  Body then_body = {}, else_body = {};
  static constexpr auto fields() { return Fields<&CondAttrs::then_body, &CondAttrs::else_body>(); }
};

namespace op {
extern const Op<ScanAttrs> scan;
extern const Op<CondAttrs> cond;
}  // namespace op

extern const Family kControl;

}  // namespace rlx
