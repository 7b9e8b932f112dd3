// While loops, functions with derivatives of their own, and the scan family of the specification.
//
//   Values out = b.emit(op::while_loop.def,
//                       WhileAttrs{.cond = c, .body = f, .num_carries = 1, .max_iterations = 100},
//                       Values{start, step});
//   Values y = b.emit(op::custom_fn.def, CustomFnAttrs{.fwd = f, .vjp = df}, Values{x});
//
// Wrong bodies raise Error(user) with the codes "body-inputs", "body-outputs", "while-operands",
// "while-iterations", "scan-length", "scan-checkpoints", "scan-operands", "custom-fn".
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

// Operands: carries, constants. Both bodies take all of them; `cond` returns a bool of rank 0, `body`
// the next carries. Results: the carries when `cond` says false, or after max_iterations steps.
struct WhileAttrs {
  Body cond = {}, body = {};
  int64_t num_carries = 0;
  std::optional<int64_t> max_iterations = std::nullopt;
  static constexpr auto fields() {
    return Fields<&WhileAttrs::cond, &WhileAttrs::body, &WhileAttrs::num_carries,
                  &WhileAttrs::max_iterations>();
  }
};

// A function with stated derivatives. `fwd` takes the operands and gives the results. `vjp` takes
// the operands, the results and the cotangents of the results and gives a cotangent per operand;
// `jvp` takes the operands and a tangent per operand and gives a tangent per result. A body without
// outputs is none: then `fwd` is differentiated. Inputs are bound in order; a body may leave out the
// results where it names its inputs "primal_output", "d_output" or "tangent_0", ...
struct CustomFnAttrs {
  Body fwd = {}, vjp = {}, jvp = {};
  static constexpr auto fields() {
    return Fields<&CustomFnAttrs::fwd, &CustomFnAttrs::vjp, &CustomFnAttrs::jvp>();
  }
};

// A scan of one carry whose reverse sweep keeps `num_checkpoints` carries and computes the others
// again. Operands and body as scan's, with constants between the carry and the stacked inputs:
// init, num_bcast constants, stacked inputs.
struct ScanCheckpointedAttrs {
  Body body = {};
  int64_t length = 0, num_bcast = 0, num_checkpoints = 0;
  static constexpr auto fields() {
    return Fields<&ScanCheckpointedAttrs::body, &ScanCheckpointedAttrs::length,
                  &ScanCheckpointedAttrs::num_bcast, &ScanCheckpointedAttrs::num_checkpoints>();
  }
};

// The reverse sweep of a scan of one carry, as an op. Operands: init, trajectory (the carry after
// each step, or after each checkpointed step: [rows, *carry]), upstream ([*carry], or with
// save_trajectory [length, *carry]), stacked inputs. body_vjp takes the carry, a slice of each
// stacked input and "d_output" and returns the cotangents of the carry and of each slice. With
// 0 < num_checkpoints < length the trajectory holds the carries after the steps
// checkpoint_steps(length, num_checkpoints), and forward_body computes the others again.
struct ScanBackwardAttrs {
  Body body_vjp = {}, forward_body = {};
  int64_t length = 0;
  bool save_trajectory = false;
  int64_t num_checkpoints = 0, xs_index = 0;
  static constexpr auto fields() {
    return Fields<&ScanBackwardAttrs::body_vjp, &ScanBackwardAttrs::forward_body,
                  &ScanBackwardAttrs::length, &ScanBackwardAttrs::save_trajectory,
                  &ScanBackwardAttrs::num_checkpoints, &ScanBackwardAttrs::xs_index>();
  }
};

// The steps whose carries a sweep with K checkpoints keeps: min(ceil((k+1) length / K), length) - 1.
Ints checkpoint_steps(int64_t length, int64_t checkpoints);

namespace op {
extern const Op<WhileAttrs> while_loop;
extern const Op<CustomFnAttrs> custom_fn;
extern const Op<ScanCheckpointedAttrs> scan_checkpointed;
extern const Op<ScanBackwardAttrs> scan_backward;     // -> cotangent of init
extern const Op<ScanBackwardAttrs> scan_backward_xs;  // -> cotangents of the stacked input xs_index
}  // namespace op

extern const Family kLoops;

}  // namespace rlx
