#include "rlx/backend/cpu/kernels/image/channels_last.h"

#include <algorithm>

#include "rlx/backend/cpu/kernels/compensated.h"
#include "rlx/backend/cpu/kernels/matmul/matmul.h"
#include "rlx/base/checked.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kLineBytes = 64;

// Blocks of the sum: whole lines of taps, whole taps, or parts of one, at most kPlainTerms terms and all about as long.
void cut_sum(const LastConvProblem& p, LastConvShape& s) {
  s.taps = 1;
  s.channels = std::max<int64_t>(p.in, 1);
  if (p.in > kPlainTerms) {
    s.channels = ceil_div(p.in, ceil_div(p.in, kPlainTerms));
    return;
  }
  const int64_t line = p.windows.kernel[2];
  const int64_t step = line * s.channels <= kPlainTerms ? line : 1;
  const int64_t steps = p.taps() / step, most = kPlainTerms / (step * s.channels);
  s.taps = step * ceil_div(steps, ceil_div(steps, most));
}

}  // namespace

LastConvPlan::LastConvPlan(const LastConvProblem& p, Isa isa)
    : p_(p), fns_(for_isa(isa, [](auto width) { return last_conv_fns<width>(); })) {
  shape_ = {.at = p.windows,
            .in = p.in,
            .out = p.out,
            .y_row = p.groups * p.out,
            .taps = 1,
            .channels = 1,
            .w_axis = {p.w_axis[0], p.w_axis[1], p.w_axis[2]},
            .w_in = p.w_in,
            .w_out = p.w_out};
  cut_sum(p, shape_);
  const TileShape tile = matmul_tile_shape(p.rows(), p.out, p.depth(), p.groups, true);
  tile_m_ = tile.m, tile_n_ = tile.n;
  tiles_m_ = ceil_div(p.rows(), tile_m_), tiles_n_ = ceil_div(p.out, tile_n_);
  int64_t bytes[4] = {}, at = 0;
  fns_.scratch(shape_, tile_m_, tile_n_, bytes);
  for (size_t i = 0; i < 4; ++i) {
    scratch_at_[i] = at;
    at += align_up(bytes[i], kLineBytes);
  }
  scratch_bytes_ = static_cast<size_t>(at);
}

int64_t LastConvPlan::group_floats() const {
  return align_up(align_up(p_.out, fns_.panel) * p_.depth(), kLineBytes / 4);
}

void LastConvPlan::pack(const float* w, float* packed) const {
  for (int64_t block = 0; block < pack_blocks(); ++block) pack_block(block, w, packed);
}

void LastConvPlan::pack_block(int64_t block, const float* w, float* packed) const {
  const int64_t group = block / panels();
  fns_.pack(shape_, w + group * p_.out * p_.w_out, packed + group * group_floats(),
            block % panels());
}

void LastConvPlan::run(int64_t tile, const float* x, const float* w, bool is_packed, float* y,
                       std::byte* scratch) const {
  const int64_t column = tile % tiles_n_ * tile_n_, row = tile / tiles_n_ % tiles_m_ * tile_m_,
                group = tile / tiles_n_ / tiles_m_;
  LastConvTile t{.x = x + group * p_.in,
                 .packed = is_packed ? w + group * group_floats() : nullptr,
                 .w = w + (group * p_.out + column) * p_.w_out,
                 .y = y + group * p_.out + column,
                 .begin = row,
                 .end = std::min(row + tile_m_, p_.rows()),
                 .column = column,
                 .columns = std::min(tile_n_, p_.out - column),
                 .scratch = {}};
  for (size_t i = 0; i < 4; ++i) t.scratch[i] = scratch + scratch_at_[i];
  fns_.run(shape_, t);
}

LastWindowFns last_window_fns(Isa isa) {
  return for_isa(isa, [](auto width) { return last_window_fns<width>(); });
}

}  // namespace rlx::cpu
