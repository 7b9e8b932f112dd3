// f32 convolutions with channels last, cut into tiles that threads share out. Rows are the pixels of the result, columns
// its channels.
//
//   LastConvProblem p{.windows = .., .images = 1, .groups = 1, .in = 64, .out = 64, ..};
//   const LastConvPlan plan(p, host_isa());
//   plan.pack(w, packed);                                       // weights that do not change, once
//   for (int64_t t = 0; t < plan.tiles(); ++t) plan.run(t, x, packed, true, y, scratch);
//
// The tiles and the order of every sum depend on the problem and the Isa only. A sum is formed in blocks of at most
// kPlainTerms terms (compensated.h).
#pragma once

#include <array>
#include <cstddef>

#include "rlx/backend/cpu/kernels/image/channels_last_tile.h"
#include "rlx/backend/cpu/kernels/isa.h"

namespace rlx::cpu {

struct LastConvProblem {
  LastWindows windows{};
  int64_t images = 1, groups = 1, in = 1, out = 1;  // channels per group
  std::array<int64_t, 3> w_axis{};                  // strides of the weights, in elements
  int64_t w_in = 0, w_out = 0;

  int64_t rows() const { return images * windows.y[0] * windows.y[1] * windows.y[2]; }
  int64_t taps() const { return windows.kernel[0] * windows.kernel[1] * windows.kernel[2]; }
  int64_t depth() const { return taps() * in; }
};

class LastConvPlan {
 public:
  LastConvPlan(const LastConvProblem& p, Isa isa);

  int64_t tiles() const { return p_.groups * tiles_m_ * tiles_n_; }
  int64_t rows_per_tile() const { return tile_m_; }
  // Whether a tile is all of its rows.
  bool full_rows() const { return p_.groups * tiles_n_ == 1; }
  const LastConvProblem& problem() const { return p_; }
  size_t scratch_bytes() const { return scratch_bytes_; }
  // `w` is what pack() made when is_packed.
  void run(int64_t tile, const float* x, const float* w, bool is_packed, float* y,
           std::byte* scratch) const;

  size_t packed_bytes() const { return static_cast<size_t>(p_.groups * group_floats()) * 4; }
  void pack(const float* w, float* packed) const;
  // The same in blocks.
  int64_t pack_blocks() const { return p_.groups * panels(); }
  void pack_block(int64_t block, const float* w, float* packed) const;

 private:
  int64_t group_floats() const;  // of packed weights
  int64_t panels() const { return (p_.out + fns_.panel - 1) / fns_.panel; }

  LastConvProblem p_;
  LastConvFns fns_;
  LastConvShape shape_;
  int64_t tile_m_ = 1, tile_n_ = 1, tiles_m_ = 0, tiles_n_ = 0;
  int64_t scratch_at_[4] = {};
  size_t scratch_bytes_ = 0;
};

// Of depthwise convolutions (one channel in and out per group) and pools.
LastWindowFns last_window_fns(Isa isa);

}  // namespace rlx::cpu
