// Resampling of dense tensors along axes, one after the other, cut into blocks that threads share out.
//
//   ResamplePlan plan(DType::F32, {n * c, h, w}, host_isa());
//   plan.add({.axis = 1, .to = 112, .taps = 2, .indices = .., .weights = ..});   // axes from front to back
//   plan.add({.axis = 2, ..});
//   plan.finish();
//   plan.run(x, y, begin, end, scratch);                   // blocks [begin, end) of plan.blocks()
//
// An axis with elements enough behind it is resampled a line of those at a time; of another one some rows are turned so
// that they stand beside each other in vectors. Between two axes lie some lines, in scratch. f16 and bf16 are summed in
// f32 and rounded once. Blocks and sums depend on the sizes and the Isa alone.
#pragma once

#include <cstddef>
#include <vector>

#include "rlx/backend/cpu/kernels/image/resample_tile.h"
#include "rlx/backend/cpu/kernels/isa.h"
#include "rlx/base/fields.h"
#include "rlx/ir/dtype.h"

namespace rlx::cpu {

class ResamplePlan {
 public:
  struct Axis {
    int64_t axis = 0, to = 1, taps = 1;
    std::vector<int64_t> indices;  // [to, taps]
    std::vector<float> weights;
  };

  ResamplePlan(DType dtype, Ints sizes, Isa isa);
  void add(Axis axis);  // behind those before
  void finish();

  int64_t blocks() const { return blocks_; }
  size_t scratch_bytes() const { return static_cast<size_t>(scratch_floats_) * 4; }
  int64_t taps() const { return taps_; }  // that are summed in all
  int64_t kept_bytes() const;             // of what add() was given
  void run(const void* x, void* y, int64_t begin, int64_t end, std::byte* scratch) const;

 private:
  // Results [begin, end) of a level of columns, and the places that they read.
  struct Part {
    int64_t begin, end, low, high;
  };
  struct Level {
    Axis axis;
    int64_t from, rest;        // of what it reads
    int64_t lead;              // between the axis before and this one; of the first: all in front
    int64_t out_row = 1;       // elements of the plan's result for each row of this level's
    bool turned = false;       // whether its rows stand beside each other
    int64_t rows_at_once = 1;  // for the level behind
    std::vector<Part> parts;   // where turned
    int64_t scratch = 0;
    ResampleFns fns = {};
    // Rows of a level: what `lines` calls so; where turned, those in front of the axis.
    int64_t rows() const { return turned ? lead : lead * axis.to; }
    int64_t in_row() const { return from * rest; }
    ResampleAxis at() const {
      return {from, axis.to, axis.taps, rest, axis.indices.data(), axis.weights.data()};
    }
  };

  void run_level(size_t level, const char* x, char* y, int64_t begin, int64_t end,
                 float* scratch) const;
  void set_parts(Level& level) const;

  DType dtype_;
  Isa isa_;
  Ints sizes_;
  std::vector<Level> levels_;
  int64_t rows_per_block_ = 1, blocks_ = 0, scratch_floats_ = 0, taps_ = 0;
};

}  // namespace rlx::cpu
