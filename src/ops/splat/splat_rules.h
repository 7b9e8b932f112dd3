// The arithmetic of the splat ops as graphs: what comes before and after the lists, and the meaning
// of the rasteriser and of its gradient.
#pragma once

#include "rlx/ops/expr.h"
#include "rlx/ops/splat/splat.h"
#include "rlx/ops/splat/splat_math.h"

namespace rlx::splat {

using Vector = Vec3<Expr>;
using Rotation = Quat<Expr>;

inline constexpr double kGamma = 2.2;
inline constexpr double kEmptyTile = 4294967296.0;  // where a prepared buffer says a list begins
inline constexpr int64_t kEntryGradients = 14;

// Component i along the last axis, which goes away; and columns side by side, as a new last axis.
Expr component(Builder& b, Value x, int64_t i);
Vector vector_at(Builder& b, Value x, int64_t first = 0);
Value stack(Builder& b, const std::vector<Expr>& columns);
Value slice_rows(Builder& b, Value x, int64_t begin, int64_t end);

struct Camera {
  Vector position, right, up, forward;
  Expr focal;
  Vector background;
};
Camera camera_of(Builder& b, Value meta, const GaussianSplatRasterParams& p);
Value rays(Builder& b, const Camera& camera, const GaussianSplatRasterParams& p);  // [P, 3]

// max(x, 0) ^ 2.2
Expr to_display(Expr x);

// The operands of a scene as columns of N numbers.
struct Scene {
  Vector position, log_sigma;
  Rotation rotation;
  Expr opacity;
  Vector color;
  Value sh;              // [N, 3 K]
  int64_t coefficients;  // K; 0 when the operand is empty
};
Scene scene_of(Builder& b, Operands in);

// What the rasteriser reads of each splat.
struct Prepared {
  Vector color;
  Expr opacity;
  Vector pos_local, inv_scale;
};
Prepared prepare(Builder& b, const Scene& scene, const Camera& camera, double radius_scale);
Values raster_operands(Builder& b, const Prepared& prepared, const Rotation& rotation);

// The gradients by positions, scales, rotations, opacities, colors and coefficients (flat, in this
// order), given those by the rows of what the rasteriser reads, [N, 14].
Values prepare_backward(Builder& b, const Scene& scene, const Camera& camera, double radius_scale,
                        Value d_rows);

// The rules of gaussian_splat_raster and its backward op.
Values decompose_raster(Builder& b, const Node& n, Operands in);
Values decompose_raster_backward(Builder& b, const Node& n, Operands in);

}  // namespace rlx::splat
