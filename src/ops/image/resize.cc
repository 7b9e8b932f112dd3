// Resizing along axes. Sampling at given places and unfolding are in sampling.cc.
#include "rlx/ops/image/resize.h"

#include <algorithm>
#include <cmath>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/image/cubic.h"
#include "rlx/ops/image/windows.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/nn/nn_rules.h"
#include "rlx/ops/reduce/reduce.h"

namespace rlx {
namespace {

void normalise_resize(void* attrs, std::string_view op, std::span<const Type> in) {
  auto& axes = static_cast<ResizeAttrs*>(attrs)->axes;  // in the order of the sizes
  for (int64_t& axis : axes) axis = normalise_axis(axis, in[0].rank(), op);
}

int64_t resized(const ResizeAttrs& r, size_t i, int64_t size) {
  if (!r.sizes.empty()) return r.sizes[i];
  return static_cast<int64_t>(std::floor(static_cast<double>(size) * r.scales[i]));
}

// The same for a symbolic size, where floor(size * scale) is a dim: scales of few binary digits.
std::optional<Dim> resized(const ResizeAttrs& r, size_t i, const Dim& size) {
  if (const auto n = size.static_value()) return Dim(resized(r, i, *n));
  if (!r.sizes.empty()) return Dim(r.sizes[i]);
  constexpr double kMost = 1 << 20;
  for (int64_t below = 1; below <= 1024; below *= 2)
    if (const double above = r.scales[i] * static_cast<double>(below);
        above == std::floor(above) && above <= kMost)
      return floor_div(size * static_cast<int64_t>(above), below);
  return std::nullopt;
}

Types infer_resize(const InferArgs& a) {
  const auto& r = a.get<ResizeAttrs>();
  if (r.sizes.empty() == r.scales.empty() && !r.axes.empty())
    bad_operands(a, "resize-size", "give either sizes or scales");
  if (std::max(r.sizes.size(), r.scales.size()) != r.axes.size())
    bad_operands(a, "resize-size",
                 fmt::format("there must be one size or scale for each of the {} "
                             "axes",
                             r.axes.size()));
  Type out = a.in[0];
  for (size_t i = 0; i < r.axes.size(); ++i) {
    Dim& d = out.shape[at(r.axes[i])];
    const bool positive = r.scales.empty() || (r.scales[i] > 0 && std::isfinite(r.scales[i]));
    const auto size = positive ? resized(r, i, d) : std::nullopt;
    if (!d.is_static() && ((positive && !size) || (r.antialias && r.scales.empty())))
      bad_operands(
          a, "resize-symbolic",
          fmt::format("the size {} of axis {} must be known for this scale", d, r.axes[i]));
    if (std::count(r.axes.begin(), r.axes.end(), r.axes[i]) > 1 || !size || is_negative(d - 1) ||
        is_negative(*size - 1))
      bad_operands(
          a, "resize-size",
          fmt::format("axis {} must appear once, have a positive size and get one", r.axes[i]));
    d = *size;
  }
  return {out};
}

// ---- where results lie

// A result's place among the elements of an axis.
double place(const ResizeAttrs& r, double scale, int64_t from, int64_t to, int64_t i) {
  const auto x = static_cast<double>(i), m = static_cast<double>(from), n = static_cast<double>(to);
  const double half = (x + 0.5) / scale - 0.5;
  switch (r.coordinates) {
    case Coordinates::half_pixel:
      return half;
    case Coordinates::half_pixel_symmetric:
      return m / 2 * (1 - n / (scale * m)) + half;
    case Coordinates::pytorch_half_pixel:
      return to > 1 ? half : 0;
    case Coordinates::align_corners:
      return to > 1 ? x * (m - 1) / (n - 1) : 0;
    case Coordinates::asymmetric:
      return x / scale;
  }
  __builtin_unreachable();
}

double rounded(NearestMode mode, double x) {
  switch (mode) {
    case NearestMode::round_prefer_floor:
      return std::ceil(x - 0.5);
    case NearestMode::round_prefer_ceil:
      return std::floor(x + 0.5);
    case NearestMode::floor:
      return std::floor(x);
    case NearestMode::ceil:
      return std::ceil(x);
  }
  __builtin_unreachable();
}

// The weight of an element at distance t: a triangle of radius 1, or the cubic of Keys of radius 2.
double filter(const ResizeAttrs& r, double t) {
  t = std::fabs(t);
  if (r.mode == ResizeMode::linear) return std::max(0.0, 1 - t);
  const double a = r.cubic_coeff_a;
  if (t <= 1) return inner_cubic_weight(t, 1 - t, a);
  return t < 2 ? outer_cubic_weight(t - 1, 2 - t, a) : 0;
}

// The weights of result o. Elements outside are the border, or have no weight; an element without
// weight is replaced by one that has some, so that what it holds never matters.
void set_taps(const ResizeAttrs& r, double x, double narrowing, int64_t from, int64_t o,
              Taps& taps) {
  const int64_t count = taps.indices.sizes()[1];
  const double radius = (r.mode == ResizeMode::cubic ? 2 : 1) / narrowing;
  const auto first = static_cast<int64_t>(std::floor(x - radius)) + 1;
  std::vector<double> weights(at(count));
  double sum = 0;
  int64_t heaviest = 0;
  for (int64_t t = 0; t < count; ++t) {
    const bool outside = first + t < 0 || first + t >= from;
    const double distance = (static_cast<double>(first + t) - x) * narrowing;
    weights[at(t)] = r.exclude_outside && outside ? 0 : filter(r, distance);
    sum += weights[at(t)];
    if (std::fabs(weights[at(t)]) > std::fabs(weights[at(heaviest)])) heaviest = t;
  }
  for (int64_t t = 0; t < count; ++t) {
    const int64_t element = first + (weights[at(t)] != 0 ? t : heaviest);
    taps.indices.set_int(o * count + t, std::clamp<int64_t>(element, 0, from - 1));
    taps.weights.set_float(o * count + t, weights[at(t)] / sum);
  }
}

}  // namespace

Taps resize_taps(const ResizeAttrs& r, size_t i, int64_t from, int64_t to) {
  const double scale =
      r.scales.empty() ? static_cast<double>(to) / static_cast<double>(from) : r.scales[i];
  const double narrowing = r.antialias ? std::min(scale, 1.0) : 1.0;
  const bool nearest = r.mode == ResizeMode::nearest;
  const int64_t count =
      nearest ? 1
              : static_cast<int64_t>(std::ceil((r.mode == ResizeMode::cubic ? 4 : 2) / narrowing));
  Taps taps{Tensor(DType::I64, {to, count}), Tensor(DType::F64, {to, count})};
  for (int64_t o = 0; o < to; ++o) {
    const double x = place(r, scale, from, to, o);
    if (nearest) {
      const auto element = static_cast<int64_t>(rounded(r.nearest_mode, x));
      taps.indices.set_int(o, std::clamp<int64_t>(element, 0, from - 1));
    } else {
      set_taps(r, x, narrowing, from, o, taps);
    }
  }
  return taps;
}

bool changes_nothing(const Taps& taps, int64_t from) {
  const Ints& sizes = taps.indices.sizes();
  if (sizes[0] != from) return false;
  for (int64_t i = 0; i < taps.indices.elements(); ++i)
    if (taps.indices.get_int(i) != i / sizes[1]) return false;
  return true;
}

namespace {

// ---- the same in a program, for sizes that are known when they are bound

Expr place(const ResizeAttrs& r, Expr scale, Expr m, Expr n, Expr x) {
  Builder& b = x.builder();
  const Expr half = (x + 0.5) / scale - 0.5;
  const auto unless_one = [&](Expr y) {
    return Expr(b, op::select(b, op::gt(n, n.like(1)), y, y.like(0)));
  };
  switch (r.coordinates) {
    case Coordinates::half_pixel:
      return half;
    case Coordinates::half_pixel_symmetric:
      return m / 2 * (1 - n / (scale * m)) + half;
    case Coordinates::pytorch_half_pixel:
      return unless_one(half);
    case Coordinates::align_corners:
      return unless_one(x * (m - 1) / op::maximum(n - 1, n.like(1)));
    case Coordinates::asymmetric:
      return x / scale;
  }
  __builtin_unreachable();
}

Expr rounded(NearestMode mode, Expr x) {
  switch (mode) {
    case NearestMode::round_prefer_floor:
      return op::ceil(x - 0.5);
    case NearestMode::round_prefer_ceil:
      return op::floor(x + 0.5);
    case NearestMode::floor:
      return op::floor(x);
    case NearestMode::ceil:
      return op::ceil(x);
  }
  __builtin_unreachable();
}

Expr filter(const ResizeAttrs& r, Expr distance) {
  Builder& b = distance.builder();
  const Expr t = op::abs(distance), none = t.like(0);
  if (r.mode == ResizeMode::linear) return op::maximum(none, 1 - t);
  const double a = r.cubic_coeff_a;
  const Expr near = inner_cubic_weight(t, 1 - t, a);
  const Expr far = outer_cubic_weight(t - 1, 2 - t, a);
  const Value outer = op::select(b, op::lt(t, t.like(2)), far, none);
  return {b, op::select(b, op::le(t, t.like(1)), near, Expr(b, outer))};
}

Value resize_axis(Builder& b, Value x, const ResizeAttrs& r, size_t i) {
  const int64_t axis = r.axes[i];
  const Dim& from = b.shape(x)[at(axis)];
  const Dim to = *resized(r, i, from);
  const Expr m(b, dim_value(b, from, DType::F64)), n(b, dim_value(b, to, DType::F64));
  const Expr scale = r.scales.empty() ? n / m : m.like(r.scales[i]);
  const auto index = [&](Expr e) {
    return cast_to(b, op::minimum(op::maximum(e, e.like(0)), m - 1), DType::I64);
  };
  const Expr o(b, op::iota(b, {}, {DType::F64, {to, 1}, 0})), at_x = place(r, scale, m, n, o);
  if (r.mode == ResizeMode::nearest)
    return op::gather(b, x, reshape_to(b, index(rounded(r.nearest_mode, at_x)), {to}),
                      {.axis = axis});
  const double narrowing = r.antialias ? std::min(r.scales[i], 1.0) : 1.0;
  const double radius = (r.mode == ResizeMode::cubic ? 2 : 1) / narrowing;
  const auto count = static_cast<int64_t>(std::ceil(2 * radius));
  const Expr t(b, op::iota(b, {}, {DType::F64, {1, count}, 1}));
  const Expr first = op::floor(at_x - radius) + 1, element = first + t;
  Expr weight = filter(r, (element - at_x) * narrowing);
  if (r.exclude_outside) {
    const Value outside = op::logical_or(op::lt(element, element.like(0)), op::ge(element, m));
    weight = Expr(b, op::select(b, outside, weight.like(0), weight));
  }
  const Expr heaviest(
      b, cast_to(b, op::argmax(b, op::abs(weight), {.axis = 1, .keepdims = true}), DType::F64));
  const Value element_or_heaviest =
      op::select(b, op::ne(weight, weight.like(0)), element, first + heaviest);
  const Value picked = op::gather(b, x, index(Expr(b, element_or_heaviest)), {.axis = axis});
  Shape lined_up(b.shape(picked).size() - at(axis), Dim(1));
  lined_up[0] = to, lined_up[1] = count;
  const Expr share = weight / Expr(b, sum_axes(b, weight, {1}, true));
  const Value w = reshape_to(b, cast_to(b, share, b.type(x).dtype), lined_up);
  return sum_axes(b, op::mul(b, picked, w), {axis + 1});
}

Values decompose_resize(Builder& b, const Node& n, Operands in) {
  const auto& r = n.get<ResizeAttrs>();
  const DType dtype = n.type().dtype;
  const bool nearest = r.mode == ResizeMode::nearest;
  Value x = nearest         ? in[0]
            : is_int(dtype) ? cast_to(b, in[0], DType::F64)
                            : widen(b, in[0]).value();
  for (size_t i = 0; i < r.axes.size(); ++i) {
    const int64_t axis = r.axes[i];
    if (!b.shape(x)[at(axis)].is_static()) {
      x = resize_axis(b, x, r, i);
      continue;
    }
    const int64_t from = b.shape(x)[at(axis)].value(), to = resized(r, i, from);
    const Taps taps = resize_taps(r, i, from, to);
    if (changes_nothing(taps, from)) continue;
    if (nearest)
      x = op::gather(b, x, b.constant(taps.indices.reshaped({to})), {.axis = axis});
    else
      x = weighted_gather(b, x, axis, taps);
  }
  if (!nearest && is_int(dtype)) x = op::round(b, x);
  return {cast_to(b, x, dtype)};
}

Types infer_resize_nearest_2x(const InferArgs& a) {
  Type t = a.in[0];
  if (t.rank() < 2) bad_operands(a, "sample-shape", "x must be [.., H, W]");
  for (size_t i = t.shape.size() - 2; i < t.shape.size(); ++i) t.shape[i] = t.shape[i] * 2;
  return {t};
}

Values decompose_resize_nearest_2x(Builder& b, const Node& n, Operands in) {
  Shape single = b.shape(in[0]);
  const Dim width = single.back();
  single.back() = 1;
  single.push_back(width), single.push_back(1);  // [.., H, 1, W, 1]
  Shape twice = single;
  twice[twice.size() - 3] = 2, twice.back() = 2;
  const Value y = op::broadcast(b, reshape_to(b, in[0], single), {twice});
  return {reshape_to(b, y, n.type().shape)};
}

}  // namespace

namespace op {

constinit const Op<ResizeAttrs> resize = OpDef{
    .name = "resize",
    .doc =
        "Resamples x along axes, one after the other, as ONNX's Resize: the nearest element, or a "
        "weighted sum of the elements around a place by linear or cubic weights. Integers are "
        "interpolated in f64 and rounded to even.",
    .dtypes = kReals,
    .infer = infer_resize,
    .normalise = normalise_resize,
    .decompose = decompose_resize,
    .vmap = [](Builder& b, const VmapArgs& a) -> Values {
      ResizeAttrs r = a.node.get<ResizeAttrs>();
      for (int64_t& axis : r.axes) ++axis;
      return b.emit(*a.node.op, r, a.in);
    },
};

constinit const Op<> resize_nearest_2x = OpDef{
    .name = "resize_nearest_2x",
    .doc = "Every pixel of x [.., H, W] four times: y[.., i, j] = x[.., i / 2, j / 2].",
    .reference = "ResizeNearest2x",
    .infer = infer_resize_nearest_2x,
    .decompose = decompose_resize_nearest_2x,
    .vmap = [](Builder& b, const VmapArgs& a) { return b.clone(a.node, a.in); },
};

}  // namespace op

namespace {
constexpr const OpDef* kResizeOps[] = {
    &op::resize,        &op::resize_nearest_2x, &op::grid_sample, &op::affine_grid,
    &op::pixel_shuffle, &op::pixel_unshuffle,   &op::unfold,      &op::fold,
};
}  // namespace
constinit const Family kResize{"resize", kResizeOps};

}  // namespace rlx
