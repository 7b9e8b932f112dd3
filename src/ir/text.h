// Text form of graphs: every field is printed, so parse(print(g)) == g.
//
//   graph @mlp {
//     %0 = input() {name="x", dtype=f32, shape=[4, 8]} : [4, 8] f32
//     %1 = tanh(%0) : [4, 8] f32 @ "layer0" from "grad"
//     return %1
//     update "w" <- %5
//   }
//
// docs/text.md has the grammar. Attributes equal to their defaults are left out. Constants up to 1 KiB are printed in full;
// larger ones are named by hash and kept in a TextStore.
//
// A text may begin with the version of the language, `version 2`; without one it is version 1. print()
// names the lowest version in which the text has its meaning. What changed, and old texts keep:
//   2  fft, fftn, rfft, irfft, stft, istft: `norm` has NumPy's names; before, backward was none,
//      forward was backward, and where no norm was named fft, fftn, rfft and irfft had none.
//      round has derivative 0; before, it was round_straight_through.
#pragma once

#include "rlx/ir/graph.h"
#include "rlx/ir/op.h"

namespace rlx {

std::string print(const Graph& g, TextStore* store = nullptr);
// Raises Error(data, "parse") with line:column. The result is verified.
Graph parse(std::string_view text, const OpTable& table, const TextStore* store = nullptr);

}  // namespace rlx
