// Which splats each tile of an image looks at: projection, culling, order and lists, in f64.
//
// The outline of a splat (where its alpha falls to the cutoff) is an ellipse on the screen, fitted
// through five projected points of the circle in which a cone from the camera touches the ellipsoid;
// a splat around the camera covers the whole screen. Visible splats are sorted by distance and
// entered into every tile that their ellipse meets, until the lists are full.
#pragma once

#include <cstddef>

#include "rlx/ops/splat/splat.h"

namespace rlx::splat {

template <class T>
struct BinInputs {
  const T *positions, *scales, *rotations, *opacities, *meta;
};
struct BinLists {  // as gaussian_splat_bin's results
  bool* visible;
  int32_t *ids, *ranges;
};

// Bytes of memory, aligned to 8, that bin() works in.
size_t bin_scratch_bytes(int64_t splats, const GaussianSplatRenderParams& params);
// For float and double.
template <class T>
void bin(int64_t splats, const GaussianSplatRenderParams& params, const BinInputs<T>& in,
         const BinLists& out, std::byte* scratch);

}  // namespace rlx::splat
