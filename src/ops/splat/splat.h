// Gaussian splats: images of ellipsoidal Gaussians, front to back, and their gradients.
//
//   const GaussianSplatRenderParams params{{.width = 64, .height = 64}};
//   const Value meta = gaussian_splat_render_meta(b, position, target, up, 60, 0.1, 20, sky, params);
//   const GaussianSplatInputs scene{positions, scales, rotations, opacities, colors, sh, meta};
//   Value rgba = gaussian_splat_render(b, scene, params);              // [H * W * 4]
//
// Operands are flat: positions [3 N], scales [3 N] (log of sigma), rotations [4 N] (w, x, y, z, used
// as they are), opacities [N] (clamped to 0..1), colors [3 N], sh_coeffs [N * K * 3] (K = 1 when
// empty; degrees 0 and 1 are read), meta [23] (0-2 camera, 3-5 target, 6-8 up, 9 vertical field of
// view in degrees, 10 near, 11 far, 12-14 background; the rest repeats the attributes and is not
// read). All are of one dtype, f32 or f64, with static sizes.
//
// An image is made in two steps. gaussian_splat_bin decides, in f64, which splats each tile looks at
// and in which order; that choice is a constant for every derivative. gaussian_splat_raster blends
// each pixel's list, and everything before and after it is arithmetic on N splats and H * W rays. So
// all derivatives, of any order and by the camera and the background, too, are those of the image
// as a function with fixed lists.
//
// gaussian_splat_render_backward is the gradient for training, with its own conventions: the image
// without the final power 2.2, the background raised to 2.2 before blending, lists cut after
// max_splat_steps entries, d_loss and the gradient of every alpha clipped to +-loss_grad_clip.
//
// Raises Error(user): "splat-shape", "splat-attributes", "dtype-mixed", "splat-dtype". Lists that
// name a splat or a place that does not exist, and gradients of tiles that share entries, raise
// "index-range" when the program runs.
#pragma once

#include <array>

#include "rlx/ir/op.h"

namespace rlx {

struct GaussianSplatRasterParams {
  int64_t width = 64, height = 64, tile_size = 16;
  double alpha_cutoff = 1.0 / 255;        // smaller alphas are left out
  int64_t max_splat_steps = 32;           // list entries that training looks at; 0 means all
  double transmittance_threshold = 0.01;  // a pixel is done when less light passes
  int64_t max_list_entries = 576;         // of all tiles together; what is further away is dropped
  static constexpr auto fields() {
    using P = GaussianSplatRasterParams;
    return Fields<&P::width, &P::height, &P::tile_size, &P::alpha_cutoff, &P::max_splat_steps,
                  &P::transmittance_threshold, &P::max_list_entries>();
  }
  int64_t pixels() const { return width * height; }
};
struct GaussianSplatRenderParams : GaussianSplatRasterParams {
  double radius_scale = 1.6;  // multiplies every sigma
  static constexpr auto fields() {
    return join(GaussianSplatRasterParams::fields(),
                Fields<&GaussianSplatRenderParams::radius_scale>());
  }
};
// sh_band and max_anisotropy are settings of the optimiser's step that travel with the op; the
// gradients, which are exact for all coefficients that the image reads, do not depend on them.
struct GaussianSplatBackwardParams : GaussianSplatRenderParams {
  double loss_grad_clip = 1;
  int64_t sh_band = 0;
  double max_anisotropy = 10;
  static constexpr auto fields() {
    using P = GaussianSplatBackwardParams;
    return join(GaussianSplatRenderParams::fields(),
                Fields<&P::loss_grad_clip, &P::sh_band, &P::max_anisotropy>());
  }
};
struct GaussianSplatRasterBackwardParams : GaussianSplatRasterParams {
  std::optional<double> alpha_grad_clip = std::nullopt;
  static constexpr auto fields() {
    return join(GaussianSplatRasterParams::fields(),
                Fields<&GaussianSplatRasterBackwardParams::alpha_grad_clip>());
  }
};

namespace op {
extern const Op<GaussianSplatRenderParams> gaussian_splat_render;   // 7 operands -> [H * W * 4]
extern const Op<GaussianSplatRenderParams> gaussian_splat_prepare;  // 7 operands -> [L]
extern const Op<GaussianSplatRasterParams>
    gaussian_splat_rasterize;  // prep [L], meta -> [H * W * 4]
extern const Op<GaussianSplatBackwardParams>
    gaussian_splat_render_backward;  // 7 operands, d_loss [H * W * 4] -> [14 N + 3 N K]
// The parts. T tiles of tile_size, row by row; M = max_list_entries; P pixels.
// positions, scales, rotations, opacities, meta -> visible bool[N], ids i32[M] (all tiles' lists one
// behind the other, nearest first, zeros behind them), ranges i32[T, 2] (begin and end in ids)
extern const Op<GaussianSplatRenderParams> gaussian_splat_bin;
// color_alpha [N, 4], pos_local [N, 3], inv_scale [N, 3], quat [N, 4], rays [P, 3], background [3],
// ids, ranges -> [P, 4]: color, and 1 - the light that passes
extern const Op<GaussianSplatRasterParams> gaussian_splat_raster;
// The same eight and the cotangent [P, 4] -> d_entries [M, 14] (color_alpha, pos_local, inv_scale and
// quat, per entry of ids), d_rays [P, 3], d_background [T, 3] (per tile)
extern const Op<GaussianSplatRasterBackwardParams> gaussian_splat_raster_backward;
}  // namespace op

// ---- builders

struct GaussianSplatInputs {
  Value positions, scales, rotations, opacities, colors, sh_coeffs, meta;
  std::array<Value, 7> values() const {
    return {positions, scales, rotations, opacities, colors, sh_coeffs, meta};
  }
};

Value gaussian_splat_render(Builder& b, const GaussianSplatInputs& inputs,
                            const GaussianSplatRenderParams& params = {});
// A constant f32 [23].
Value gaussian_splat_render_meta(Builder& b, const std::array<double, 3>& position,
                                 const std::array<double, 3>& target,
                                 const std::array<double, 3>& up, double fov_y_degrees, double near,
                                 double far, const std::array<double, 3>& background,
                                 const GaussianSplatRenderParams& params = {});
Value gaussian_splat_prepare(Builder& b, const GaussianSplatInputs& inputs,
                             const GaussianSplatRenderParams& params = {});
Value gaussian_splat_rasterize(Builder& b, Value prepared, Value meta,
                               const GaussianSplatRasterParams& params = {});
// prepare, then rasterize: the value of render (but N = 0 shows the background).
Value gaussian_splat_render_decomposed(Builder& b, const GaussianSplatInputs& inputs,
                                       const GaussianSplatRenderParams& params = {});
Value gaussian_splat_render_backward(Builder& b, const GaussianSplatInputs& inputs, Value d_loss,
                                     const GaussianSplatBackwardParams& params = {});
// Slices of the packed gradients of N splats with K coefficients; meta is `packed` itself.
GaussianSplatInputs unpack_gaussian_splat_packed_grads(Builder& b, Value packed, int64_t splats,
                                                       int64_t coefficients);

int64_t gaussian_splat_tile_count(const GaussianSplatRasterParams& params);
// 15 n + M + 2 T + 3 P + 11 with n = max(N, 1): color_alpha 4 n, visible n, pos_local 3 n, inv_scale
// 3 n, quat 4 n, ids M, ranges 2 T (an empty tile is 2^32, 0), rays 3 P, and 11 numbers: width,
// height, tile_size, tiles in a row, alpha_cutoff, transmittance_threshold, background ^ 2.2 (3),
// max_splat_steps, 0.
int64_t gaussian_splat_prep_packed_len(int64_t splats, const GaussianSplatRasterParams& params);
// 14 N + 3 N max(K, 1).
int64_t gaussian_splat_packed_grad_len(int64_t splats, int64_t coefficients);

extern const Family kSplat;

}  // namespace rlx
