// int8 and fake quantisation, and ONNX's linear quantisation.
#include "rlx/ops/quant/quantise.h"

#include <cmath>

#include "rlx/ops/control/control_hooks.h"
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/elementwise/math.h"
#include "rlx/ops/linalg/linalg.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/quant/quant_rules.h"
#include "rlx/ops/reduce/reduce.h"

namespace rlx {

Expr round_half_away(Expr x) {
  const Expr whole = op::trunc(x);
  const Expr next = whole + Expr(op::sign(x));
  return x.make(op::select(x.builder(), op::ge(op::abs(x - whole), x.like(0.5)), next, whole));
}

Value channel_view(Builder& b, Value v, int64_t rank, std::optional<int64_t> axis) {
  Shape shape(axis ? static_cast<size_t>(rank) : 0, Dim(1));
  if (axis) shape[static_cast<size_t>(*axis)] = b.shape(v)[0];
  return reshape_to(b, v, shape);
}

namespace {

Expr widened(Builder& b, Value v) { return {b, cast_to(b, v, wide_of(b.type(v).dtype))}; }

Dim channels_of(const Type& x, std::optional<int64_t> axis) {
  return axis ? x.shape[static_cast<size_t>(*axis)] : Dim(1);
}

// ---- quantize, dequantize -------------------------------------------------------------------------------

void require_scales(const InferArgs& a) {
  const auto& q = a.get<QuantizeAttrs>();
  const Dim channels = channels_of(a.in[0], q.axis);
  if (channels != Dim(static_cast<int64_t>(q.scales.size())) ||
      q.zero_points.size() != q.scales.size())
    bad_operands(a, "quant-scales",
                 fmt::format("{} scales and {} zero points for {} channels; each needs one of both",
                             q.scales.size(), q.zero_points.size(), channels));
  for (double s : q.scales)
    if (!(s > 0) || std::isinf(s))
      bad_operands(a, "quant-scales",
                   fmt::format("a scale must be positive and finite, not {}", s));
  for (int64_t z : q.zero_points)
    if (z < -128 || z > 127)
      bad_operands(a, "quant-scales", fmt::format("a zero point must be an i8, not {}", z));
}

// A list of per-channel numbers as a constant that broadcasts against x.
template <class List, class F>
Expr channel_constant(Expr x, const List& list, std::optional<int64_t> axis, F value) {
  Tensor t(x.dtype(), {static_cast<int64_t>(list.size())});
  for (size_t i = 0; i < list.size(); ++i)
    t.set_float(static_cast<int64_t>(i), value(static_cast<double>(list[i])));
  Builder& b = x.builder();
  return x.make(channel_view(b, b.constant(std::move(t)), x.rank(), axis));
}

double as_f32(double v) { return static_cast<double>(static_cast<float>(v)); }

// clamp(v + zero_point) as an integer of the dtype; NaN counts as 0.
Value to_integer(Expr v, Value zero_point, DType dtype) {
  Builder& b = v.builder();
  const double low = dtype == DType::I8 ? -128 : 0, high = dtype == DType::I8 ? 127 : 255;
  const Expr number(b, op::select(b, op::is_nan(v), v.like(0), v));
  return cast_to(b, op::clamp(b, number + Expr(b, zero_point), v.like(low), v.like(high)), dtype);
}

Values decompose_quantize(Builder& b, const Node& n, Operands in) {
  const auto& q = n.get<QuantizeAttrs>();
  const Expr x = widened(b, in[0]);
  const bool single = x.dtype() == DType::F32;
  const Expr inverse = channel_constant(
      x, q.scales, q.axis, [&](double s) { return single ? 1.0f / static_cast<float>(s) : 1 / s; });
  const Expr zero = channel_constant(x, q.zero_points, q.axis, [](double z) { return z; });
  return {to_integer(round_half_away(x * inverse), zero, DType::I8)};
}

Values decompose_dequantize(Builder& b, const Node& n, Operands in) {
  const auto& q = n.get<QuantizeAttrs>();
  const Expr x(b, cast_to(b, in[0], DType::F32));
  const Expr scale = channel_constant(x, q.scales, q.axis, as_f32);
  const Expr zero = channel_constant(x, q.zero_points, q.axis, [](double z) { return z; });
  return {(x - zero) * scale};
}

// ---- straight through -----------------------------------------------------------------------------------

// A derivative between floats and codes, whose own are f64: the same numbers. What was widened for codes alone comes back
// as it was.
Value passed_on(Builder& b, Value t, DType to) {
  const Node& n = b.node(t);
  const bool was_widened = n.op == &op::cast && b.type(t).dtype == DType::F64;
  return was_widened && b.type(n.in[0]).dtype == to ? n.in[0] : cast_to(b, t, to);
}

// Rounding and clipping are taken as the identity of operand 0; its scale and zero point are constants of the codes.
Values jvp_straight_through(Builder& b, const JvpArgs& a) {
  Values out(a.node.out.size(), kNone);
  if (a.tangents[0].valid())
    out[0] = passed_on(b, a.tangents[0], derivative_type(a.node.out[0]).dtype);
  return out;
}

Values vjp_straight_through(Builder& b, const VjpArgs& a) {
  Values out(a.in.size(), kNone);
  if (a.cotangents[0].valid())
    out[0] = passed_on(b, a.cotangents[0], derivative_type(b.type(a.in[0])).dtype);
  return out;
}

// The op with its channels one axis further back.
Values vmap_quantize(Builder& b, const VmapArgs& a) {
  auto q = a.node.get<QuantizeAttrs>();
  if (q.axis) ++*q.axis;
  return b.emit(*a.node.op, q, a.in);
}

// ---- fake quantisation ----------------------------------------------------------------------------------

constexpr double kSmallestScale = 1e-12;

double q_max(int64_t bits) { return static_cast<double>((1 << (bits - 1)) - 1); }

void require_bits(const InferArgs& a, int64_t bits) {
  if (bits < 2 || bits > 8)
    bad_operands(a, "quant-bits", fmt::format("bits must be 2 to 8, not {}", bits));
}

void require_channel_operand(const InferArgs& a, size_t i, std::optional<int64_t> axis) {
  const Type want{wide_of(a.in[0].dtype), {channels_of(a.in[0], axis)}};
  if (a.in[i].dtype != want.dtype || a.in[i].rank() != 1 || differ(a.in[i].shape[0], want.shape[0]))
    bad_operands(a, "quant-state", fmt::format("{} must be {}", a.name(i), want));
}

void require_like_x(const InferArgs& a, size_t i) {
  if (a.in[i].dtype != a.in[0].dtype || a.in[i].rank() != a.in[0].rank())
    bad_operands(a, "quant-operands", fmt::format("{} must be {}", a.name(i), a.in[0]));
  for (size_t d = 0; d < a.in[0].shape.size(); ++d)
    if (differ(a.in[i].shape[d], a.in[0].shape[d]))
      bad_operands(a, "quant-operands", fmt::format("{} must be {}", a.name(i), a.in[0]));
}

Ints other_axes(int64_t rank, std::optional<int64_t> axis) {
  Ints out;
  for (int64_t i = 0; i < rank; ++i)
    if (i != axis) out.push_back(i);
  return out;
}

// Scale and limit = q_max * scale of each channel, as they broadcast against x.
struct Range {
  Expr scale, limit;
};

// From the largest magnitude, which is the limit exactly; 0 where there are no elements.
Range batch_range(Expr x, int64_t bits, std::optional<int64_t> axis) {
  Builder& b = x.builder();
  const Ints axes = other_axes(x.rank(), axis);
  Value most = op::abs(x);
  if (count_of(x.shape(), axes) == Dim(0)) {
    Shape shape(x.shape());
    for (int64_t a : axes) shape[static_cast<size_t>(a)] = 1;
    most = full(b, {x.dtype(), shape}, 0);
  } else if (!axes.empty()) {
    most = op::reduce_max(b, most, {.axes = axes, .keepdims = true});
  }
  const Expr limit(b, op::maximum(b, most, x.like(kSmallestScale * q_max(bits))));
  return {x.make(op::maximum(limit / q_max(bits), x.like(kSmallestScale))), limit};
}

// From scales [C].
Range given_range(Expr x, Value scales, int64_t bits, std::optional<int64_t> axis) {
  Builder& b = x.builder();
  const Expr given(b, channel_view(b, scales, x.rank(), axis));
  const Expr scale = op::maximum(given, given.like(kSmallestScale));
  return {scale, scale * q_max(bits)};
}

Expr quantised(Expr x, Expr scale, int64_t bits) {
  const Expr q = round_half_away(x / scale);
  return x.make(op::clamp(x.builder(), q, x.like(-q_max(bits)), x.like(q_max(bits)))) * scale;
}

Types infer_fake_quantize(const InferArgs& a) {
  const auto& f = a.get<FakeQuantizeAttrs>();
  require_bits(a, f.bits);
  if (!(f.decay >= 0 && f.decay <= 1))
    bad_operands(a, "quant-state", fmt::format("decay must be in [0, 1], not {}", f.decay));
  const bool stateful = f.scale_mode != ScaleMode::per_batch;
  if ((a.in.size() == 2) != stateful)
    bad_operands(a, "quant-state",
                 stateful ? "this scale mode needs a state" : "per_batch takes no state");
  if (stateful) require_channel_operand(a, 1, f.axis);
  if (f.scale_mode == ScaleMode::ema) return {a.in[0], a.in[1]};
  return {a.in[0]};
}

Values decompose_fake_quantize(Builder& b, const Node& n, Operands in) {
  const auto& f = n.get<FakeQuantizeAttrs>();
  const DType dtype = b.type(in[0]).dtype;
  const Expr x = widened(b, in[0]);
  if (f.scale_mode == ScaleMode::fixed)
    return {cast_to(b, quantised(x, given_range(x, in[1], f.bits, f.axis).scale, f.bits), dtype)};
  const Range now = batch_range(x, f.bits, f.axis);
  if (f.scale_mode == ScaleMode::per_batch)
    return {cast_to(b, quantised(x, now.scale, f.bits), dtype)};
  const Expr state(b, in[1]), current(b, reshape_to(b, now.scale, state.shape()));
  const Expr average = state * f.decay + current * (1 - f.decay);
  const Value scales = op::select(b, op::le(state, state.like(0)), current, average);
  const Expr scale(b, channel_view(b, scales, x.rank(), f.axis));
  return {cast_to(b, quantised(x, scale, f.bits), dtype), scales};
}

// t times the stand-in derivative; the scale counts as a constant.
Value straight_through(Builder& b, const Node& n, Value x, Operands in, Operands out, Value t) {
  const auto& f = n.get<FakeQuantizeAttrs>();
  if (f.ste == SteKind::identity) return t;
  Values operands{x, t};
  if (f.scale_mode == ScaleMode::fixed) operands.push_back(in[1]);
  if (f.scale_mode == ScaleMode::ema) operands.push_back(out[1]);
  return b.emit(*&op::fake_quantize_backward, FakeQuantizeBackwardAttrs{f.bits, f.axis, f.ste},
                operands)[0];
}

Values jvp_fake_quantize(Builder& b, const JvpArgs& a) {
  Values out(a.node.out.size(), kNone);
  if (a.tangents[0].valid())
    out[0] = straight_through(b, a.node, a.in[0], a.in, a.out, a.tangents[0]);
  return out;
}

Values vjp_fake_quantize(Builder& b, const VjpArgs& a) {
  Values out(a.in.size(), kNone);
  if (a.cotangents[0].valid())
    out[0] = straight_through(b, a.node, a.in[0], a.in, a.out, a.cotangents[0]);
  return out;
}

// Channels of all batches side by side as the channels of one tensor: [B, .., C, ..] as [.., B * C, ..] (no axis: B
// channels), and per-channel operands [C] as [B * C]. The stand-in derivatives stay those of the op.
template <class A>
Values vmap_channels(Builder& b, const VmapArgs& a) {
  A attrs = a.node.get<A>();
  const int64_t axis = attrs.axis.value_or(0);
  const Dim channels = channels_of({DType::F32, a.node.out[0].shape}, attrs.axis) * a.size;
  Values in;
  for (size_t i = 0; i < a.in.size(); ++i) {
    Value v = a.batched[i] ? a.in[i] : batch_operand(b, a.in[i], a.size);
    if (i == 0 && attrs.axis) {
      v = swap_blocks(b, v, 0, 1, axis);
      Shape shape = b.shape(v);
      shape.erase(shape.begin() + axis);
      shape[static_cast<size_t>(axis)] = channels;
      v = reshape_to(b, v, shape);
    }
    in.push_back(i == 0 ? v : reshape_to(b, v, {channels}));
  }
  attrs.axis = axis;
  Values out = b.emit(*a.node.op, attrs, in);
  if (a.node.get<A>().axis) {
    Shape shape = a.node.out[0].shape;
    shape.insert(shape.begin() + axis, a.size);
    out[0] = swap_blocks(b, reshape_to(b, out[0], shape), 0, axis, 1);
  }
  for (size_t i = 1; i < out.size(); ++i)
    out[i] = reshape_to(b, out[i], prepend(a.size, a.node.out[i].shape));
  return out;
}

Types infer_fake_quantize_backward(const InferArgs& a) {
  const auto& f = a.get<FakeQuantizeBackwardAttrs>();
  require_bits(a, f.bits);
  require_like_x(a, 1);
  if (a.in.size() == 3) require_channel_operand(a, 2, f.axis);
  return {a.in[0]};
}

Values decompose_fake_quantize_backward(Builder& b, const Node& n, Operands in) {
  const auto& f = n.get<FakeQuantizeBackwardAttrs>();
  if (f.ste == SteKind::identity) return {in[1]};
  const Expr x = widened(b, in[0]), dy = widened(b, in[1]), zero = x.like(0);
  const Range r =
      in.size() == 3 ? given_range(x, in[2], f.bits, f.axis) : batch_range(x, f.bits, f.axis);
  const Expr size = op::abs(x);
  Value dx;
  if (f.ste == SteKind::clipped_identity)
    dx = op::select(b, op::le(size, r.limit), dy, zero);
  else if (f.ste == SteKind::tanh)
    dx = dy * (op::logistic_pdf(x * 2.0 / r.scale) * 4.0);  // 1 - tanh(x / scale)^2
  else
    dx = dy * Expr(op::maximum(1.0 - size / r.limit, zero));
  return {cast_to(b, dx, b.type(in[0]).dtype)};
}

// ---- learned scales (LSQ) -------------------------------------------------------------------------------

Types infer_lsq(const InferArgs& a) {
  const auto& f = a.get<LsqAttrs>();
  require_bits(a, f.bits);
  require_channel_operand(a, 1, f.axis);
  if (a.in.size() == 3) require_like_x(a, 2);
  return {a.in[0]};
}
Types infer_lsq_scale(const InferArgs& a) {
  infer_lsq(a);
  return {a.in[1]};
}

Values decompose_lsq(Builder& b, const Node& n, Operands in) {
  const auto& f = n.get<LsqAttrs>();
  const Expr x = widened(b, in[0]);
  const Range r = given_range(x, in[1], f.bits, f.axis);
  return {cast_to(b, quantised(x, r.scale, f.bits), b.type(in[0]).dtype)};
}

// Whether x / scale is in range.
Value inside(Expr z, int64_t bits) { return op::le(op::abs(z), z.like(q_max(bits))); }

Values decompose_lsq_x(Builder& b, const Node& n, Operands in) {
  const auto& f = n.get<LsqAttrs>();
  const Expr x = widened(b, in[0]), z = x / given_range(x, in[1], f.bits, f.axis).scale;
  return {op::select(b, inside(z, f.bits), in[2], b.constant_like(in[2], 0))};
}

// d value / d scale in x's shape, wide: rhaz(z) - z inside the range, +-q_max outside.
Expr scale_partial(Builder& b, const LsqAttrs& f, Value x_in, Value scales) {
  const Expr x = widened(b, x_in), z = x / given_range(x, scales, f.bits, f.axis).scale;
  const Expr partial(b, op::select(b, inside(z, f.bits), round_half_away(z) - z,
                                   Expr(op::sign(z)) * q_max(f.bits)));
  if (!f.gradient_scale) return partial;
  // In double, as it is where the sizes are known and it is folded.
  const Expr count(b, dim_value(b, count_of(x.shape(), other_axes(x.rank(), f.axis)), DType::F64));
  return partial * Expr(b, cast_to(b, op::rsqrt(count * q_max(f.bits)), x.dtype()));
}

Values decompose_lsq_scale(Builder& b, const Node& n, Operands in) {
  const auto& f = n.get<LsqAttrs>();
  const Expr product = scale_partial(b, f, in[0], in[1]) * widened(b, in[2]);
  const Value sum = sum_axes(b, product, other_axes(product.rank(), f.axis));
  return {reshape_to(b, sum, b.shape(in[1]))};
}

Values jvp_lsq(Builder& b, const JvpArgs& a) {
  const auto& f = a.node.get<LsqAttrs>();
  Value sum = kNone;
  if (a.tangents[0].valid())
    sum = op::fake_quantize_lsq_backward_x(b, a.in[0], a.in[1], a.tangents[0], f);
  if (a.tangents[1].valid()) {
    const Expr partial = scale_partial(b, f, a.in[0], a.in[1]);
    const Expr t(b, channel_view(b, a.tangents[1], partial.rank(), f.axis));
    sum = add_maybe(b, sum, cast_to(b, partial * t, b.type(a.in[0]).dtype));
  }
  return {sum};
}

Values vjp_lsq(Builder& b, const VjpArgs& a) {
  const auto& f = a.node.get<LsqAttrs>();
  const Value g = a.cotangents[0];
  return {a.wanted[0] ? op::fake_quantize_lsq_backward_x(b, a.in[0], a.in[1], g, f) : kNone,
          a.wanted[1] ? op::fake_quantize_lsq_backward_scale(b, a.in[0], a.in[1], g, f) : kNone};
}

// ---- ONNX -----------------------------------------------------------------------------------------------

Types infer_dynamic(const InferArgs& a) {
  return {{DType::U8, a.in[0].shape}, {DType::F32, {}}, {DType::U8, {}}};
}

Values decompose_dynamic(Builder& b, const Node&, Operands in) {
  const Expr x(b, in[0]), zero = x.like(0), one = x.like(1);
  Value low = zero, high = zero;  // the range always contains 0
  if (x.shape().elements() != Dim(0)) {
    const Ints axes = other_axes(x.rank(), std::nullopt);
    auto extreme = [&](const Op<ReduceAttrs>& reduce) {
      return axes.empty() ? x.value() : reduce(b, x, {.axes = axes});
    };
    low = op::minimum(b, extreme(op::reduce_min), zero);
    high = op::maximum(b, extreme(op::reduce_max), zero);
  }
  const Expr range = (Expr(b, high) - Expr(b, low)) / 255.0;
  const Expr scale(b, op::select(b, op::eq(range, zero), one, range));
  const Value zp = to_integer(Expr(op::round(-Expr(b, low) / scale)), zero, DType::U8);
  return {to_integer(Expr(op::round(x / scale)), cast_to(b, zp, DType::F32), DType::U8), scale, zp};
}

// A scale and zero point for each of the batch, which are constants of the codes still.
Values vmap_dynamic(Builder& b, const VmapArgs& a) {
  Builder one("dynamic");
  const Type x{DType::F32, a.node.out[0].shape};
  const Values made = decompose_dynamic(one, a.node, Values{one.input("x", x)});
  for (size_t i = 1; i < made.size(); ++i) one.output(op::stop_gradient(one, made[i]));
  const Graph ranges = drop_dead(one.finish());
  const BodyVmap each = a.bodies->vmap(ranges, {true}, a.size, {true, true});
  const Values found = b.inline_graph(each.graph, Values{a.in[0]});
  return {op::quantize_linear(b, a.in[0], found[0], found[1], {.axis = 0}), found[0], found[1]};
}

// A scale or zero point is a scalar or has one element per channel.
void require_linear_operand(const InferArgs& a, size_t i, int64_t axis) {
  const Shape& s = a.in[i].shape;
  const bool fits = s.empty() || (s.size() == 1 && axis >= 0 && axis < a.in[0].rank() &&
                                  !differ(s[0], a.in[0].shape[static_cast<size_t>(axis)]));
  if (!fits)
    bad_operands(a, "quant-operands",
                 fmt::format("{} must be a scalar or have the size of axis {}", a.name(i), axis));
}

template <class A>
void normalise_linear(void* attrs, std::string_view op, std::span<const Type> in) {
  auto& axis = static_cast<A*>(attrs)->axis;
  if (in[1].rank() == 1) axis = normalise_axis(axis, in[0].rank(), op);
}

Value linear_view(Builder& b, Value v, int64_t rank, int64_t axis) {
  return b.shape(v).empty() ? v : channel_view(b, v, rank, axis);
}

// Scales of the batch, if there are any, are those of channels: [B] with the batch as channels, [B, C] with channels of
// all batches side by side.
template <class A>
Values vmap_linear(Builder& b, const VmapArgs& a) {
  A attrs = a.node.get<A>();
  const Type x = {DType::F32, a.node.out[0].shape};
  bool has_channels = false, has_batch = false;
  for (size_t i = 1; i < a.in.size(); ++i) {
    has_channels = has_channels || b.type(a.in[i]).rank() - (a.batched[i] ? 1 : 0) == 1;
    has_batch = has_batch || a.batched[i];
  }
  const int64_t axis = has_channels ? attrs.axis : 0;
  Values in(a.in.begin(), a.in.end());
  if (!a.batched[0]) in[0] = batch_operand(b, in[0], a.size);
  attrs.axis = has_channels && !has_batch ? axis + 1 : axis;
  if (!has_batch) return b.emit(*a.node.op, attrs, in);
  const Dim channels = has_channels ? x.shape[at(axis)] : Dim(1);
  for (size_t i = 1; i < in.size(); ++i) {
    Value v = a.batched[i] ? in[i] : batch_operand(b, in[i], a.size);
    if (b.type(v).rank() == 1) v = reshape_to(b, v, {a.size, 1});
    in[i] = reshape_to(b, broadcast_to(b, v, {a.size, channels}), {a.size * channels});
  }
  if (!has_channels) return b.emit(*a.node.op, attrs, in);
  Shape split = x.shape, joined = x.shape;
  split.insert(split.begin() + axis, a.size);
  joined[at(axis)] = a.size * channels;
  in[0] = reshape_to(b, swap_blocks(b, in[0], 0, 1, axis), joined);
  const Value y = b.emit(*a.node.op, attrs, in)[0];
  return {swap_blocks(b, reshape_to(b, y, split), 0, axis, 1)};
}

Types infer_quantize_linear(const InferArgs& a) {
  const auto& q = a.get<QuantizeLinearAttrs>();
  const DType to = a.in.size() == 3 ? a.in[2].dtype : q.dtype;
  if (a.in[1].dtype != a.in[0].dtype)
    bad_operands(a, "dtype-mixed", "x and the scale must have one dtype");
  for (DType d : {to, q.dtype})
    if (d != DType::U8 && d != DType::I8)
      bad_operands(a, "dtype", fmt::format("the result is u8 or i8, not {}", d));
  for (size_t i = 1; i < a.in.size(); ++i) require_linear_operand(a, i, q.axis);
  return {{to, a.in[0].shape}};
}

Values decompose_quantize_linear(Builder& b, const Node& n, Operands in) {
  const int64_t axis = n.get<QuantizeLinearAttrs>().axis;
  const Expr x = widened(b, in[0]), scale = widened(b, linear_view(b, in[1], x.rank(), axis));
  const Value zero = in.size() == 3 ? cast_to(b, linear_view(b, in[2], x.rank(), axis), x.dtype())
                                    : x.like(0).value();
  return {to_integer(Expr(op::round(x / scale)), zero, n.out[0].dtype)};
}

Types infer_dequantize_linear(const InferArgs& a) {
  const int64_t axis = a.get<DequantizeLinearAttrs>().axis;
  if (!kFloats.has(a.in[1].dtype)) bad_operands(a, "dtype", "the scale must be of floats");
  if (a.in.size() == 3 && a.in[2].dtype != a.in[0].dtype)
    bad_operands(a, "dtype-mixed", "x and the zero point must have one dtype");
  for (size_t i = 1; i < a.in.size(); ++i) require_linear_operand(a, i, axis);
  return {{a.in[1].dtype, a.in[0].shape}};
}

// x less its zero point, in what the scale is computed in.
Expr linear_steps(Builder& b, const Node& n, Operands in) {
  Expr x(b, cast_to(b, in[0], DType::I32));
  if (in.size() == 3) {
    const Value zero = linear_view(b, in[2], x.rank(), n.get<DequantizeLinearAttrs>().axis);
    x = x - Expr(b, cast_to(b, zero, DType::I32));
  }
  return {b, cast_to(b, x, wide_of(b.type(in[1]).dtype))};
}

// The scale, or a tangent of it, as it broadcasts against x.
Expr linear_scale(Builder& b, const Node& n, Value scale) {
  return widened(b, linear_view(b, scale, n.type().rank(), n.get<DequantizeLinearAttrs>().axis));
}

Values decompose_dequantize_linear(Builder& b, const Node& n, Operands in) {
  const Expr value = linear_steps(b, n, in) * linear_scale(b, n, in[1]);
  return {cast_to(b, broadcast_to(b, value, n.out[0].shape), n.out[0].dtype)};
}

// Straight through by the codes; by the scale it is the product that it says.
Values jvp_dequantize_linear(Builder& b, const JvpArgs& a) {
  Values out = jvp_straight_through(b, a);
  if (!a.tangents[1].valid()) return out;
  const Expr moved = linear_steps(b, a.node, a.in) * linear_scale(b, a.node, a.tangents[1]);
  const Value by_scale = broadcast_to(b, moved, a.node.type().shape);
  return {add_maybe(b, out[0], cast_to(b, by_scale, a.node.type().dtype))};
}

Values vjp_dequantize_linear(Builder& b, const VjpArgs& a) {
  Values out = vjp_straight_through(b, a);
  if (!a.wanted[1]) return out;
  const Expr all = linear_steps(b, a.node, a.in) * widened(b, a.cotangents[0]);
  const Value scale = a.in[1];
  const Shape view = linear_scale(b, a.node, scale).shape();
  const Value sum = reshape_to(b, unbroadcast(b, all, view), Shape(b.shape(scale)));
  out[1] = cast_to(b, sum, b.type(scale).dtype);
  return out;
}

}  // namespace

namespace op {

constinit const Op<QuantizeAttrs> quantize = OpDef{
    .name = "quantize",
    .doc =
        "i8 codes clamp(rhaz(x * (1 / scale)) + zero_point, -128, 127) with a scale and zero point "
        "per "
        "channel. NaN counts as 0. The derivative is straight through: dequantize of the codes has "
        "that of x, saturated or not.",
    .reference = "Quantize",
    .numerics = Numerics::exact,
    .dtypes = kFloats,
    .passes_codes = true,
    .infer = [](const InferArgs& a) -> Types {
      require_scales(a);
      return {{DType::I8, a.in[0].shape}};
    },
    .normalise = normalise_channel<QuantizeAttrs>,
    .decompose = decompose_quantize,
    .jvp = jvp_straight_through,
    .vjp = vjp_straight_through,
    .vmap = vmap_quantize,
};

constinit const Op<QuantizeAttrs> dequantize = OpDef{
    .name = "dequantize",
    .doc =
        "f32 values (q - zero_point) * scale of i8 codes, with a scale and zero point per channel. "
        "The derivative is straight through: that of what was quantised to the codes.",
    .reference = "Dequantize",
    .numerics = Numerics::exact,
    .dtypes = {DType::I8},
    .passes_codes = true,
    .infer = [](const InferArgs& a) -> Types {
      require_scales(a);
      return {{DType::F32, a.in[0].shape}};
    },
    .normalise = normalise_channel<QuantizeAttrs>,
    .decompose = decompose_dequantize,
    .jvp = jvp_straight_through,
    .vjp = vjp_straight_through,
    .vmap = vmap_quantize,
};

constinit const Op<FakeQuantizeAttrs> fake_quantize = OpDef{
    .name = "fake_quantize",
    .doc =
        "clamp(rhaz(x / s), -q_max, q_max) * s, q_max = 2^(bits - 1) - 1, with a scale s per "
        "channel, at "
        "least 1e-12: per_batch the largest |x| / q_max; fixed the second operand; ema the average "
        "decay * state "
        "+ (1 - decay) * (the per_batch scale), or that scale where the state is not positive, "
        "which is also the "
        "second result. The derivative is the chosen stand-in (SteKind) by x and 0 by the state.",
    .reference = "FakeQuantize",
    .numerics = Numerics::exact,
    .arity = 2,
    .min_arity = 1,
    .operands = "x, state?",
    .dtypes = kFloats,
    .infer = infer_fake_quantize,
    .normalise = normalise_channel<FakeQuantizeAttrs>,
    .decompose = decompose_fake_quantize,
    .jvp = jvp_fake_quantize,
    .vjp = vjp_fake_quantize,
    .vmap = vmap_channels<FakeQuantizeAttrs>,
};

constinit const Op<FakeQuantizeBackwardAttrs> fake_quantize_backward = OpDef{
    .name = "fake_quantize_backward",
    .doc =
        "dy times fake_quantize's stand-in derivative at x, for the given scales or, without them, "
        "those of "
        "per_batch: identity 1; clipped_identity 1 where |x| <= q_max * s else 0; tanh 1 - tanh(x "
        "/ s)^2; "
        "hard_tanh max(0, 1 - |x| / (q_max * s)).",
    .reference = "FakeQuantizeBackward",
    .numerics = Numerics::exact,
    .arity = 3,
    .min_arity = 2,
    .operands = "x, dy, scale?",
    .dtypes = kFloats,
    .infer = infer_fake_quantize_backward,
    .normalise = normalise_channel<FakeQuantizeBackwardAttrs>,
    .decompose = decompose_fake_quantize_backward,
};

constinit const Op<LsqAttrs> fake_quantize_lsq = OpDef{
    .name = "fake_quantize_lsq",
    .doc =
        "fake_quantize with learned scales: clamp(rhaz(x / s), -q_max, q_max) * s, s = max(scale, "
        "1e-12). "
        "Derivatives: by x 1 where |x / s| <= q_max else 0; by the scale rhaz(x / s) - x / s there "
        "and "
        "+-q_max elsewhere.",
    .reference = "FakeQuantizeLSQ",
    .numerics = Numerics::exact,
    .arity = 2,
    .operands = "x, scale",
    .dtypes = kFloats,
    .infer = infer_lsq,
    .normalise = normalise_channel<LsqAttrs>,
    .decompose = decompose_lsq,
    .jvp = jvp_lsq,
    .vjp = vjp_lsq,
    .vmap = vmap_channels<LsqAttrs>,
};

constinit const Op<LsqAttrs> fake_quantize_lsq_backward_x = OpDef{
    .name = "fake_quantize_lsq_backward_x",
    .doc = "fake_quantize_lsq's gradient by x: dy where |x / s| <= q_max, else 0.",
    .reference = "FakeQuantizeLSQBackwardX",
    .numerics = Numerics::exact,
    .arity = 3,
    .operands = "x, scale, dy",
    .dtypes = kFloats,
    .infer = infer_lsq,
    .normalise = normalise_channel<LsqAttrs>,
    .decompose = decompose_lsq_x,
};

constinit const Op<LsqAttrs> fake_quantize_lsq_backward_scale = OpDef{
    .name = "fake_quantize_lsq_backward_scale",
    .doc =
        "fake_quantize_lsq's gradient by the scales: the sum over a channel of dy * p, where p is "
        "rhaz(x / s) - x / s for |x / s| <= q_max and +-q_max elsewhere; with gradient_scale "
        "divided by "
        "sqrt(elements of the channel * q_max).",
    .reference = "FakeQuantizeLSQBackwardScale",
    .numerics = Numerics::exact,
    .arity = 3,
    .operands = "x, scale, dy",
    .dtypes = kFloats,
    .infer = infer_lsq_scale,
    .normalise = normalise_channel<LsqAttrs>,
    .decompose = decompose_lsq_scale,
};

constinit const Op<> dynamic_quantize_linear = OpDef{
    .name = "dynamic_quantize_linear",
    .doc =
        "u8 codes, scale and zero point of x's own range, which is made to contain 0: scale = (max "
        "- min) / "
        "255, or 1 when the range is empty; zero point = round(-min / scale); codes = round(x / "
        "scale) + zero "
        "point in [0, 255]. Halves to even. The derivative is straight through; scale and zero "
        "point count as constants.",
    .numerics = Numerics::exact,
    .dtypes = {DType::F32},
    .passes_codes = true,
    .infer = infer_dynamic,
    .decompose = decompose_dynamic,
    .jvp = jvp_straight_through,
    .vjp = vjp_straight_through,
    .vmap = vmap_dynamic,
};

constinit const Op<QuantizeLinearAttrs> quantize_linear = OpDef{
    .name = "quantize_linear",
    .doc =
        "Codes round(x / scale) + zero point, halves to even, saturated to u8 or i8 (the zero "
        "point's dtype). "
        "The scale is a scalar or has one element per index along the axis. NaN counts as 0. The "
        "derivative by x is straight through, by the scale 0.",
    .numerics = Numerics::exact,
    .arity = 3,
    .min_arity = 2,
    .operands = "x, scale, zero_point?",
    .dtypes = kFloats,
    .passes_codes = true,
    .infer = infer_quantize_linear,
    .normalise = normalise_linear<QuantizeLinearAttrs>,
    .decompose = decompose_quantize_linear,
    .jvp = jvp_straight_through,
    .vjp = vjp_straight_through,
    .vmap = vmap_linear<QuantizeLinearAttrs>,
};

constinit const Op<DequantizeLinearAttrs> dequantize_linear = OpDef{
    .name = "dequantize_linear",
    .doc =
        "(x - zero point) * scale in the scale's dtype; differences wrap at 32 bits. The scale is "
        "a scalar or "
        "has one element per index along the axis. The derivative by x is straight through: that "
        "of "
        "what was quantised to it; by the scale it is x - zero point.",
    .numerics = Numerics::exact,
    .arity = 3,
    .min_arity = 2,
    .operands = "x, scale, zero_point?",
    .dtypes = {DType::U8, DType::I8, DType::I16, DType::I32},
    .passes_codes = true,
    .infer = infer_dequantize_linear,
    .normalise = normalise_linear<DequantizeLinearAttrs>,
    .decompose = decompose_dequantize_linear,
    .jvp = jvp_dequantize_linear,
    .vjp = vjp_dequantize_linear,
    .vmap = vmap_linear<DequantizeLinearAttrs>,
};

}  // namespace op

namespace {
constexpr const OpDef* kQuantiseOps[] = {&op::quantize,
                                         &op::dequantize,
                                         &op::fake_quantize,
                                         &op::fake_quantize_backward,
                                         &op::fake_quantize_lsq,
                                         &op::fake_quantize_lsq_backward_x,
                                         &op::fake_quantize_lsq_backward_scale,
                                         &op::dynamic_quantize_linear,
                                         &op::quantize_linear,
                                         &op::dequantize_linear,
                                         &op::matmul_integer,
                                         &op::conv_integer,
                                         &op::q_matmul,
                                         &op::q_conv2d,
                                         &op::quantise_blocks,
                                         &op::dequantise_blocks,
                                         &op::dequant_matmul};
}  // namespace

std::optional<int64_t> quantized_weight_bits(const Graph& g, Value v) {
  const Node& n = g.node(v);
  if (v.index != 0) return std::nullopt;
  if (n.op == &op::fake_quantize) return n.get<FakeQuantizeAttrs>().bits;
  if (n.op == &op::fake_quantize_lsq) return n.get<LsqAttrs>().bits;
  return std::nullopt;
}

constinit const Family kQuantise{"quantisation", kQuantiseOps};

}  // namespace rlx
