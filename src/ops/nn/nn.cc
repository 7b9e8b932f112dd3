// Activations, softmax, norms, the classification loss and rotary positions. Attention is in
// attention.cc.
#include "rlx/ops/nn/nn.h"

#include <cmath>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/elementwise/math.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/nn/nn_rules.h"
#include "rlx/ops/reduce/reduce.h"

namespace rlx {

Expr widen(Builder& b, Value v) { return {b, cast_to(b, v, wide_of(b.type(v).dtype))}; }

Expr line_up(Expr v, int64_t rank, int64_t axis) {
  Shape shape(static_cast<size_t>(rank - axis), Dim(1));
  shape[0] = v.shape()[0];
  return {v.builder(), reshape_to(v.builder(), v, shape)};
}

NormGradient norm_gradient(Expr x, Expr s, const Ints& axes, double eps, bool centred) {
  auto mean = [&](Expr v) -> Expr { return op::reduce_mean(v, {axes, true}); };
  if (!centred) {
    Expr power = mean(x * x) + eps, factor = op::rsqrt(power);
    return {x * factor, (s - x * (mean(s * x) / power)) * factor};
  }
  Expr rough = x - mean(x), rest = mean(rough), sides = s - mean(s);
  Expr power = mean(rough * rough) - rest * rest + eps, factor = op::rsqrt(power);
  Expr d = rough - rest;
  // Of x nothing but d is needed: a program that trains keeps one value for it, not two.
  return {d * factor, (sides - d * (mean(sides * d) / power)) * factor};
}

void check_rope(const InferArgs& a, const RopeAttrs& r, const Dim& rows) {
  const Type &x = a.in[0], &cos = a.in[1], &sin = a.in[2];
  if (r.head_dim < 1 || r.n_rot < 0 || r.n_rot % 2 || r.n_rot > r.head_dim)
    bad_operands(
        a, "rope-heads",
        fmt::format("n_rot must be even and at most head_dim, but head_dim is {} and n_rot {}",
                    r.head_dim, r.n_rot));
  if (x.rank() < 2 || !x.shape.back().divide(Dim(r.head_dim)))
    bad_operands(a, "rope-shape", fmt::format("x must be [.., S, heads * {}]", r.head_dim));
  if (cos.dtype != sin.dtype || (cos.dtype != x.dtype && cos.dtype != DType::F32))
    bad_operands(a, "dtype-mixed", "cos and sin must have the dtype of x or be f32");
  const auto below = [](const Dim& d, const Dim& least) { return is_negative(d - least); };
  if (cos.rank() != 2 || !may_be_equal(cos, sin) || below(cos.shape[0], rows) ||
      below(cos.shape[1], r.n_rot / 2))
    bad_operands(
        a, "rope-shape",
        fmt::format("cos and sin must be [P, C] with P >= {} and C >= {}", rows, r.n_rot / 2));
}

Expr table_for(Builder& b, Value table, const Dim& positions, int64_t half, DType dtype) {
  Shape limit = b.shape(table);
  limit[limit.size() - 2] = positions;
  limit.back() = half;
  Shape shape = limit;
  shape.insert(shape.end() - 1, Dim(1));
  return {b, cast_to(b, reshape_to(b, op::slice(b, table, {{}, limit, {}}), shape), dtype)};
}

namespace {

Expr slice_last(Expr x, int64_t from, int64_t to) {
  Shape start(x.shape().size(), Dim(0)), limit = x.shape();
  start.back() = from, limit.back() = to;
  return op::slice(x, {start, limit, {}});
}

Value concat_last(Builder& b, const Values& parts) {
  return b.emit(op::concat.def, AxisAttrs{b.type(parts[0]).rank() - 1}, parts)[0];
}

// One of each pair among the last `n_rot` elements, and the pairs put together again.
Expr of_pairs(Expr rotated, const RopeAttrs& r, int64_t which) {
  const int64_t half = r.n_rot / 2;
  if (!r.interleaved) return slice_last(rotated, which * half, (which + 1) * half);
  Shape pairs = rotated.shape();
  pairs.back() = half;
  const Shape one = pairs;
  pairs.push_back(2);
  Builder& b = rotated.builder();
  Expr split(b, reshape_to(b, rotated, pairs));
  return {b, reshape_to(b, slice_last(split, which, which + 1), one)};
}
Value join_pairs(Expr first, Expr second, const RopeAttrs& r) {
  Builder& b = first.builder();
  if (!r.interleaved) return concat_last(b, {first, second});
  Shape one = first.shape(), whole = first.shape();
  one.push_back(1);
  whole.back() = r.n_rot;
  return reshape_to(b, concat_last(b, {reshape_to(b, first, one), reshape_to(b, second, one)}),
                    whole);
}

}  // namespace

Value rotate(Expr x, Expr cos, Expr sin, const RopeAttrs& r) {
  Builder& b = x.builder();
  const Shape whole = Shape(x.shape());
  Shape split = whole;
  split.back() = *whole.back().divide(Dim(r.head_dim));
  split.push_back(r.head_dim);
  Expr heads(b, reshape_to(b, x, split));
  Expr turned = r.n_rot < r.head_dim ? slice_last(heads, 0, r.n_rot) : heads;
  Expr first = of_pairs(turned, r, 0), second = of_pairs(turned, r, 1);
  Value y = join_pairs(first * cos - second * sin, second * cos + first * sin, r);
  if (r.n_rot < r.head_dim) y = concat_last(b, {y, slice_last(heads, r.n_rot, r.head_dim)});
  return reshape_to(b, y, whole);
}

namespace {

using Args = const JvpArgs&;

// The same node on batched operands with the axis moved by one.
template <class A>
Attrs with_axis_moved(const Node& n) {
  A attrs = n.get<A>();
  ++attrs.axis;
  return attrs;
}

// ---- activations

constexpr OpDef activation(std::string_view name, std::string_view doc, DecomposeRule decompose,
                           DerivativeRule derivative, std::string_view reference) {
  OpDef d{.name = name,
          .doc = doc,
          .reference = reference,
          .kind = Kind::composite,
          .arity = 1,
          .dtypes = kFloats};
  d.infer = infer_same;
  d.decompose = decompose;
  d.derivative = derivative;
  d.vmap = vmap_elementwise;
  return d;
}

constexpr double kGeluScale = 0.7978845608028653559;  // sqrt(2 / pi)
constexpr double kGeluCube = 0.044715;

// 0.5 (1 + tanh(u)) is sigmoid(2 u), which keeps its digits where it is small; so does sigmoid(-v) in
// the place of 1 - sigmoid(v).
Expr gelu_tanh_exponent(Expr x) { return (x + x * x * x * kGeluCube) * (2 * kGeluScale); }

// ---- softmax

// exp(x - max) along an axis, its sum, and the max. Derivatives do not pass through the max: it
// cancels.
struct Exponentials {
  Expr shift, shifted, powers, total;
  Exponentials(Expr x, int64_t axis)
      : shift(op::stop_gradient(op::reduce_max(x, {{axis}, true}))),
        shifted(x - shift),
        powers(op::exp(shifted)),
        total(op::reduce_sum(powers, {{axis}, true})) {}
};

Expr sum_along(Expr x, int64_t axis) { return op::reduce_sum(x, {{axis}, true}); }

// y * (t - sum(y * t)): the softmax's Jacobian is symmetric, so this is its jvp and its vjp.
Values softmax_slope(Builder& b, const Node& n, Value out, Value t) {
  Expr y = widen(b, out), e = widen(b, t);
  return {narrow(y * (e - sum_along(y * e, n.get<SoftmaxAttrs>().axis)), n.type().dtype)};
}

constexpr OpDef along_axis(std::string_view name, std::string_view doc, DecomposeRule decompose,
                           JvpRule jvp, VjpRule vjp, std::string_view reference = {}) {
  OpDef d{.name = name,
          .doc = doc,
          .reference = reference,
          .kind = Kind::composite,
          .arity = 1,
          .dtypes = kFloats};
  d.infer = infer_same;
  d.normalise = normalise_axis_of<SoftmaxAttrs>;
  d.decompose = decompose;
  d.jvp = jvp;
  d.vjp = vjp;
  d.vmap = [](Builder& b, const VmapArgs& a) {
    return b.emit(*a.node.op, with_axis_moved<SoftmaxAttrs>(a.node), a.in);
  };
  return d;
}

// ---- norms

Types infer_axis_norm(const InferArgs& a) {
  require_same_dtype(a);
  const auto& n = a.get<NormAttrs>();
  if (!(n.eps >= 0))
    bad_operands(a, "norm-eps", fmt::format("eps must be at least 0, not {}", n.eps));
  const Dim& size = a.in[0].shape[static_cast<size_t>(n.axis)];
  for (const Type& t : a.in.subspan(1))
    if (t.rank() != 1 || differ(t.shape[0], size))
      bad_operands(
          a, "norm-shape",
          fmt::format("gamma and beta must be [{}], the size of axis {} of x", size, n.axis));
  return {a.in[0]};
}

Expr mean_along(Expr x, int64_t axis) { return op::reduce_mean(x, {{axis}, true}); }

// x without mean (unless it is an rms norm) and with unit scale.
Expr normalised(Expr x, const NormAttrs& n, bool centred) {
  if (centred) x = x - mean_along(x, n.axis);
  return x * op::rsqrt(mean_along(x * x, n.axis) + n.eps);
}

template <bool centred>
Values decompose_norm(Builder& b, const Node& n, Operands in) {
  const auto& attrs = n.get<NormAttrs>();
  Expr x = widen(b, in[0]);
  Expr gamma = line_up(widen(b, in[1]), x.rank(), attrs.axis),
       beta = line_up(widen(b, in[2]), x.rank(), attrs.axis);
  return {narrow(normalised(x, attrs, centred) * gamma + beta, n.type().dtype)};
}

template <bool centred>
Values vjp_norm(Builder& b, const VjpArgs& a) {
  const auto& attrs = a.node.get<NormAttrs>();
  const DType dtype = a.node.type().dtype;
  Expr x = widen(b, a.in[0]), ct = widen(b, a.cotangents[0]);
  Expr z = x;
  Values out(3, kNone);
  if (a.wanted[0]) {
    Expr s = ct * line_up(widen(b, a.in[1]), x.rank(), attrs.axis);
    const NormGradient g = norm_gradient(x, s, {attrs.axis}, attrs.eps, centred);
    out[0] = narrow(g.dx, dtype);
    z = g.z;
  } else if (a.wanted[1]) {
    z = normalised(x, attrs, centred);
  }
  Ints others;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != attrs.axis) others.push_back(i);
  if (a.wanted[1]) out[1] = narrow({b, sum_axes(b, ct * z, others)}, dtype);
  if (a.wanted[2]) out[2] = narrow({b, sum_axes(b, ct, others)}, dtype);
  return out;
}

// A gamma or beta per element of the batch is applied behind a norm with gamma 1 and beta 0.
Values vmap_norm(Builder& b, const VmapArgs& a) {
  const int64_t axis = a.node.get<NormAttrs>().axis, rank = a.node.type().rank();
  const Attrs attrs = a.batched[0] ? with_axis_moved<NormAttrs>(a.node) : a.node.attrs;
  if (!a.batched[1] && !a.batched[2]) return b.emit(*a.node.op, attrs, a.in);
  Expr x = widen(b, a.in[0]);
  const Type per_feature{x.dtype(), {a.node.type().shape[static_cast<size_t>(axis)]}};
  const Values plain{x, full(b, per_feature, 1), full(b, per_feature, 0)};
  Expr z(b, b.emit(*a.node.op, attrs, plain)[0]);
  auto lined_up = [&](size_t i) -> Expr {
    if (!a.batched[i]) return line_up(widen(b, a.in[i]), rank, axis);
    Shape shape(static_cast<size_t>(rank + 1), Dim(1));
    shape[0] = a.size;
    shape[static_cast<size_t>(axis + 1)] = per_feature.shape[0];
    return {b, reshape_to(b, widen(b, a.in[i]), shape)};
  };
  const Value y = narrow(z * lined_up(1) + lined_up(2), a.node.type().dtype);
  return {broadcast_to(b, y, prepend(a.size, a.node.type().shape))};
}

constexpr OpDef norm(std::string_view name, std::string_view doc, DecomposeRule decompose,
                     VjpRule vjp, std::string_view reference) {
  OpDef d{.name = name,
          .doc = doc,
          .reference = reference,
          .kind = Kind::composite,
          .arity = 3,
          .dtypes = kFloats};
  d.infer = infer_axis_norm;
  d.normalise = normalise_axis_of<NormAttrs>;
  d.decompose = decompose;
  d.vjp = vjp;
  d.vmap = vmap_norm;
  return d;
}

// ---- the classification loss

Types infer_cross_entropy(const InferArgs& a) {
  const Type &x = a.in[0], &labels = a.in[1];
  if (x.rank() == 0) bad_operands(a, "labels", "logits must be [.., C]");
  if (!is_int(labels.dtype) && labels.dtype != DType::F32 && labels.dtype != DType::F64)
    bad_operands(a, "labels", "labels must be integers or f32/f64-encoded ids");
  bool fits = labels.rank() == x.rank() - 1;
  for (size_t i = 0; fits && i < labels.shape.size(); ++i)
    fits = !differ(labels.shape[i], x.shape[i]);
  if (!fits)
    bad_operands(a, "labels", "labels must have the shape of the logits without the last axis");
  return {{x.dtype, Shape(x.shape.begin(), x.shape.end() - 1)}};
}

Value with_last_axis(Builder& b, Value v) {
  Shape shape = b.shape(v);
  shape.push_back(1);
  return reshape_to(b, v, shape);
}

// Whether class c is the label: [.., 1] ids against [C].
Value is_label(Builder& b, Value ids, const Dim& classes) {
  return op::eq(b, with_last_axis(b, ids), op::iota(b, {}, {DType::I64, {classes}, 0}));
}

// Looking a label up in 0, 1, .. C-1 gives the label and raises "index-range" where there is none.
Value checked_ids(Builder& b, Value labels, const Dim& classes) {
  return op::gather(b, op::iota(b, {}, {DType::I64, {classes}, 0}), labels, AxisAttrs{0});
}

Values decompose_cross_entropy(Builder& b, const Node& n, Operands in) {
  Expr x = widen(b, in[0]);
  const int64_t axis = x.rank() - 1;
  const Dim classes = x.shape().back();
  const Exponentials e(x, axis);
  const Value ids = checked_ids(b, in[1], classes);
  Expr picked(b, op::select(b, is_label(b, ids, classes), e.shifted, x.like(0)));
  Expr loss = op::log(e.total) - sum_along(picked, axis);
  return {reshape_to(b, narrow(loss, n.type().dtype), n.type().shape)};
}

Values vjp_cross_entropy(Builder& b, const VjpArgs& a) {
  if (!a.wanted[0]) return {kNone, kNone};
  Expr x = widen(b, a.in[0]), ct(b, with_last_axis(b, widen(b, a.cotangents[0])));
  // Checked here too: a gradient may be asked for without the loss.
  const Dim classes = x.shape().back();
  Expr hot(b, op::select(b, is_label(b, checked_ids(b, a.in[1], classes), classes), x.like(1),
                         x.like(0)));
  return {narrow((op::softmax(x, {-1}) - hot) * ct, b.type(a.in[0]).dtype), kNone};
}

Values vmap_cross_entropy(Builder& b, const VmapArgs& a) {
  Values in(a.in.begin(), a.in.end());
  for (size_t i = 0; i < in.size(); ++i)
    if (!a.batched[i]) in[i] = batch_operand(b, in[i], a.size);
  return b.clone(a.node, in);
}

// ---- rotary positions

void normalise_rope(void* attrs, std::string_view, std::span<const Type>) {
  auto& r = *static_cast<RopeAttrs*>(attrs);
  if (r.n_rot == 0) r.n_rot = r.head_dim;
}

Types infer_rope(const InferArgs& a) {
  const Shape& x = a.in[0].shape;
  check_rope(a, a.get<RopeAttrs>(), x.size() < 2 ? Dim(0) : x[x.size() - 2]);
  return {a.in[0]};
}

Values decompose_rope(Builder& b, const Node& n, Operands in) {
  const auto& r = n.get<RopeAttrs>();
  Expr x = widen(b, in[0]);
  const Dim positions = x.shape()[x.shape().size() - 2];
  Expr cos = table_for(b, in[1], positions, r.n_rot / 2, x.dtype());
  Expr sin = table_for(b, in[2], positions, r.n_rot / 2, x.dtype());
  return {narrow({b, rotate(x, cos, sin, r)}, n.type().dtype)};
}

// Rotations are orthogonal: the transpose turns the other way. Gradients of the tables follow from
// the decomposition.
Values vjp_rope(Builder& b, const VjpArgs& a) {
  if (a.wanted[1] || a.wanted[2]) return {};
  return {op::rope(b, a.cotangents[0], a.in[1], op::neg(b, a.in[2]), a.node.get<RopeAttrs>()),
          kNone, kNone};
}

Values vmap_rope(Builder& b, const VmapArgs& a) {
  const auto& r = a.node.get<RopeAttrs>();
  if (!a.batched[1] && !a.batched[2]) return b.clone(a.node, a.in);
  const Shape& shape = a.node.type().shape;
  Expr x = widen(b, a.batched[0] ? a.in[0] : batch_operand(b, a.in[0], a.size));
  auto table = [&](size_t i) -> Expr {
    Expr t = table_for(b, a.in[i], shape[shape.size() - 2], r.n_rot / 2, x.dtype());
    return a.batched[i] ? Expr(b, align_batched(b, t, a.node.type().rank() + 1)) : t;
  };
  Expr cos = table(1), sin = table(2);
  return {narrow({b, rotate(x, cos, sin, r)}, a.node.type().dtype)};
}

}  // namespace

namespace op {

constinit const Op<> gelu = activation(
    "gelu", "x * normal_cdf(x).",
    [](Builder& b, const Node& n, Operands in) -> Values {
      Expr x = widen(b, in[0]);
      return {narrow(x * op::normal_cdf(x), n.type().dtype)};
    },
    [](Builder& b, Args a, int, Value t) -> Value {
      Expr x = widen(b, a.in[0]);
      Expr slope = op::normal_cdf(x) + x * op::normal_pdf(x);
      return narrow(widen(b, t) * slope, a.node.type().dtype);
    },
    "Activation");

constinit const Op<> gelu_tanh = activation(
    "gelu_tanh", "GELU by tanh: x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))).",
    [](Builder& b, const Node& n, Operands in) -> Values {
      Expr x = widen(b, in[0]);
      return {narrow(x * op::sigmoid(gelu_tanh_exponent(x)), n.type().dtype)};
    },
    [](Builder& b, Args a, int, Value t) -> Value {
      // Beyond 100 the slope is 1 or 0 to the last digit, and further out the powers of x overflow.
      Expr wide = widen(b, a.in[0]), x = op::clamp(wide, wide.like(-100), wide.like(100));
      Expr v = gelu_tanh_exponent(x), s = op::sigmoid(v);
      Expr inner = (x * x * (3 * kGeluCube) + 1.0) * (2 * kGeluScale);
      Expr slope = s * (1.0 + x * op::sigmoid(-v) * inner);
      return narrow(widen(b, t) * slope, a.node.type().dtype);
    },
    "Activation");

constinit const Op<> silu = activation(
    "silu", "x * sigmoid(x).",
    [](Builder& b, const Node& n, Operands in) -> Values {
      Expr x = widen(b, in[0]);
      return {narrow(x * op::sigmoid(x), n.type().dtype)};
    },
    [](Builder& b, Args a, int, Value t) -> Value {
      Expr x = widen(b, a.in[0]), s = op::sigmoid(x);
      return narrow(widen(b, t) * (s * (x * op::sigmoid(-x) + 1.0)), a.node.type().dtype);
    },
    "Activation");

constinit const Op<SoftmaxAttrs> softmax = along_axis(
    "softmax",
    "exp(x) divided by its sum along the axis, without overflow; a row of -inf gives NaN.",
    [](Builder& b, const Node& n, Operands in) -> Values {
      const Exponentials e(widen(b, in[0]), n.get<SoftmaxAttrs>().axis);
      return {narrow(e.powers / e.total, n.type().dtype)};
    },
    [](Builder& b, const JvpArgs& a) { return softmax_slope(b, a.node, a.out[0], a.tangents[0]); },
    [](Builder& b, const VjpArgs& a) {
      return softmax_slope(b, a.node, a.out[0], a.cotangents[0]);
    },
    "Softmax");

constinit const Op<SoftmaxAttrs> log_softmax = along_axis(
    "log_softmax", "The logarithm of softmax, computed as x - max - log(sum(exp(x - max))).",
    [](Builder& b, const Node& n, Operands in) -> Values {
      const Exponentials e(widen(b, in[0]), n.get<SoftmaxAttrs>().axis);
      return {narrow(e.shifted - op::log(e.total), n.type().dtype)};
    },
    [](Builder& b, const JvpArgs& a) -> Values {
      Expr y = widen(b, a.out[0]), t = widen(b, a.tangents[0]);
      return {narrow(t - sum_along(op::exp(y) * t, a.node.get<SoftmaxAttrs>().axis),
                     a.node.type().dtype)};
    },
    [](Builder& b, const VjpArgs& a) -> Values {
      Expr y = widen(b, a.out[0]), ct = widen(b, a.cotangents[0]);
      return {narrow(ct - op::exp(y) * sum_along(ct, a.node.get<SoftmaxAttrs>().axis),
                     a.node.type().dtype)};
    });

constinit const Op<NormAttrs> layer_norm =
    named("x, gamma, beta", norm("layer_norm",
                                 "(x - mean) / sqrt(variance + eps) * gamma + beta "
                                 "along one axis; the variance is the biased one.",
                                 decompose_norm<true>, vjp_norm<true>, "LayerNorm"));
constinit const Op<NormAttrs> rms_norm = named(
    "x, gamma, beta", norm("rms_norm", "x / sqrt(mean(x^2) + eps) * gamma + beta along one axis.",
                           decompose_norm<false>, vjp_norm<false>, "RmsNorm"));

constinit const Op<> softmax_cross_entropy = OpDef{
    .name = "softmax_cross_entropy",
    .doc =
        "-log softmax(logits)[label] over the last axis. A label outside [0, C) raises "
        "\"index-range\".",
    .reference = "SoftmaxCrossEntropyWithLogits",
    .numerics = Numerics::exact,
    .kind = Kind::composite,
    .arity = 2,
    .operands = "logits, labels",
    .dtypes = kFloats,
    .infer = infer_cross_entropy,
    .decompose = decompose_cross_entropy,
    .vjp = vjp_cross_entropy,
    .vmap = vmap_cross_entropy,
};

constinit const Op<RopeAttrs> rope = OpDef{
    .name = "rope",
    .doc =
        "Rotates the pairs (i, i + n_rot/2), i < n_rot/2, or (2 i, 2 i + 1) with interleaved, of "
        "every head by the angle whose cosine and sine stand in row p (the position, "
        "second-to-last axis), column i of the tables; columns n_rot and up are copied.",
    .reference = "Rope",
    .kind = Kind::composite,
    .arity = 3,
    .operands = "x, cos, sin",
    .dtypes = kFloats,
    .infer = infer_rope,
    .normalise = normalise_rope,
    .decompose = decompose_rope,
    .vjp = vjp_rope,
    .vmap = vmap_rope,
};

}  // namespace op

namespace {
constexpr const OpDef* kNnOps[] = {
    &op::gelu,
    &op::gelu_tanh,
    &op::silu,
    &op::softmax,
    &op::log_softmax,
    &op::layer_norm,
    &op::rms_norm,
    &op::softmax_cross_entropy,
    &op::rope,
    &op::attention,
    &op::attention_backward,
    &op::attention_gradient,
};
}  // namespace
constinit const Family kNn{"nn", kNnOps};

}  // namespace rlx
