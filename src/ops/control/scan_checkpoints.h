// Scans whose reverse sweep keeps few carries and computes the others again.
//
// Evenly spaced: the steps are cut, in their order of time, into segments of equal length, with a shorter one at the end.
// The forward run keeps the carries that enter each segment (scan_kept); the reverse sweep goes from segment to segment,
// and in each of them stacks the carries that enter its steps and sweeps over them.
//
// Binomial: the forward run leaves snapshots, carries that enter certain steps (scan_snapshots). The sweep (scan_sweep)
// goes from the last one forward to the last step, leaving further snapshots in the places of those that are done with,
// takes that step back, and begins again from the nearest one. The steps are those of Griewank's and Walther's
// 'revolve', which computes least.
//
// Sums over steps are carried all the way, so gradients are those of the plain scan bit for bit.
#pragma once

#include "rlx/ir/op.h"
#include "rlx/ops/control/control.h"

namespace rlx {

struct ScanSegments {
  Dim each = 0;       // steps of a segment
  int64_t count = 0;  // such segments
  Dim rest = 0;       // steps of the one behind them
  bool has_rest = false;
};
// For 0 < checkpoints < length. Where the length is a symbol it may be less when it is bound, and `each` may be 0, `rest` too.
ScanSegments even_segments(const Dim& length, int64_t checkpoints);

// How often the body runs forward in a run with the binomial schedule and so many carries kept, the first one included;
// what each step's reverse computes for itself is not counted. For 1 < checkpoints < length.
int64_t binomial_evaluations(int64_t length, int64_t checkpoints);
// The steps that the snapshots of the forward run enter, the first one included: the places that the sweep would choose.
Ints snapshot_times(int64_t length, int64_t slots);

// The reverse of `length` steps from a carry at hand with so many slots for further ones: the evaluations of the body
// it takes, and where the next snapshot goes: that many steps on, 1 to length - 1. For length > 1 and slots > 0.
int64_t sweep_evaluations(int64_t length, int64_t slots);
int64_t next_snapshot(int64_t length, int64_t slots);

// A scan that also gives the carries which enter its segments. Operands, body and first results as scan's; then for each
// carry those that enter the full segments, stacked, and where a rest is left for each carry the one that enters it.
// With a count there are so many full segments, and always a rest, which may have no step.
struct ScanKeptAttrs {
  Body body = {};
  Dim length = 0;
  int64_t num_carries = 0, num_xs = 0;
  bool reverse = false;
  Dim each = 1;
  int64_t count = 0;
  static constexpr auto fields() {
    return Fields<&ScanKeptAttrs::body, &ScanKeptAttrs::length, &ScanKeptAttrs::num_carries,
                  &ScanKeptAttrs::num_xs, &ScanKeptAttrs::reverse, &ScanKeptAttrs::each,
                  &ScanKeptAttrs::count>();
  }
};

// A scan that also gives the carries which enter the steps `times`: 0, and further ones in ascending order, counted as
// the steps run. Operands, body and first results as scan's; then for each carry those that enter these steps, stacked.
struct ScanSnapshotsAttrs {
  Body body = {};
  int64_t length = 0, num_carries = 0, num_xs = 0;
  bool reverse = false;
  Ints times = {0};
  static constexpr auto fields() {
    return Fields<&ScanSnapshotsAttrs::body, &ScanSnapshotsAttrs::length,
                  &ScanSnapshotsAttrs::num_carries, &ScanSnapshotsAttrs::num_xs,
                  &ScanSnapshotsAttrs::reverse, &ScanSnapshotsAttrs::times>();
  }
};

// The reverse sweep over the steps of a scan of `num_entering` carries. Operands: num_carries values that the sweep
// carries, the carries that enter the steps `times` (as in scan_snapshots), stacked, stacked inputs of the scan,
// num_cotangents stacked values that the sweep reads, constants. `forward` takes carries, slices and constants and gives
// the next carries; `back` takes the swept values, the carries that enter a step, slices of all stacked values and the
// constants, and gives the next swept values and slices of stacked results. Results: the last swept values, the stacked
// ones. `slots` is how many carries of each kind are held at once besides those that enter the first step and those at
// hand.
struct ScanSweepAttrs {
  Body forward = {}, back = {};
  int64_t length = 0, num_carries = 0, num_entering = 0, num_xs = 0, num_cotangents = 0;
  bool reverse = false;  // of the scan; the sweep goes the other way
  int64_t slots = 1;
  Ints times = {0};
  static constexpr auto fields() {
    return Fields<&ScanSweepAttrs::forward, &ScanSweepAttrs::back, &ScanSweepAttrs::length,
                  &ScanSweepAttrs::num_carries, &ScanSweepAttrs::num_entering,
                  &ScanSweepAttrs::num_xs, &ScanSweepAttrs::num_cotangents,
                  &ScanSweepAttrs::reverse, &ScanSweepAttrs::slots, &ScanSweepAttrs::times>();
  }
};

namespace op {
extern const Op<ScanKeptAttrs> scan_kept;
extern const Op<ScanSnapshotsAttrs> scan_snapshots;
extern const Op<ScanSweepAttrs> scan_sweep;
}  // namespace op

// ---- for the rules of scan

// Whether the scan keeps fewer carries than it has steps.
bool is_thinned(const ScanAttrs& s);
// A thinned scan with what its reverse mode reads behind its results. Raises Error(unsupported, "scan-symbolic") where the
// schedule is binomial and the length not known.
Values scan_that_keeps(Builder& b, const ScanAttrs& s, Operands in);

// The sweep of a plain scan, but for the carries that enter its steps.
struct BackScan {
  ScanAttrs attrs;  // body: swept values, entering carries, xs, cotangents, constants
  Values carries, xs, cotangents, constants;
};
// Its results, for the scan `s` of which scan_that_keeps gave `kept` behind the results.
Values sweep_over_kept(Builder& b, const ScanAttrs& s, const BackScan& back, Operands kept);

extern const Family kScanCheckpoints;

}  // namespace rlx
