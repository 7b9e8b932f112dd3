// Scans whose reverse sweep keeps few carries and computes the others again.
//
// The steps of a scan are cut, in their order of time, into segments of equal length, with a shorter one at the end. The
// forward run keeps the carries that enter each segment (scan_kept); the reverse sweep goes from segment to segment, and
// in each of them either stacks the carries that enter its steps and sweeps over them, or, where there may be only so
// many, sweeps with snapshots (scan_sweep): it goes forward to a step, leaving snapshots on the way, takes that step
// back, and begins again from the nearest snapshot, whose places are those of Griewank's and Walther's 'revolve', which
// computes least. Sums over steps are carried through all segments, so gradients are those of the plain scan bit for bit.
#pragma once

#include "rlx/ir/op.h"
#include "rlx/ops/control/control.h"

namespace rlx {

struct ScanSegments {
  int64_t each = 0;   // steps of a segment
  int64_t count = 0;  // such segments
  int64_t rest = 0;   // steps of the one behind them
  int64_t slots = 0;  // snapshots inside of a segment; 0: all of its carries
  int64_t evaluations =
      0;  // of the body, forward, in the whole run; the one inside each step's reverse is not counted
};
// For 0 < checkpoints < length.
ScanSegments even_segments(int64_t length, int64_t checkpoints);
// At most so many carries are kept at once, in and between segments, at the fewest evaluations.
ScanSegments binomial_segments(int64_t length, int64_t checkpoints);

// The reverse of `length` steps from a carry at hand with so many slots for further ones: the evaluations of the body
// it takes, and where the next snapshot goes: that many steps on, 1 to length - 1. For length > 1 and slots > 0.
int64_t sweep_evaluations(int64_t length, int64_t slots);
int64_t next_snapshot(int64_t length, int64_t slots);

// A scan that also gives the carries which enter its segments. Operands, body and first results as scan's; then for each
// carry those that enter the full segments, stacked, and where a rest is left for each carry the one that enters it.
struct ScanKeptAttrs {
  Body body = {};
  int64_t length = 0, num_carries = 0, num_xs = 0;
  bool reverse = false;
  int64_t each = 1;
  static constexpr auto fields() {
    return Fields<&ScanKeptAttrs::body, &ScanKeptAttrs::length, &ScanKeptAttrs::num_carries,
                  &ScanKeptAttrs::num_xs, &ScanKeptAttrs::reverse, &ScanKeptAttrs::each>();
  }
};

// The reverse sweep over the steps of a scan of `num_entering` carries. Operands: num_carries values that the sweep
// carries, the carries that enter the first step, stacked inputs of the scan, num_cotangents stacked values that the
// sweep reads, constants. `forward` takes carries, slices and constants and gives the next carries; `back` takes the
// swept values, the carries that enter a step, slices of all stacked values and the constants, and gives the next swept
// values and slices of stacked results. Results: the last swept values, the stacked ones. `slots` is how many carries
// of each kind are held at once besides those at hand.
struct ScanSweepAttrs {
  Body forward = {}, back = {};
  int64_t length = 0, num_carries = 0, num_entering = 0, num_xs = 0, num_cotangents = 0;
  bool reverse = false;  // of the scan; the sweep goes the other way
  int64_t slots = 1;
  static constexpr auto fields() {
    return Fields<&ScanSweepAttrs::forward, &ScanSweepAttrs::back, &ScanSweepAttrs::length,
                  &ScanSweepAttrs::num_carries, &ScanSweepAttrs::num_entering,
                  &ScanSweepAttrs::num_xs, &ScanSweepAttrs::num_cotangents,
                  &ScanSweepAttrs::reverse, &ScanSweepAttrs::slots>();
  }
};

namespace op {
extern const Op<ScanKeptAttrs> scan_kept;
extern const Op<ScanSweepAttrs> scan_sweep;
}  // namespace op

// ---- for the rules of scan

// Whether the scan keeps fewer carries than it has steps.
bool is_thinned(const ScanAttrs& s);
// Of a thinned scan. Raises Error(unsupported, "scan-symbolic") where the length is not known.
ScanSegments segments_of(const ScanAttrs& s);

// The sweep of a plain scan, but for the carries that enter its steps.
struct BackScan {
  ScanAttrs attrs;  // body: swept values, entering carries, xs, cotangents, constants
  Values carries, xs, cotangents, constants;
};
// Its results, for the scan `s` whose entering carries are what scan_kept gave.
Values sweep_in_segments(Builder& b, const ScanAttrs& s, const BackScan& back, Operands kept);

extern const Family kScanCheckpoints;

}  // namespace rlx
