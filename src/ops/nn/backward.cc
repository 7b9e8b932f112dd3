#include "rlx/ops/nn/backward.h"

#include "rlx/ops/nn/nn_rules.h"

namespace rlx {
namespace {

void require_gradient(const InferArgs& a, size_t dy, const Type& of) {
  const Type& t = a.in[dy];
  bool fits = t.dtype == of.dtype && t.rank() == of.rank();
  for (size_t i = 0; fits && i < of.shape.size(); ++i) fits = !differ(t.shape[i], of.shape[i]);
  if (!fits) bad_operands(a, "gradient-shape", fmt::format("{} must be a {}", a.name(dy), of));
}

// What the forward op says about these operands, under this op's name.
Types infer_forward(const InferArgs& a, const OpDef& forward, std::span<const Type> in) {
  return forward.infer({a.op, a.attrs, in});
}

// The gradient by operand i of the forward op, by its own rule. Operands that the rule does not read
// may be kNone.
Value gradient_by(Builder& b, const OpDef& forward, const Attrs& attrs, const Type& out,
                  Operands in, Value ct, size_t i) {
  const Node node{&forward, attrs, Values(in.begin(), in.end()), {out}, {}};
  VjpArgs args{node, in, {}, {&ct, 1}, std::vector<bool>(in.size(), false)};
  args.wanted[i] = true;
  return forward.vjp(b, args)[i];
}

constexpr OpDef backward(std::string_view name, std::string_view doc, std::string_view reference,
                         int arity, InferRule infer, DecomposeRule decompose) {
  OpDef d{.name = name,
          .doc = doc,
          .reference = reference,
          .kind = Kind::composite,
          .arity = arity,
          .dtypes = kFloats};
  d.infer = infer;
  d.decompose = decompose;
  return d;
}

// ---- activations

Types infer_unary_backward(const InferArgs& a) {
  require_gradient(a, 1, a.in[0]);
  return {a.in[0]};
}

// dy has the shape of x, so both are batched when either is.
Values vmap_both(Builder& b, const VmapArgs& a) {
  Values in(a.in.begin(), a.in.end());
  for (size_t i = 0; i < in.size(); ++i)
    if (!a.batched[i]) in[i] = batch_operand(b, in[i], a.size);
  return b.clone(a.node, in);
}

constexpr OpDef elementwise_backward(OpDef d) {
  d.vmap = vmap_both;
  return d;
}

// sqrt and rsqrt have no slope where the root is not positive; the formula sees 1 there, so that it
// stays a number in every order of derivative.
Expr slope_times(Expr x, Expr dy, Activation kind) {
  const bool root = kind == Activation::sqrt || kind == Activation::rsqrt;
  Expr inside = op::gt(x, x.like(0));
  Expr at = root ? where(inside, x, 1.0) : x;
  Builder& b = x.builder();
  const OpDef& forward = op_of(kind);
  const Value in = at, y = emit(b, forward, NoAttrs{}, {in});
  const Node node{&forward, NoAttrs{}, {in}, {x.type()}, {}};
  Expr product(b, forward.derivative(b, {node, {&in, 1}, {&y, 1}, {}}, 0, dy));
  return root ? where(inside, product, 0.0) : product;
}

// ---- norms

template <const Op<NormAttrs>& forward>
Types infer_norm_backward(const InferArgs& a, size_t dy, int result) {
  const Type per_feature{a.in[0].dtype,
                         {a.in[0].shape[static_cast<size_t>(a.get<NormAttrs>().axis)]}};
  const bool affine = dy > 1;
  const Type in[] = {a.in[0], affine ? a.in[1] : per_feature, dy == 3 ? a.in[2] : per_feature};
  infer_forward(a, forward.def, in);
  require_gradient(a, dy, a.in[0]);
  return {result == 0 ? a.in[0] : per_feature};
}

constexpr OpDef norm_backward(OpDef d) {
  d.normalise = normalise_axis_of<NormAttrs>;
  return d;
}

template <int result>
Values decompose_rms(Builder& b, const Node& n, Operands in) {
  return {gradient_by(b, op::rms_norm.def, n.attrs, b.type(in[0]), in.first(3), in[3], result)};
}

// ---- group norm: a layer norm without gamma over each (n, group)

Types infer_group_norm_backward(const InferArgs& a, size_t dy, int result) {
  const Type& x = a.in[0];
  const Type per_channel{x.dtype, x.rank() > 1 ? Shape{x.shape[1]} : Shape{}};
  const bool affine = dy == 3;
  const Type in[] = {x, affine ? a.in[1] : per_channel, affine ? a.in[2] : per_channel};
  infer_forward(a, op::group_norm.def, in);
  require_gradient(a, dy, x);
  return {result == 0 ? x : per_channel};
}

Expr grouped(Expr x, int64_t groups) {  // [N, groups, elements of a group]
  Dim size(1);
  for (size_t i = 1; i < x.shape().size(); ++i) size = size * x.shape()[i];
  return {x.builder(),
          reshape_to(x.builder(), x, {x.shape()[0], Dim(groups), *size.divide(Dim(groups))})};
}

Value one_per_feature(Expr x, double value) {
  return full(x.builder(), {x.dtype(), {x.shape().back()}}, value);
}

Expr sum_but_channels(Expr x) {
  Ints axes{0};
  for (int64_t i = 2; i < x.rank(); ++i) axes.push_back(i);
  return {x.builder(), sum_axes(x.builder(), x, axes)};
}

// ---- the classification loss

Types infer_cross_entropy_backward(const InferArgs& a) {
  require_gradient(a, 2, infer_forward(a, op::softmax_cross_entropy.def, a.in.first(2))[0]);
  return {a.in[0]};
}

Values decompose_cross_entropy_backward(Builder& b, const Node&, Operands in) {
  return {gradient_by(b, op::softmax_cross_entropy.def, NoAttrs{}, b.type(in[2]), in.first(2),
                      in[2], 0)};
}

}  // namespace

namespace op {

constinit const Op<> relu_backward = named(
    "x, dy",
    elementwise_backward(backward(
        "relu_backward", "dy where x > 0, else 0.", "ReluBackward", 2, infer_unary_backward,
        [](Builder& b, const Node&, Operands in) -> Values {
          return {where(Expr(b, op::gt(b, in[0], b.constant_like(in[0], 0))), Expr(b, in[1]), 0.0)};
        })));

constinit const Op<ActivationAttrs> activation_backward =
    named("x, dy",
          elementwise_backward(backward(
              "activation_backward",
              "dy times the derivative of the activation at x. That of sqrt and rsqrt is 0 where x "
              "> 0 does "
              "not hold, that of round is 1 (round_straight_through).",
              "ActivationBackward", 2, infer_unary_backward, by_formula<[](const Node& n, Exprs x) {
                return slope_times(x[0], x[1], n.get<ActivationAttrs>().kind);
              }>)));

constinit const Op<NormAttrs> layer_norm_backward_input =
    named("x, gamma, dy",
          norm_backward(backward(
              "layer_norm_backward_input",
              "r * (s - mean(s) - z * mean(s * z)) along the axis, with s = dy * gamma, r = 1 / "
              "sqrt(variance + eps) and z = (x - mean(x)) * r.",
              "LayerNormBackwardInput", 3,
              [](const InferArgs& a) { return infer_norm_backward<op::layer_norm>(a, 2, 0); },
              [](Builder& b, const Node& n, Operands in) -> Values {
                const Values operands{in[0], in[1], kNone};
                return {gradient_by(b, op::layer_norm.def, n.attrs, n.type(), operands, in[2], 0)};
              })));

constinit const Op<NormAttrs> layer_norm_backward_gamma = named(
    "x, dy",
    norm_backward(backward(
        "layer_norm_backward_gamma",
        "The sum of dy * z over all axes but one, with z = (x - mean(x)) / sqrt(variance + eps).",
        "LayerNormBackwardGamma", 2,
        [](const InferArgs& a) { return infer_norm_backward<op::layer_norm>(a, 1, 1); },
        [](Builder& b, const Node& n, Operands in) -> Values {
          const Values operands{in[0], kNone, kNone};
          return {gradient_by(b, op::layer_norm.def, n.attrs, b.type(in[0]), operands, in[1], 1)};
        })));

constinit const Op<NormAttrs> rms_norm_backward_input =
    named("x, gamma, beta, dy",
          norm_backward(backward(
              "rms_norm_backward_input",
              "r * s - x * r^3 * mean(x * s) along the axis, with s = dy * gamma and r = 1 / "
              "sqrt(mean(x^2) "
              "+ eps).",
              "RmsNormBackwardInput", 4,
              [](const InferArgs& a) { return infer_norm_backward<op::rms_norm>(a, 3, 0); },
              decompose_rms<0>)));

constinit const Op<NormAttrs> rms_norm_backward_gamma = named(
    "x, gamma, beta, dy",
    norm_backward(backward(
        "rms_norm_backward_gamma",
        "The sum of dy * x / sqrt(mean(x^2) + eps) over all axes but one.", "RmsNormBackwardGamma",
        4, [](const InferArgs& a) { return infer_norm_backward<op::rms_norm>(a, 3, 1); },
        decompose_rms<1>)));

constinit const Op<NormAttrs> rms_norm_backward_beta = named(
    "x, gamma, beta, dy",
    norm_backward(backward(
        "rms_norm_backward_beta", "The sum of dy over all axes but one.", "RmsNormBackwardBeta", 4,
        [](const InferArgs& a) { return infer_norm_backward<op::rms_norm>(a, 3, 2); },
        decompose_rms<2>)));

constinit const Op<GroupNormAttrs> group_norm_backward_input =
    named("x, gamma, beta, dy",
          backward(
              "group_norm_backward_input",
              "The gradient of a group norm by x [N, C, ..]: that of a layer norm over each (n, "
              "group), with "
              "gamma per channel.",
              "GroupNormBackwardInput", 4,
              [](const InferArgs& a) { return infer_group_norm_backward(a, 3, 0); },
              by_formula<[](const Node& n, Exprs in) -> Expr {
                const auto& [groups, eps] = n.get<GroupNormAttrs>();
                Expr x = grouped(in[0], groups);
                Expr s = grouped(in[3] * line_up(in[1], in[0].rank(), 1), groups);
                Expr dx(x.builder(), op::layer_norm_backward_input(
                                         x.builder(), x, one_per_feature(x, 1), s, {2, eps}));
                return {x.builder(), reshape_to(x.builder(), dx, in[0].shape())};
              }>));

constinit const Op<GroupNormAttrs> group_norm_backward_gamma =
    named("x, dy", backward(
                       "group_norm_backward_gamma",
                       "The sum of dy * z over all axes but the channels', z being x normalised "
                       "over each (n, group).",
                       "GroupNormBackwardGamma", 2,
                       [](const InferArgs& a) { return infer_group_norm_backward(a, 1, 1); },
                       by_formula<[](const Node& n, Exprs in) -> Expr {
                         const auto& [groups, eps] = n.get<GroupNormAttrs>();
                         Expr x = grouped(in[0], groups);
                         Builder& b = x.builder();
                         const Value z = op::layer_norm(b, x, one_per_feature(x, 1),
                                                        one_per_feature(x, 0), {2, eps});
                         return sum_but_channels(in[1] * Expr(b, reshape_to(b, z, in[0].shape())));
                       }>));

constinit const Op<GroupNormAttrs> group_norm_backward_beta =
    named("x, dy", backward(
                       "group_norm_backward_beta", "The sum of dy over all axes but the channels'.",
                       "GroupNormBackwardBeta", 2,
                       [](const InferArgs& a) { return infer_group_norm_backward(a, 1, 1); },
                       by_formula<[](const Node&, Exprs in) { return sum_but_channels(in[1]); }>));

constinit const Op<RopeAttrs> rope_backward = named("dy, cos, sin", [] {
  OpDef d = backward(
      "rope_backward", "Rotates back: rope with the sine negated. Columns n_rot and up are copied.",
      "RopeBackward", 3, [](const InferArgs& a) { return infer_forward(a, op::rope.def, a.in); },
      [](Builder& b, const Node& n, Operands in) -> Values {
        return {op::rope(b, in[0], in[1], op::neg(b, in[2]), n.get<RopeAttrs>())};
      });
  d.normalise = [](void* attrs, std::string_view name, std::span<const Type> in) {
    op::rope.def.normalise(attrs, name, in);
  };
  return d;
}());

constinit const Op<CumsumAttrs> cumsum_backward = named("dy", [] {
  OpDef d = backward("cumsum_backward",
                     "The sum of dy from each position to the end of the axis (strictly behind it "
                     "when exclusive; to its beginning for a reverse forward op).",
                     "CumsumBackward", 1, infer_same,
                     [](Builder& b, const Node& n, Operands in) -> Values {
                       CumsumAttrs attrs = n.get<CumsumAttrs>();
                       attrs.reverse = !attrs.reverse;
                       return {op::cumsum(b, in[0], attrs)};
                     });
  d.normalise = normalise_axis_of<CumsumAttrs>;
  d.dtypes = kNumbers;
  return d;
}());

constinit const Op<ScatterAttrs> gather_backward = named("dy, indices", [] {
  OpDef d = backward(
      "gather_backward",
      "Zeros in the shape of the table, to which dy[o.., i.., t..] is added at [o.., indices[i..], "
      "t..]; an index out of range raises \"index-range\".",
      "GatherBackward", 2,
      [](const InferArgs& a) { return infer_forward(a, op::scatter_add.def, a.in); },
      [](Builder& b, const Node& n, Operands in) -> Values {
        return {op::scatter_add(b, in[0], in[1], n.get<ScatterAttrs>())};
      });
  d.normalise = [](void* attrs, std::string_view name, std::span<const Type> in) {
    op::scatter_add.def.normalise(attrs, name, in);
  };
  d.dtypes = kNumbers;
  return d;
}());

constinit const Op<> softmax_cross_entropy_backward =
    named("logits, labels, d_loss",
          backward("softmax_cross_entropy_backward",
                   "(softmax(logits) - onehot(labels)) * d_loss over the last axis. A label "
                   "outside [0, C) raises "
                   "\"index-range\".",
                   "SoftmaxCrossEntropyBackward", 3, infer_cross_entropy_backward,
                   decompose_cross_entropy_backward));

}  // namespace op

namespace {
constexpr const OpDef* kBackwardOps[] = {
    &op::relu_backward,
    &op::activation_backward,
    &op::layer_norm_backward_input,
    &op::layer_norm_backward_gamma,
    &op::rms_norm_backward_input,
    &op::rms_norm_backward_gamma,
    &op::rms_norm_backward_beta,
    &op::group_norm_backward_input,
    &op::group_norm_backward_gamma,
    &op::group_norm_backward_beta,
    &op::rope_backward,
    &op::cumsum_backward,
    &op::gather_backward,
    &op::softmax_cross_entropy_backward,
};
}  // namespace
constinit const Family kBackward{"backward", kBackwardOps};

}  // namespace rlx
