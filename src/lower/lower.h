// MIR to LIR: one walk that turns view ops into views, asks the target for a kernel per remaining
// node, places outputs and parameter updates, and plans the arena.
#pragma once

#include "rlx/lower/target.h"

namespace rlx {

// Inputs, by index, that the program may write over (CompileOptions::donate).
using Donated = std::vector<size_t>;

// The graph must be static (symbols bound), legal for the target and fused.
Program lower(const Graph& g, Target& target, const Donated& donated = {});
// A body of control flow: it owns no memory that outlives a run.
Program lower_body(const Graph& g, Target& target);
// The same at these sizes (outline.h).
class Outline;
Program lower(const Outline& outline, const DimBinding& sizes, Target& target, bool is_body,
              const Donated& donated = {});

// The same with its code made: what can be run. `seconds`: what making the code took.
Program make_program(const Graph& g, Target& target, double* seconds = nullptr,
                     const Donated& donated = {});

// Notes whose kernels they are and what its code comes to.
void describe_target(Program& p, const Target& target);

// Whether lowering sees to this op itself, so that no target needs a kernel for it: leaves, control flow, views and
// copies.
bool is_lowered(const OpDef& op);

// Whether step s touches operand i (inputs, then results) only at the rows it works on: all of a
// buffer, row by row.
bool touches_own_rows(const Program& p, const Step& s, size_t i);

// Whether the step may write result `out` into the memory of operand `in`: its kernel allows it, or control flow is done
// with that operand by then.
bool may_share(const Step& s, size_t in, size_t out);

// Proves that running chains tile by tile, blocks at once and buffers in shared memory give what one
// step after the other gives; raises Error(internal) where it does not. Part of every lowering.
void verify(const Program& p);

// Live ranges, in-place reuse, outputs in the memory of donated inputs, and arena offsets; fills Buffer::first, last,
// shares, offset and Program::arena_bytes.
void plan_memory(Program& p);

}  // namespace rlx
