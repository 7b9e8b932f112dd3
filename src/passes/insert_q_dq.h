// Calibrated scales, and the pass that writes them into a program.
//
//   CalibrationRecord record{{x, CalibrationEntry::per_tensor(0.05)},
//                            {w, CalibrationEntry::per_channel(1, {0.1, 0.2})}};
//   Graph g = insert_q_dq(f, record);        // behind x and w: quantize and dequantize; the pass fuse_quantised then
//                                            // makes integer products of what reads both
//   rlx opt FILE --passes "insert_q_dq(taps=x:0.05|w@1:0.1/0.2:0/3)"
//
// Derivatives go straight through both ops (docs/ir.md).
//
// A tap is a float value of the program itself, not of a body in it. All that reads it, outputs and updates too, reads it
// dequantised, in its own dtype; its name and label stay.
//
// Raises Error(user): "calibration-tap" for a tap that the program does not have, "calibration-dtype" for one that is no
// float, "calibration-scales" for lists that have neither one element nor one per channel, for scales that are not
// positive and finite and for zero points that are no i8, "axis-range"; "pass-option" for text that says no tap.
#pragma once

#include "rlx/passes/passes.h"

namespace rlx {

// One scale and zero point for all, or for each index along an axis (lists of one element hold for all of them).
struct CalibrationEntry {
  std::optional<int64_t> axis;
  std::vector<double> scales = {1};
  Ints zero_points = {0};
  static CalibrationEntry per_tensor(double scale) { return {{}, {scale}, {0}}; }
  static CalibrationEntry per_channel(int64_t axis, std::vector<double> scales) {
    Ints zeros(scales.size(), 0);
    return {axis, std::move(scales), std::move(zeros)};
  }
  bool operator==(const CalibrationEntry&) const = default;
};
using CalibrationRecord = std::map<Value, CalibrationEntry>;

Graph insert_q_dq(const Graph& g, const CalibrationRecord& record);
// Only what these nodes read; outputs and updates read the taps as they are.
Graph insert_q_dq(const Graph& g, const CalibrationRecord& record,
                  FunctionRef<bool(int32_t node)> reads_dequantised);

}  // namespace rlx
