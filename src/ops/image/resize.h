// Resampling of images: resize along axes, sampling at given places, unfolding into patches.
//
//   Value y = op::resize(b, x, {.mode = ResizeMode::linear, .axes = {2, 3}, .sizes = {64, 64}});
//   Value z = op::grid_sample(b, x, grid, {.mode = ResizeMode::linear});
//
// All are linear in the image and differentiable in the places that they sample at. f16 and bf16 are
// computed in f32 and rounded once. Raises Error(user): "resize-size" (sizes and scales that are
// missing, doubled, not positive or of another length than the axes), "resize-symbolic" (a symbolic axis with a scale that is not
// a number of quarters, eighths, .., or with sizes and antialias), "sample-shape", "window" (windows.h), "axis-range", "dtype-mixed".
#pragma once

#include "rlx/ir/op.h"
#include "rlx/ops/image/windows.h"

namespace rlx {

enum class ResizeMode : uint8_t { nearest, linear, cubic };
inline std::span<const std::string_view> enum_names(ResizeMode) {
  static constexpr std::string_view names[] = {"nearest", "linear", "cubic"};
  return names;
}
// Where result i of n lies among the m elements, with scale = n / m (or as given):
enum class Coordinates : uint8_t {
  half_pixel,            // (i + 1/2) / scale - 1/2
  half_pixel_symmetric,  // the same, centred when scale * m is not whole
  pytorch_half_pixel,    // the same, but 0 for n = 1
  align_corners,         // i * (m - 1) / (n - 1), 0 for n = 1
  asymmetric,            // i / scale
};
inline std::span<const std::string_view> enum_names(Coordinates) {
  static constexpr std::string_view names[] = {"half_pixel", "half_pixel_symmetric",
                                               "pytorch_half_pixel", "align_corners", "asymmetric"};
  return names;
}
enum class NearestMode : uint8_t { round_prefer_floor, round_prefer_ceil, floor, ceil };
inline std::span<const std::string_view> enum_names(NearestMode) {
  static constexpr std::string_view names[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                               "ceil"};
  return names;
}
// The attributes of ONNX's Resize. Give `sizes` or `scales`, one entry per axis; a scale makes an
// axis of size m one of floor(m * scale). exclude_outside gives no weight to places outside the
// image, which are its border else; antialias widens the filter when the image shrinks.
struct ResizeAttrs {
  ResizeMode mode = ResizeMode::nearest;
  Ints axes, sizes;
  std::vector<double> scales;
  Coordinates coordinates = Coordinates::half_pixel;
  NearestMode nearest_mode = NearestMode::round_prefer_floor;
  double cubic_coeff_a = -0.75;
  bool exclude_outside = false, antialias = false;
  static constexpr auto fields() {
    return Fields<&ResizeAttrs::mode, &ResizeAttrs::axes, &ResizeAttrs::sizes, &ResizeAttrs::scales,
                  &ResizeAttrs::coordinates, &ResizeAttrs::nearest_mode,
                  &ResizeAttrs::cubic_coeff_a, &ResizeAttrs::exclude_outside,
                  &ResizeAttrs::antialias>();
  }
};

// Axis i of r as weighted sums, of `from` elements to `to`; mode nearest has one tap and no weights. Where that
// changes nothing the axis stays as it is.
Taps resize_taps(const ResizeAttrs& r, size_t i, int64_t from, int64_t to);
bool changes_nothing(const Taps& taps, int64_t from);

enum class OutsideMode : uint8_t { zeros, border, reflection };
inline std::span<const std::string_view> enum_names(OutsideMode) {
  static constexpr std::string_view names[] = {"zeros", "border", "reflection"};
  return names;
}
struct GridSampleAttrs {
  ResizeMode mode = ResizeMode::linear;
  OutsideMode outside = OutsideMode::zeros;
  bool align_corners = false;
  static constexpr auto fields() {
    return Fields<&GridSampleAttrs::mode, &GridSampleAttrs::outside,
                  &GridSampleAttrs::align_corners>();
  }
};
struct AffineGridAttrs {
  Ints size;  // spatial sizes of the grid, two or three
  bool align_corners = false;
  static constexpr auto fields() {
    return Fields<&AffineGridAttrs::size, &AffineGridAttrs::align_corners>();
  }
};
struct PixelShuffleAttrs {
  int64_t factor = 2;
  static constexpr auto fields() { return Fields<&PixelShuffleAttrs::factor>(); }
};
struct UnfoldAttrs {
  Ints kernel, stride, dilation, low, high;
  static constexpr auto fields() {
    return Fields<&UnfoldAttrs::kernel, &UnfoldAttrs::stride, &UnfoldAttrs::dilation,
                  &UnfoldAttrs::low, &UnfoldAttrs::high>();
  }
};
struct FoldAttrs : UnfoldAttrs {
  Shape size;  // spatial sizes of the result
  static constexpr auto fields() { return join(UnfoldAttrs::fields(), Fields<&FoldAttrs::size>()); }
};

namespace op {
extern const Op<ResizeAttrs> resize;
extern const Op<> resize_nearest_2x;               // x [.., H, W] -> [.., 2 H, 2 W]
extern const Op<GridSampleAttrs> grid_sample;      // x [N, C, s..], grid [N, o.., d] -> [N, C, o..]
extern const Op<AffineGridAttrs> affine_grid;      // theta [N, d, d + 1] -> [N, size.., d]
extern const Op<PixelShuffleAttrs> pixel_shuffle;  // [.., C f^2, H, W] -> [.., C, H f, W f]
extern const Op<PixelShuffleAttrs> pixel_unshuffle;  // back
extern const Op<UnfoldAttrs> unfold;  // im2col: x [N, C, s..] -> [N, C * kernel, windows]
extern const Op<FoldAttrs> fold;      // col2im, its transpose
}  // namespace op

extern const Family kResize;

}  // namespace rlx
