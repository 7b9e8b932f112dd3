// Sampling of images at given places, grids of places, and rearrangements of pixels.
#include <algorithm>
#include <numeric>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/image/cubic.h"
#include "rlx/ops/image/resize.h"
#include "rlx/ops/image/windows.h"
#include "rlx/ops/linalg/linalg.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/nn/nn_rules.h"

namespace rlx {
namespace {

// ---- grid_sample --------------------------------------------------------------------------------

Types infer_grid_sample(const InferArgs& a) {
  require_same_dtype(a);
  const Type &x = a.in[0], &grid = a.in[1];
  const int64_t axes = x.rank() - 2;
  if ((axes != 2 && axes != 3) || grid.rank() != x.rank() || differ(grid.shape[0], x.shape[0]) ||
      !(grid.shape.back() == Dim(axes)))
    bad_operands(
        a, "sample-shape",
        "x must be [N, C, H, W] and grid [N, h, w, 2], or x [N, C, D, H, W] and grid [N, d, "
        "h, w, 3]");
  for (int64_t i = 2; i < x.rank(); ++i)
    if (x.shape[at(i)] == Dim(0)) bad_operands(a, "sample-shape", "x must have pixels");
  Type out{x.dtype, {x.shape[0], x.shape[1]}};
  out.shape.insert(out.shape.end(), grid.shape.begin() + 1, grid.shape.end() - 1);
  return {out};
}

// Folds coordinates into [low, high] by reflection at both ends.
Expr reflected(Expr x, Expr low, Expr high) {
  Expr span = high - low, distance = op::abs(x - low);
  Expr two = op::maximum(span + span, span.like(1));  // of one pixel the span is 0
  Expr rest = distance - two * op::floor(distance / two);
  return low + op::minimum(rest, two - rest);
}

// The samplers of one image: coordinates of all places along each axis, in pixels.
struct Sampler {
  Builder& b;
  const GridSampleAttrs& attrs;
  Shape size;              // spatial sizes of x
  std::vector<Expr> last;  // of each axis: size - 1
  Value rows;              // x as [N * pixels, C]
  Expr first;              // where the pixels of each image begin: [N, 1]

  Sampler(Builder& builder, const GridSampleAttrs& a, Expr x)
      : b(builder),
        attrs(a),
        size(x.shape().begin() + 2, x.shape().end()),
        first(b, op::iota(b, {}, {DType::I64, {x.shape()[0], 1}, 0})) {
    Dim pixels(1);
    for (const Dim& d : size) {
      last.emplace_back(b, dim_value(b, d - 1, x.dtype()));
      pixels = pixels * d;
    }
    const Dim images = x.shape()[0], channels = x.shape()[1];
    rows = reshape_to(b, swap_blocks(b, x, 1, 1, size.rank()), {images * pixels, channels});
    first = first * Expr(b, dim_value(b, pixels, DType::I64));
  }

  // Coordinates in -1 .. 1 as pixels.
  Expr pixels(Expr g, size_t axis) const {
    if (attrs.align_corners) return (g + 1.0) * 0.5 * last[axis];
    return ((g + 1.0) * (last[axis] + 1.0) - 1.0) * 0.5;
  }
  // Moved into the image as the mode says.
  Expr inside(Expr x, size_t axis) const {
    const Expr zero = x.like(0), &most = last[axis];
    if (attrs.outside == OutsideMode::zeros) return x;
    if (attrs.outside == OutsideMode::reflection)
      x = attrs.align_corners ? reflected(x, zero, most) : reflected(x, x.like(-0.5), most + 0.5);
    // At and beyond the border the slope is 0, as of every function that is held between ends.
    return where(op::le(x, zero), zero, where(op::ge(x, most), most, x));
  }
  // What one axis adds to a place: which pixel, whether it lies outside, and its weight. Made once
  // per axis and tap; a place combines one of each axis.
  struct Tap {
    Expr index;  // times the axis' stride, kept inside
    Value
        outside;  // a coordinate that is NaN counts as inside, so that a weight that is NaN is seen
    Expr weight;
  };
  Tap tap(size_t axis, Expr whole, Expr weight) const {
    const Expr zero = whole.like(0);
    const Value outside = op::logical_or(op::lt(whole, zero), op::gt(whole, last[axis]));
    Expr near = op::minimum(op::maximum(whole, zero), last[axis]);
    Expr index(b, cast_to(b, op::stop_gradient(near), DType::I64));
    Dim stride(1);
    for (size_t k = axis + 1; k < size.size(); ++k) stride = stride * size[k];
    return {index * Expr(b, dim_value(b, stride, DType::I64)), outside, weight};
  }
  // The pixels at one tap of each axis, times their weights: [N, places, C]; 0 outside.
  Expr term(std::span<const Tap* const> taps) const {
    Expr place = first + taps[0]->index, weight = taps[0]->weight;
    Value outside = taps[0]->outside;
    for (const Tap* t : taps.subspan(1)) {
      place = place + t->index;
      weight = weight * t->weight;
      outside = op::logical_or(b, outside, t->outside);
    }
    auto column = [&](Value v) {
      Shape shape = b.shape(v);
      shape.push_back(1);
      return reshape_to(b, v, shape);
    };
    Expr value(b, op::gather(b, rows, place, {.axis = 0}));
    Expr product = value * Expr(b, column(weight));
    return {b, op::select(b, column(outside), product.like(0), product)};
  }
  // The sum over every choice of one tap of each axis; the first axis changes fastest.
  Expr sum(const std::vector<std::vector<Tap>>& axes) const {
    std::vector<size_t> at(axes.size(), 0);
    std::optional<Expr> total;
    while (true) {
      std::vector<const Tap*> chosen;
      for (size_t i = 0; i < axes.size(); ++i) chosen.push_back(&axes[i][at[i]]);
      const Expr one = term(chosen);
      total = total ? *total + one : one;
      size_t i = 0;
      while (i < axes.size() && ++at[i] == axes[i].size()) at[i++] = 0;
      if (i == axes.size()) return *total;
    }
  }
};

// Weighs and sums the 2 x 2 (x 2) pixels around each place.
Expr sample_linear(const Sampler& s, const std::vector<Expr>& x) {
  std::vector<std::vector<Sampler::Tap>> axes(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const Expr low = op::floor(x[i]), part = x[i] - low;
    axes[i].push_back(s.tap(i, low, 1.0 - part));
    axes[i].push_back(s.tap(i, low + 1.0, part));
  }
  return s.sum(axes);
}

Expr sample_nearest(const Sampler& s, const std::vector<Expr>& x) {
  std::vector<std::vector<Sampler::Tap>> axes(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const Expr fixed = op::stop_gradient(x[i]);
    const Expr one(s.b, full(s.b, x[i].type(), 1));
    axes[i].push_back(
        s.tap(i, op::round(x[i]), {s.b, op::select(s.b, op::is_nan(fixed), fixed, one)}));
  }
  return s.sum(axes);
}

// Of the elements at distances 1 + t, t, 1 - t, 2 - t.
Expr cubic_weight(Expr t, int tap) {
  constexpr double a = -0.75;
  const Expr s = 1.0 - t;
  if (tap == 0) return outer_cubic_weight(t, s, a);
  if (tap == 1) return inner_cubic_weight(t, s, a);
  return tap == 2 ? inner_cubic_weight(s, t, a) : outer_cubic_weight(s, t, a);
}

// 4 x 4 (x 4) pixels; each is moved into the image on its own.
Expr sample_cubic(const Sampler& s, const std::vector<Expr>& x) {
  std::vector<std::vector<Sampler::Tap>> axes(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const Expr low = op::floor(x[i]), part = x[i] - low;
    for (int tap = 0; tap < 4; ++tap) {
      const Expr pixel = op::round(s.inside(low + (tap - 1.0), i));  // reflection goes by halves
      axes[i].push_back(s.tap(i, pixel, cubic_weight(part, tap)));
    }
  }
  return s.sum(axes);
}

// The grid [N, o.., d] holds the last axis' coordinate first.
Values decompose_grid_sample(Builder& b, const Node& n, Operands in) {
  const auto& attrs = n.get<GridSampleAttrs>();
  const Sampler s(b, attrs, widen(b, in[0]));
  const Shape grid_shape = b.shape(in[1]);
  Dim places(1);
  for (size_t i = 1; i + 1 < grid_shape.size(); ++i) places = places * grid_shape[i];
  const int64_t axes = s.size.rank();
  const Value grid = reshape_to(b, widen(b, in[1]), {grid_shape[0], places, axes});
  std::vector<Expr> x;
  for (int64_t i = 0; i < axes; ++i) {
    const int64_t column = axes - 1 - i;
    const Value own = op::slice(b, grid, {{0, 0, column}, {grid_shape[0], places, column + 1}, {}});
    Expr c = s.pixels({b, reshape_to(b, own, {grid_shape[0], places})}, at(i));
    x.push_back(attrs.mode == ResizeMode::cubic ? c : s.inside(c, at(i)));
  }
  const Expr y = attrs.mode == ResizeMode::nearest  ? sample_nearest(s, x)
                 : attrs.mode == ResizeMode::linear ? sample_linear(s, x)
                                                    : sample_cubic(s, x);
  const Value moved = swap_blocks(b, y, 1, 1, 1);  // [N, C, places]
  return {cast_to(b, reshape_to(b, moved, n.type().shape), n.type().dtype)};
}

// ---- affine_grid --------------------------------------------------------------------------------

Types infer_affine_grid(const InferArgs& a) {
  const Ints& size = a.get<AffineGridAttrs>().size;
  const auto axes = static_cast<int64_t>(size.size());
  const Type& theta = a.in[0];
  if ((axes != 2 && axes != 3) ||
      std::any_of(size.begin(), size.end(), [](int64_t s) { return s < 1; }))
    bad_operands(a, "sample-shape", "size must have 2 or 3 positive entries");
  if (theta.rank() != 3 || differ(theta.shape[1], axes) || differ(theta.shape[2], axes + 1))
    bad_operands(a, "sample-shape", fmt::format("theta must be [N, {}, {}]", axes, axes + 1));
  Type out{theta.dtype, {theta.shape[0]}};
  out.shape.insert(out.shape.end(), size.begin(), size.end());
  out.shape.push_back(axes);
  return {out};
}

// The places of a grid and a 1 behind each, [places, axes + 1], the last axis' coordinate first.
Tensor grid_places(const AffineGridAttrs& g) {
  const auto axes = static_cast<int64_t>(g.size.size());
  Tensor out(DType::F64, {product(g.size), axes + 1});
  int64_t i = 0;
  for_each_index(g.size, [&](const Ints& index) {
    for (int64_t axis = axes; axis-- > 0;) {
      const auto k = static_cast<double>(index[at(axis)]);
      const auto n = static_cast<double>(g.size[at(axis)]);
      const double aligned = n > 1 ? 2 * k / (n - 1) - 1 : 0;
      out.set_float(i++, g.align_corners ? aligned : (2 * k + 1) / n - 1);
    }
    out.set_float(i++, 1);
  });
  return out;
}

Values decompose_affine_grid(Builder& b, const Node& n, Operands in) {
  const Value theta = widen(b, in[0]);
  const Tensor places = cast_tensor(grid_places(n.get<AffineGridAttrs>()), b.type(theta).dtype);
  const Value y = op::matmul(b, b.constant(places), theta, MatmulAttrs{false, true});
  return {cast_to(b, reshape_to(b, y, n.type().shape), n.type().dtype)};
}

// ---- pixels and patches -------------------------------------------------------------------------

// The axes of [.., C f^2, H, W] behind the leading ones: channels, height and width.
template <bool shuffle>
Types infer_pixel_shuffle(const InferArgs& a) {
  const int64_t f = a.get<PixelShuffleAttrs>().factor;
  Type t = a.in[0];
  if (t.rank() < 3 || f < 1)
    bad_operands(a, "sample-shape", "x must be [.., C, H, W] and the factor positive");
  const size_t c = t.shape.size() - 3;
  auto divided = [&](const Dim& d, const Dim& by) {
    const auto q = d.divide(by);
    if (!q) bad_operands(a, "sample-shape", fmt::format("{} must be a multiple of {}", d, by));
    return *q;
  };
  const Dim area = Dim(f) * f;
  t.shape[c] = shuffle ? divided(t.shape[c], area) : t.shape[c] * area;
  for (size_t i : {c + 1, c + 2}) t.shape[i] = shuffle ? t.shape[i] * f : divided(t.shape[i], f);
  return {t};
}

// Both ways between [.., C, f, f, H, W] and [.., C, H, f, W, f].
template <bool shuffle>
Values decompose_pixel_shuffle(Builder& b, const Node& n, Operands in) {
  const int64_t f = n.get<PixelShuffleAttrs>().factor;
  const Shape from = b.shape(in[0]), &to = n.type().shape;
  const Shape& deep = shuffle ? from : to;  // with the many channels
  const Shape& flat = shuffle ? to : from;
  const auto lead = static_cast<int64_t>(from.size()) - 3;
  const Dim channels = flat[at(lead)], height = deep[at(lead + 1)], width = deep[at(lead + 2)];
  Shape split(from.begin(), from.begin() + lead);
  for (const Dim& d :
       shuffle ? Shape{channels, f, f, height, width} : Shape{channels, height, f, width, f})
    split.push_back(d);
  Ints perm(at(lead));
  std::iota(perm.begin(), perm.end(), 0);
  for (int64_t i : shuffle ? Ints{0, 3, 1, 4, 2} : Ints{0, 2, 4, 1, 3}) perm.push_back(lead + i);
  return {reshape_to(b, transpose_to(b, reshape_to(b, in[0], split), perm), to)};
}

template <class A>
void normalise_unfold(void* attrs, std::string_view, std::span<const Type>) {
  A& u = *static_cast<A*>(attrs);
  fill_window(u.stride, u.dilation, u.low, u.high, u.kernel.size());
}

Window window_of(const UnfoldAttrs& u) { return {u.kernel, u.stride, u.dilation, u.low, u.high}; }

Shape window_counts(std::string_view op, const Window& w, const Shape& size) {
  require_window(op, w);
  user_check(size.size() == w.axes(), "sample-shape",
             "{}: there are {} spatial axes, but the kernel has {}", op, size.size(), w.axes());
  Shape out;
  for (size_t i = 0; i < size.size(); ++i) out.push_back(count_windows(op, size[i], w, i));
  return out;
}

Types infer_unfold(const InferArgs& a) {
  const Type& x = a.in[0];
  const Window w = window_of(a.get<UnfoldAttrs>());
  if (x.rank() < 3) bad_operands(a, "sample-shape", "x must be [N, C, ..]");
  const Shape count = window_counts(a.op.name, w, {x.shape.begin() + 2, x.shape.end()});
  return {{x.dtype, {x.shape[0], x.shape[1] * product(w.kernel), count.elements()}}};
}

Values decompose_unfold(Builder& b, const Node& n, Operands in) {
  const Window w = window_of(n.get<UnfoldAttrs>());
  const Shape shape = b.shape(in[0]);
  const Shape count = window_counts(n.op->name, w, {shape.begin() + 2, shape.end()});
  const Value all = take_windows(b, in[0], w, count, b.constant_like(in[0], 0));
  const auto axes = static_cast<int64_t>(w.axes());
  return {reshape_to(b, swap_blocks(b, all, 2, axes, axes), n.type().shape)};
}

Types infer_fold(const InferArgs& a) {
  const auto& f = a.get<FoldAttrs>();
  const Type& x = a.in[0];
  const Window w = window_of(f);
  const Shape count = window_counts(a.op.name, w, f.size);
  const auto channels =
      x.rank() == 3 ? x.shape[1].divide(Dim(product(w.kernel))) : std::optional<Dim>();
  if (!channels || differ(x.shape[2], count.elements()))
    bad_operands(a, "sample-shape",
                 fmt::format("x must be [N, C * {}, {}]", product(w.kernel), count.elements()));
  Type out{x.dtype, {x.shape[0], *channels}};
  out.shape.insert(out.shape.end(), f.size.begin(), f.size.end());
  return {out};
}

Values decompose_fold(Builder& b, const Node& n, Operands in) {
  const auto& f = n.get<FoldAttrs>();
  const Window w = window_of(f);
  const Shape count = window_counts(n.op->name, w, f.size);
  Shape split{n.type().shape[0], n.type().shape[1]};
  split.insert(split.end(), f.kernel.begin(), f.kernel.end());
  split.insert(split.end(), count.begin(), count.end());
  const auto axes = static_cast<int64_t>(w.axes());
  const Value windows = swap_blocks(b, reshape_to(b, widen(b, in[0]), split), 2, axes, axes);
  return {cast_to(b, sum_windows(b, windows, w, f.size), n.type().dtype)};
}

// Leading axes are free: a batch is one more.
Values vmap_leading(Builder& b, const VmapArgs& a) { return b.clone(a.node, a.in); }

}  // namespace

namespace op {

constinit const Op<GridSampleAttrs> grid_sample = OpDef{
    .name = "grid_sample",
    .doc =
        "x [N, C, s..] at the places grid [N, o.., d], coordinates from -1 to 1 with the last "
        "axis' first: the nearest pixel (ties to even), or a linear or cubic (a = -3/4) weighted "
        "sum of those around. The corners of the range are the centres of the outer pixels with "
        "align_corners, else their outer edges. Outside are zeros, the border, or a reflection; a "
        "coordinate that is NaN gives NaN.",
    .arity = 2,
    .operands = "x, grid",
    .dtypes = kFloats,
    .infer = infer_grid_sample,
    .decompose = decompose_grid_sample,
};

constinit const Op<AffineGridAttrs> affine_grid = OpDef{
    .name = "affine_grid",
    .doc =
        "Places for grid_sample: theta [N, d, d + 1] applied to the coordinates of every pixel of "
        "an image of the given size, and 1.",
    .operands = "theta",
    .dtypes = kFloats,
    .infer = infer_affine_grid,
    .decompose = decompose_affine_grid,
};

constinit const Op<PixelShuffleAttrs> pixel_shuffle = OpDef{
    .name = "pixel_shuffle",
    .doc =
        "[.., C f^2, H, W] -> [.., C, H f, W f]: y[c, h f + i, w f + j] = x[c f^2 + i f + j, h, "
        "w].",
    .infer = infer_pixel_shuffle<true>,
    .decompose = decompose_pixel_shuffle<true>,
    .vmap = vmap_leading,
};

constinit const Op<PixelShuffleAttrs> pixel_unshuffle = OpDef{
    .name = "pixel_unshuffle",
    .doc = "The inverse of pixel_shuffle: [.., C, H f, W f] -> [.., C f^2, H, W].",
    .infer = infer_pixel_shuffle<false>,
    .decompose = decompose_pixel_shuffle<false>,
    .vmap = vmap_leading,
};

constinit const Op<UnfoldAttrs> unfold = OpDef{
    .name = "unfold",
    .doc =
        "im2col: the windows of x [N, C, s..], zero outside, as columns [N, C * kernel, windows].",
    .dtypes = kNumbers,
    .infer = infer_unfold,
    .normalise = normalise_unfold<UnfoldAttrs>,
    .decompose = decompose_unfold,
};

constinit const Op<FoldAttrs> fold = OpDef{
    .name = "fold",
    .doc =
        "col2im, the transpose of unfold: columns [N, C * kernel, windows] are summed into an "
        "image "
        "[N, C, size..]; what falls outside is dropped.",
    .dtypes = kNumbers,
    .infer = infer_fold,
    .normalise = normalise_unfold<FoldAttrs>,
    .decompose = decompose_fold,
};

}  // namespace op

}  // namespace rlx
