#include "rlx/ops/nn/norms.h"

#include <cmath>
#include <numeric>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/image/pool.h"
#include "rlx/ops/nn/nn.h"
#include "rlx/ops/nn/nn_rules.h"
#include "rlx/ops/reduce/reduce_rules.h"

namespace rlx {
namespace {

// ---- inference

void require_eps(const InferArgs& a, double eps) {
  if (!(eps >= 0)) bad_operands(a, "norm-eps", fmt::format("eps must be at least 0, not {}", eps));
}

// Operands from 1 on are [C]; the first two of x's dtype, further ones (statistics) of it or of its
// wide form.
void require_channels(const InferArgs& a) {
  const Type& x = a.in[0];
  if (x.rank() < 2) bad_operands(a, "norm-shape", "x must be [N, C, ..]");
  for (size_t i = 1; i < a.in.size(); ++i) {
    const Type& t = a.in[i];
    if (t.rank() != 1 || differ(t.shape[0], x.shape[1]))
      bad_operands(a, "norm-shape",
                   fmt::format("operands but x must be [{}], the channels of x", x.shape[1]));
    if (t.dtype != x.dtype && (i < 3 || t.dtype != wide_of(x.dtype)))
      bad_operands(a, "dtype-mixed", fmt::format("{} must be {}", a.name(i), x.dtype));
  }
}

Types infer_channel_norm(const InferArgs& a) {
  require_channels(a);
  require_eps(a, a.get<ChannelNormAttrs>().eps);
  return {a.in[0]};
}

Types infer_group_norm(const InferArgs& a) {
  require_channels(a);
  const auto& [groups, eps] = a.get<GroupNormAttrs>();
  require_eps(a, eps);
  if (groups < 1 || !a.in[0].shape[1].divide(Dim(groups)))
    bad_operands(
        a, "norm-groups",
        fmt::format("num_groups {} must divide the {} channels", groups, a.in[0].shape[1]));
  return {a.in[0]};
}

// ---- decompositions

// x with mean 0 and variance 1 over the axes, and the statistics with these axes kept as size 1.
struct Standardised {
  Expr mean, centred, variance, value;
  Standardised(Expr x, const Ints& axes, double eps)
      : mean(op::reduce_mean(x, {axes, true})),
        centred(x - mean),
        variance(op::reduce_mean(centred * centred, {axes, true})),
        value(centred * op::rsqrt(variance + eps)) {}
};

// [C] -> [C, 1, ..], so that it lines up with axis 1 of a tensor of this rank.
Expr per_channel(Expr v, int64_t rank) {
  Shape shape(static_cast<size_t>(rank - 1), Dim(1));
  shape[0] = v.shape()[0];
  return {v.builder(), reshape_to(v.builder(), v, shape)};
}

// value * gamma + beta in the dtype of the result, gamma and beta per channel.
Value affine(Expr value, Value gamma, Value beta, DType dtype) {
  Builder& b = value.builder();
  const int64_t rank = value.rank();
  const Expr y = value * per_channel(widen(b, gamma), rank) + per_channel(widen(b, beta), rank);
  return cast_to(b, y, dtype);
}

Ints spatial_axes(int64_t rank) {
  Ints axes(static_cast<size_t>(rank - 2));
  std::iota(axes.begin(), axes.end(), 2);
  return axes;
}

Ints all_but(int64_t axis, int64_t rank) {
  Ints axes;
  for (int64_t i = 0; i < rank; ++i)
    if (i != axis) axes.push_back(i);
  return axes;
}

Shape grouped_rows(const Shape& shape, int64_t groups) {  // [N, groups, members of a group]
  Dim members = *shape[1].divide(Dim(groups));
  for (size_t i = 2; i < shape.size(); ++i) members = members * shape[i];
  return {shape[0], groups, members};
}

Values decompose_group_norm(Builder& b, const Node& n, Operands in) {
  const auto& [groups, eps] = n.get<GroupNormAttrs>();
  Expr x = widen(b, in[0]);
  const Shape shape = b.shape(x);
  Expr rows(b, reshape_to(b, x, grouped_rows(shape, groups)));
  Expr value(b, reshape_to(b, Standardised(rows, {2}, eps).value, shape));
  return {affine(value, in[1], in[2], n.type().dtype)};
}

Values decompose_instance_norm(Builder& b, const Node& n, Operands in) {
  Expr x = widen(b, in[0]);
  const Standardised s(x, spatial_axes(x.rank()), n.get<ChannelNormAttrs>().eps);
  return {affine(s.value, in[1], in[2], n.type().dtype)};
}

Values decompose_batch_norm(Builder& b, const Node& n, Operands in) {
  Expr x = widen(b, in[0]);
  Expr mean = per_channel(widen(b, in[3]), x.rank()),
       variance = per_channel(widen(b, in[4]), x.rank());
  Expr value = (x - mean) * op::rsqrt(variance + n.get<ChannelNormAttrs>().eps);
  return {affine(value, in[1], in[2], n.type().dtype)};
}

// The gradients by x, gamma and beta of norms with statistics of their own: `rows` gives x the shape
// whose `axes` are normalised.
Values vjp_affine(Builder& b, const VjpArgs& a, const Shape& rows, const Ints& axes, double eps) {
  const DType dtype = a.node.type().dtype;
  Expr x = widen(b, a.in[0]), ct = widen(b, a.cotangents[0]);
  const Shape shape = b.shape(x);
  const int64_t rank = x.rank();
  auto shaped = [&](Expr v, const Shape& as) -> Expr { return {b, reshape_to(b, v, as)}; };
  Expr s = ct * per_channel(widen(b, a.in[1]), rank);
  const NormGradient g = norm_gradient(shaped(x, rows), shaped(s, rows), axes, eps, true);
  const Ints others = all_but(1, rank);
  Values out(3, kNone);
  if (a.wanted[0]) out[0] = cast_to(b, shaped(g.dx, shape), dtype);
  if (a.wanted[1]) out[1] = cast_to(b, sum_axes(b, ct * shaped(g.z, shape), others), dtype);
  if (a.wanted[2]) out[2] = cast_to(b, sum_axes(b, ct, others), dtype);
  return out;
}

Values vjp_group_norm(Builder& b, const VjpArgs& a) {
  const auto& [groups, eps] = a.node.get<GroupNormAttrs>();
  return vjp_affine(b, a, grouped_rows(b.shape(a.in[0]), groups), {2}, eps);
}

Values vjp_instance_norm(Builder& b, const VjpArgs& a) {
  const Shape shape = b.shape(a.in[0]);
  return vjp_affine(b, a, shape, spatial_axes(static_cast<int64_t>(shape.size())),
                    a.node.get<ChannelNormAttrs>().eps);
}

// Declines where the statistics have cotangents of their own.
Values vjp_batch_norm_training(Builder& b, const VjpArgs& a) {
  if (a.cotangents[1].valid() || a.cotangents[2].valid()) return {};
  const Shape shape = b.shape(a.in[0]);
  return vjp_affine(b, a, shape, all_but(1, static_cast<int64_t>(shape.size())),
                    a.node.get<ChannelNormAttrs>().eps);
}

Types infer_batch_norm_training(const InferArgs& a) {
  Types out = infer_channel_norm(a);
  const Type statistic{wide_of(a.in[0].dtype), {a.in[0].shape[1]}};
  out.insert(out.end(), 2, statistic);
  return out;
}

Values decompose_batch_norm_training(Builder& b, const Node& n, Operands in) {
  Expr x = widen(b, in[0]);
  const Standardised s(x, all_but(1, x.rank()), n.get<ChannelNormAttrs>().eps);
  const Shape channels{x.shape()[1]};
  return {affine(s.value, in[1], in[2], n.type().dtype), reshape_to(b, s.mean, channels),
          reshape_to(b, s.variance, channels)};
}

// ---- local response norm

Types infer_lrn(const InferArgs& a) {
  if (a.in[0].rank() < 2) bad_operands(a, "norm-shape", "x must be [N, C, ..]");
  const int64_t size = a.get<LrnAttrs>().size;
  if (size < 1) bad_operands(a, "norm-size", fmt::format("size must be positive, not {}", size));
  return {a.in[0]};
}

// The squares of the neighbouring channels are summed by a pool over [C, pixels].
Values decompose_lrn(Builder& b, const Node& n, Operands in) {
  const auto& [size, alpha, beta, k] = n.get<LrnAttrs>();
  Expr x = widen(b, in[0]);
  const Shape shape = b.shape(x);
  if (shape.elements() == Dim(0)) return {in[0]};
  Dim pixels(1);
  for (size_t i = 2; i < shape.size(); ++i) pixels = pixels * shape[i];
  PoolAttrs window{.kind = PoolKind::sum, .kernel = {size, 1}};
  window.low = {size / 2, 0}, window.high = {(size - 1) / 2, 0};
  const Value squares = reshape_to(b, x * x, {shape[0], shape[1], pixels});
  Expr around(b, reshape_to(b, op::pool(b, squares, window), shape));
  Expr base = around * (alpha / static_cast<double>(size)) + k;
  return {cast_to(b, x * op::pow(base, base.like(-beta)), n.type().dtype)};
}

// ---- lengths

// The p-norm over the axes, which are kept as size 1. Where all elements are 0 it is 0 with
// derivative 0.
Expr length(Expr x, double p, const Ints& axes) {
  Expr size = op::abs(x);
  if (std::isinf(p)) return op::reduce_max(size, {axes, true});
  if (p == 1) return op::reduce_sum(size, {axes, true});
  Expr sum = op::reduce_sum(p == 2 ? x * x : power(size, p), {axes, true});
  return power(sum, 1 / p);
}

Types infer_normalize(const InferArgs& a) {
  const auto& attrs = a.get<NormaliseAttrs>();
  require_eps(a, attrs.eps);
  if (!(attrs.p >= 1))
    bad_operands(a, "norm-p", fmt::format("p must be at least 1, not {}", attrs.p));
  return {a.in[0]};
}

Values decompose_normalize(Builder& b, const Node& n, Operands in) {
  const auto& [p, axes, eps] = n.get<NormaliseAttrs>();
  Expr x = widen(b, in[0]);
  Expr size = length(x, p, axes);
  return {cast_to(b, x / op::maximum(size, size.like(eps)), n.type().dtype)};
}

Types infer_weight_norm(const InferArgs& a) {
  require_same_dtype(a);
  const Dim& size = a.in[0].shape[static_cast<size_t>(a.get<WeightNormAttrs>().axis)];
  if (a.in[1].rank() != 1 || differ(a.in[1].shape[0], size))
    bad_operands(a, "norm-shape", fmt::format("g must be [{}], the size of the axis of v", size));
  return {a.in[0]};
}

Values decompose_weight_norm(Builder& b, const Node& n, Operands in) {
  const int64_t axis = n.get<WeightNormAttrs>().axis;
  Expr v = widen(b, in[0]);
  Expr size = length(v, 2, all_but(axis, v.rank()));
  Expr g(b, reshape_to(b, widen(b, in[1]), size.shape()));
  return {cast_to(b, v / size * g, n.type().dtype)};
}

constexpr OpDef norm(std::string_view name, std::string_view doc, int arity, InferRule infer,
                     DecomposeRule decompose, std::string_view reference = {}) {
  OpDef d{.name = name,
          .doc = doc,
          .reference = reference,
          .kind = Kind::composite,
          .arity = arity,
          .dtypes = kFloats};
  d.numerics = Numerics::reduction;
  d.infer = infer;
  d.decompose = decompose;
  return d;
}

constexpr OpDef with_vjp(OpDef d, VjpRule vjp) {
  d.vjp = vjp;
  return d;
}

}  // namespace

namespace op {

constinit const Op<GroupNormAttrs> group_norm = named(
    "x, gamma, beta",
    with_vjp(norm("group_norm",
                  "(x - mean) / sqrt(variance + eps) * gamma + beta for x [N, C, ..], with the "
                  "mean and the "
                  "biased variance of each image over each of num_groups groups of C / num_groups "
                  "neighbouring channels and all pixels.",
                  3, infer_group_norm, decompose_group_norm, "GroupNorm"),
             vjp_group_norm));

constinit const Op<ChannelNormAttrs> instance_norm =
    named("x, gamma, beta",
          with_vjp(norm("instance_norm",
                        "(x - mean) / sqrt(variance + eps) * gamma + beta for x [N, C, ..], with "
                        "the mean and the "
                        "biased variance of each channel of each image over its pixels.",
                        3, infer_channel_norm, decompose_instance_norm),
                   vjp_instance_norm));

constinit const Op<ChannelNormAttrs> layer_norm2d = named(
    "x, gamma, beta",
    norm(
        "layer_norm2d",
        "layer_norm across the channels of x [N, C, ..] at every pixel (not over the pixels).", 3,
        infer_channel_norm,
        [](Builder& b, const Node& n, Operands in) -> Values {
          return {op::layer_norm(b, in[0], in[1], in[2],
                                 {.axis = 1, .eps = n.get<ChannelNormAttrs>().eps})};
        },
        "LayerNorm2d"));

constinit const Op<ChannelNormAttrs> batch_norm = named(
    "x, gamma, beta, mean, variance",
    norm("batch_norm",
         "(x - mean) / sqrt(variance + eps) * gamma + beta for x [N, C, ..] with given statistics "
         "[C], which may be f32 for f16 and bf16.",
         5, infer_channel_norm, decompose_batch_norm));

constinit const Op<ChannelNormAttrs> batch_norm_training = named(
    "x, gamma, beta",
    with_vjp(
        norm(
            "batch_norm_training",
            "batch_norm with the mean and the biased variance of each channel of x [N, C, ..] over "
            "all images and pixels; these are the second and the third result (f32 for f16 and "
            "bf16).",
            3, infer_batch_norm_training, decompose_batch_norm_training),
        vjp_batch_norm_training));

constinit const Op<LrnAttrs> local_response_norm =
    norm("local_response_norm",
         "x / (k + alpha / size * s)^beta, s the sum of the squares of the channels from c - "
         "floor(size / 2) to c + floor((size - 1) / 2) of x [N, C, ..] at the same pixel.",
         1, infer_lrn, decompose_lrn);

constinit const Op<NormaliseAttrs> normalize = [] {
  OpDef d = norm("normalize",
                 "x / max(|x|_p, eps) with the p-norm over the axes; p = inf is the largest "
                 "magnitude. A zero vector stays zero; the derivative of its norm is 0.",
                 1, infer_normalize, decompose_normalize);
  d.normalise = normalise_axes_of<NormaliseAttrs>;
  return d;
}();

constinit const Op<WeightNormAttrs> weight_norm = named("v, g", [] {
  OpDef d = norm("weight_norm",
                 "v * g / |v|: each slice of v along the axis is given the length g [size of the "
                 "axis]; a zero slice gives NaN.",
                 2, infer_weight_norm, decompose_weight_norm);
  d.normalise = normalise_axis_of<WeightNormAttrs>;
  return d;
}());

}  // namespace op

namespace {
constexpr const OpDef* kNormsOps[] = {
    &op::group_norm,          &op::instance_norm,       &op::layer_norm2d, &op::batch_norm,
    &op::batch_norm_training, &op::local_response_norm, &op::normalize,    &op::weight_norm,
};
}  // namespace
constinit const Family kNorms{"norms", kNormsOps};

}  // namespace rlx
