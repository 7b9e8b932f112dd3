// The rasteriser of Gaussian splats and its gradient (ops/splat/splat.h says what they compute), over
// dense operands. A block is one tile. A tile's list is copied into scratch column by column, and
// vectors lie along the list: a pixel sees a whole vector of splats at a time, front to back, and is
// done when too little light passes. For gradients the tiles' lists must lie one behind the other, so
// that an entry's gradient is summed in one block.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rlx/backend/cpu/kernels/isa.h"

namespace rlx {
enum class DType : uint8_t;  // rlx/ir/dtype.h, not included here: this header is compiled per
                             // instruction set
}

namespace rlx::cpu {

struct SplatProblem {
  DType dtype{};  // F32 or F64
  int64_t splats = 0, width = 0, height = 0, tile_size = 1, entries = 0;
  double alpha_cutoff = 0, transmittance_threshold = 0;
  double alpha_grad_clip = 0;  // 0: none

  [[gnu::always_inline]] int64_t tiles_x() const { return (width + tile_size - 1) / tile_size; }
  [[gnu::always_inline]] int64_t tiles() const {
    return tiles_x() * ((height + tile_size - 1) / tile_size);
  }
  // Of the tiles' lists.
  [[gnu::always_inline]] int64_t longest() const { return entries < splats ? entries : splats; }
};
struct SplatBuffers {
  const void *color_alpha, *pos_local, *inv_scale, *quat, *rays, *background;
  const int32_t *ids, *ranges;
};
struct SplatGradients {
  const void* d;
  void *d_entries, *d_rays, *d_background;
};

size_t splat_scratch_bytes(const SplatProblem& p);
size_t splat_backward_scratch_bytes(const SplatProblem& p);

// Run tiles [begin, end); false when a list names a splat or a place that does not exist, or (for
// gradients) lists overlap.
bool splat_raster(const SplatProblem& p, const SplatBuffers& buffers, void* out, int64_t begin,
                  int64_t end, void* scratch, Isa isa = host_isa());
bool splat_raster_backward(const SplatProblem& p, const SplatBuffers& buffers,
                           const SplatGradients& gradients, int64_t begin, int64_t end,
                           void* scratch, Isa isa = host_isa());

// The code of one instruction set, for numbers T and vectors of W bytes.
struct SplatFns {
  bool (*raster)(const SplatProblem&, const SplatBuffers&, void* out, int64_t begin, int64_t end,
                 void* scratch);
  bool (*backward)(const SplatProblem&, const SplatBuffers&, const SplatGradients&, int64_t begin,
                   int64_t end, void* scratch);
};
template <class T, int W>
SplatFns splat_fns();

// Columns of scratch, each as long as the longest list in whole vectors of any width.
inline constexpr int64_t kSplatLanes = 16;
inline constexpr int kSplatColumns = 15, kSplatBackwardColumns = kSplatColumns + 14 + 3;
[[gnu::always_inline]] inline int64_t splat_column(const SplatProblem& p) {
  return (p.longest() + kSplatLanes - 1) / kSplatLanes * kSplatLanes;
}

}  // namespace rlx::cpu
