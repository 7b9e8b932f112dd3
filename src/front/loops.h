// Loops and choices made of scan and cond.
//
//   TracedTensors x = fori_loop(t, 0, 10, {x0}, [&](Tracer&, const TracedTensor& i, const TracedTensors& c) {
//     return TracedTensors{c[0] * 0.5 + i.to(DType::F32)};
//   });
//   TracedTensors y = switch_case(t, which, {f, g, h});
//   TracedTensors s = associative_scan({a, u}, 0, [](const TracedTensors& p, const TracedTensors& q) {
//     return TracedTensors{p[0] * q[0], q[0] * p[1] + q[1]};      // h[i] = a[i] h[i-1] + u[i]
//   });
#pragma once

#include <functional>

#include "rlx/front/trace.h"

namespace rlx {

// carries = body(t, i, carries) for i = lower, .., upper - 1; i is an i64 of rank 0. No step at all when
// upper is not above lower.
TracedTensors fori_loop(
    Tracer& t, int64_t lower, int64_t upper, const TracedTensors& carries,
    FunctionRef<TracedTensors(Tracer&, const TracedTensor&, const TracedTensors&)> body);

// branches[index](t), of which only that one runs; an index out of range takes the nearest branch. The index is
// an integer of rank 0; all branches give tensors of the same types. Raises "switch-branches", "switch-index".
TracedTensors switch_case(Tracer& t, const TracedTensor& index,
                          const std::vector<std::function<TracedTensors(Tracer&)>>& branches);

// All running results of an associative function along an axis: x0, f(x0, x1), f(f(x0, x1), x2), .. The
// function gets any number of elements along the axis and combines them pairwise; about 2 n combinations in
// 2 log2(n) rounds. reverse: the running results begin at the end. Raises "scan-length" for arrays of different
// length or an axis whose size is a symbol, "scan-result" when the function changes types.
TracedTensors associative_scan(
    const TracedTensors& elements, int64_t axis,
    FunctionRef<TracedTensors(const TracedTensors&, const TracedTensors&)> combine,
    bool reverse = false);

}  // namespace rlx
