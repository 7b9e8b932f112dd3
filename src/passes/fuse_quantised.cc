// Products of what quantize and dequantize (or ONNX's pair) left between them become integer products, and both ops move
// so that more of the program is integers:
//
//   matmul(dequantize(a), dequantize(w))  =  f32(matmul_integer(a, w, zero points)) * (scale of a * scales of w)
//
// That is the one form of a quantised product: an integer op, and behind it ordinary elementwise nodes (scales, bias,
// activation, the next quantize), which fusion makes one region of. q_matmul and q_conv2d, which end in i8, say less (one
// multiplier, no activation, a bias that is rounded) and are defined by the same integer ops, so nothing becomes them.
//
// Sums of integers are exact where those of floats round: results differ from the float form by its rounding alone. A
// NaN, which quantize gives the code of 0, may be another element's after a maximum.
#include <algorithm>

#include "rlx/ops/image/conv.h"
#include "rlx/ops/image/pool.h"
#include "rlx/ops/quant/quantise.h"
#include "rlx/ops/rules.h"
#include "rlx/passes/passes.h"

namespace rlx {

namespace {

using namespace rule_words;

const Pattern dequantised_x = pat({op::dequantize, op::dequantize_linear}).as(x);
const Pattern dequantised_y = pat({op::dequantize, op::dequantize_linear}).as(y);

bool all_zero_points(const Ints& zeros) {
  return std::all_of(zeros.begin(), zeros.end(), [](int64_t z) { return z == 0; });
}

// ---- codes with their scales and zero points, of either op

// The axis of the channels; none where one scale holds for all.
std::optional<int64_t> channel_axis(const Graph& g, const Node& n) {
  if (n.op == &op::dequantize) return n.get<QuantizeAttrs>().axis;
  const auto has_channels = [&](size_t i) {
    return n.in.size() > i && g.type(n.in[i]).rank() == 1;
  };
  if (!has_channels(1) && !has_channels(2)) return std::nullopt;
  return n.get<DequantizeLinearAttrs>().axis;
}

bool has_zero_point(const Node& n) {
  return n.op == &op::dequantize ? !all_zero_points(n.get<QuantizeAttrs>().zero_points)
                                 : n.in.size() > 2;
}

// The largest |code - zero point|.
int64_t reach(const Graph& g, const Node& n) {
  const bool is_unsigned = g.type(n.in[0]).dtype == DType::U8;
  if (n.op != &op::dequantize) return has_zero_point(n) || is_unsigned ? 255 : 128;
  int64_t most = 0;
  for (int64_t z : n.get<QuantizeAttrs>().zero_points) most = std::max({most, z + 128, 127 - z});
  return most;
}

// As an f32 value of rank 0 or [C].
Value scale_value(Builder& b, const Node& n) {
  if (n.op != &op::dequantize) return n.in[1];
  const auto& q = n.get<QuantizeAttrs>();
  Tensor t(DType::F32, q.axis ? Ints{static_cast<int64_t>(q.scales.size())} : Ints{});
  for (size_t i = 0; i < q.scales.size(); ++i) t.set_float(static_cast<int64_t>(i), q.scales[i]);
  return b.constant(std::move(t));
}

// In the dtype of the codes, of rank 0 or [C]; zeros where there are none.
Value zero_value(Builder& b, const Node& n) {
  if (n.op != &op::dequantize)
    return n.in.size() > 2 ? n.in[2] : b.constant(b.type(n.in[0]).dtype, 0);
  const auto& q = n.get<QuantizeAttrs>();
  const bool one = !q.axis || all_zero_points(q.zero_points);
  Tensor t(DType::I8, one ? Ints{} : Ints{static_cast<int64_t>(q.zero_points.size())});
  for (int64_t i = 0; i < t.elements(); ++i) t.set_int(i, q.zero_points[at(i)]);
  return b.constant(std::move(t));
}

// ---- products

bool is_of_bytes(const Graph& g, const Node& n) {
  const DType d = g.type(n.in[0]).dtype;
  return (d == DType::I8 || d == DType::U8) && n.type().dtype == DType::F32;
}

// Sums of so many products stay in 32 bits.
bool sums_fit(const Match& m, const Dim& terms) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  return (terms.is_static() &&
          terms.value() <= kMost / (reach(m.graph(), m.node(x)) * reach(m.graph(), m.node(y)))) ||
         m.refuse(fmt::format("sums of {} products may leave 32 bits", terms));
}

bool are_bytes(const Match& m) {
  return (is_of_bytes(m.graph(), m.node(x)) && is_of_bytes(m.graph(), m.node(y))) ||
         m.refuse("codes are i8 or u8 and what they become is f32");
}

// Where the channels of an operand lie in the result of matmul, or none; `kept` of the last two axes is the one that is
// not summed.
bool channels_are_kept(const Match& m, Var v, int64_t kept) {
  const auto axis = channel_axis(m.graph(), m.node(v));
  return !axis || *axis == m.type(v).rank() - 2 + kept ||
         m.refuse(
             "scales of channels must lie along rows of the first operand or columns of the "
             "second");
}

bool is_integer_matmul(const Match& m) {
  const auto& t = m.get<MatmulAttrs>();
  const int64_t inner = m.type(x).rank() - (t.transpose_a ? 2 : 1);
  return are_bytes(m) && channels_are_kept(m, x, t.transpose_a ? 1 : 0) &&
         channels_are_kept(m, y, t.transpose_b ? 0 : 1) && sums_fit(m, m.shape(x)[at(inner)]);
}

// The zero points of both, where one has any.
void add_zero_points(Builder& b, const Node& a, const Node& w, Values& operands) {
  if (!has_zero_point(a) && !has_zero_point(w)) return;
  operands.push_back(zero_value(b, a));
  operands.push_back(zero_value(b, w));
}

Value scaled_sums(Builder& b, Value sums, Value a_scale, Value w_scale) {
  const Expr scale = Expr(b, a_scale) * Expr(b, w_scale);
  return Expr(b, cast_to(b, sums, DType::F32)) * scale;
}

Value integer_matmul(Builder& b, const Match& m) {
  const Node a = m.node(x), w = m.node(y);  // NOLINT: copies, the graph grows
  const auto t = m.get<MatmulAttrs>();
  Values operands{t.transpose_a ? matrix_transpose(b, a.in[0]) : a.in[0],
                  t.transpose_b ? matrix_transpose(b, w.in[0]) : w.in[0]};
  add_zero_points(b, a, w, operands);
  const Value sums = b.emit(*&op::matmul_integer, NoAttrs{}, operands)[0];
  Value rows = scale_value(b, a);
  if (b.type(rows).rank() == 1) rows = reshape_to(b, rows, {b.shape(rows)[0], 1});
  return scaled_sums(b, sums, rows, scale_value(b, w));
}

bool is_integer_conv(const Match& m) {
  const auto x_axis = channel_axis(m.graph(), m.node(x)),
             w_axis = channel_axis(m.graph(), m.node(y));
  const Shape& w = m.shape(y);
  Dim terms = 1;
  for (size_t i = 1; i < w.size(); ++i) terms = terms * w[i];
  return are_bytes(m) && (!x_axis || m.refuse("x has a scale for each channel")) &&
         (!w_axis || *w_axis == 0 || m.refuse("scales of w are not those of output channels")) &&
         sums_fit(m, terms);
}

Value integer_conv(Builder& b, const Match& m) {
  const Node a = m.node(x), w = m.node(y);  // NOLINT: copies, the graph grows
  Values operands{a.in[0], w.in[0]};
  add_zero_points(b, a, w, operands);
  const Value sums = b.emit(*&op::conv_integer, m.get<ConvAttrs>(), operands)[0];
  Value channels = scale_value(b, w);
  if (b.type(channels).rank() == 1) {
    Shape column(at(b.type(sums).rank() - 1), Dim(1));
    column[0] = b.shape(channels)[0];
    channels = reshape_to(b, channels, column);
  }
  return scaled_sums(b, sums, scale_value(b, a), channels);
}

// ---- what commutes

// The dequantising op x on other codes, with its channels along another axis.
Value dequantised_again(Builder& b, const Match& m, Value codes, std::optional<int64_t> axis = {}) {
  const Node n = m.node(x);  // NOLINT: a copy, the graph grows
  Values operands = n.in;
  operands[0] = codes;
  Attrs attrs = n.attrs;
  if (axis && n.op == &op::dequantize) {
    auto q = n.get<QuantizeAttrs>();
    q.axis = axis;
    attrs = q;
  } else if (axis) {
    attrs = DequantizeLinearAttrs{*axis};
  }
  return b.emit(*n.op, attrs, operands)[0];
}

// Where the channels along `axis` lie behind the movement; -1 where they do not stay whole.
int64_t moved_axis(const Match& m, int64_t axis) {
  const OpDef* by = m.root().op;
  if (by == &op::transpose) {
    const Ints& perm = m.get<TransposeAttrs>().perm;
    return std::find(perm.begin(), perm.end(), axis) - perm.begin();
  }
  if (by == &op::reverse) {
    const Ints& axes = m.get<ReverseAttrs>().axes;
    return std::find(axes.begin(), axes.end(), axis) == axes.end() ? axis : -1;
  }
  const bool kept = by == &op::slice && m.get<SliceAttrs>().start[at(axis)] == Dim(0) &&
                    m.get<SliceAttrs>().stride[at(axis)] == 1 &&
                    m.type().shape[at(axis)] == m.shape(x)[at(axis)];
  return kept ? axis : -1;
}

bool moves_codes(const Match& m) {
  const auto axis = channel_axis(m.graph(), m.node(x));
  return !axis || moved_axis(m, *axis) >= 0 ||
         m.refuse("channels with scales of their own do not stay whole");
}

Value moved_codes(Builder& b, const Match& m) {
  const auto axis = channel_axis(m.graph(), m.node(x));
  const Value codes = b.emit(*m.root().op, m.root().attrs, Values{m.node(x).in[0]})[0];
  return dequantised_again(b, m, codes, axis ? std::optional(moved_axis(m, *axis)) : axis);
}

// Larger codes are larger values.
bool keeps_order(const Match& m) {
  const Node& n = m.node(x);
  if (n.op == &op::dequantize) return true;
  const Node& scale = m.graph().node(n.in[1]);
  const bool known = scale.op == &op::constant;
  for (int64_t i = 0; known && i < scale.get<ConstantAttrs>().value.elements(); ++i)
    if (!(scale.get<ConstantAttrs>().value.get_float(i) > 0))
      return m.refuse("a scale is not above 0");
  return known || m.refuse("the scale may be below 0");
}

bool clips_codes(const Match& m) {
  return (!has_zero_point(m.node(x)) || m.refuse("0 is not the code 0")) && keeps_order(m);
}

Value clipped_codes(Builder& b, const Match& m) {
  const Expr codes(b, m.node(x).in[0]);
  return dequantised_again(b, m, op::maximum(b, codes, codes.like(0)));
}

bool is_max_pool(const Match& m) { return m.get<PoolAttrs>().kind == PoolKind::max; }

// Every window holds an element: without one its value is -infinity, which no code is.
bool holds_elements(const PoolAttrs& p) {
  for (size_t i = 0; i < p.kernel.size(); ++i)
    if (p.low[i] != 0 || p.high[i] != 0) return false;
  return !p.ceil_mode;
}

bool pools_codes(const Match& m) {
  if (!is_max_pool(m)) return false;
  if (channel_axis(m.graph(), m.node(x))) return m.refuse("scales differ between channels");
  return (holds_elements(m.get<PoolAttrs>()) || m.refuse("a window may hold padding alone")) &&
         keeps_order(m);
}

// Concatenation of codes of one scale.
bool joins_codes(const Match& m) {
  const Node& first = m.graph().node(m.root().in[0]);
  if (first.op != &op::dequantize) return false;
  const auto axis = first.get<QuantizeAttrs>().axis;
  for (Value v : m.root().in) {
    const Node& n = m.graph().node(v);
    if (n.op != &op::dequantize) return m.refuse("some operands are not quantised");
    if (!(n.attrs == first.attrs)) return m.refuse("the operands have different scales");
  }
  return !axis || *axis != m.get<AxisAttrs>().axis || m.refuse("it joins channels");
}

Value joined_codes(Builder& b, const Match& m) {
  const Attrs attrs = m.graph().node(m.root().in[0]).attrs;
  Values codes;
  for (Value v : m.root().in) codes.push_back(b.node(v).in[0]);
  const Value all = b.emit(op::concat.def, m.root().attrs, codes)[0];
  return b.emit(op::dequantize.def, attrs, Values{all})[0];
}

// Codes that come back as they were: (q - z) * s rounds to within a part of 10^7, so that its quotient by s is nearest to
// q - z, as long as nothing underflows.
bool comes_back(const Match& m) {
  const auto &there = m.get<QuantizeAttrs>(), &back = m.get<QuantizeAttrs>(y);
  if (there.axis != back.axis || there.zero_points != back.zero_points)
    return m.refuse("the zero points or axes differ");
  for (size_t i = 0; i < there.scales.size(); ++i) {
    const auto a = static_cast<float>(there.scales[i]), c = static_cast<float>(back.scales[i]);
    if (a != c || !(a > 1e-30f && a < 1e30f)) return m.refuse("the scales differ");
  }
  return true;
}

bool one_scale(const Match& m) { return !m.get<QuantizeAttrs>().axis && m.single_use(y); }

Value quantised_before(Builder& b, const Match& m) {
  const Node by = m.node(y);  // NOLINT: a copy, the graph grows
  const Value codes = op::quantize(b, by.in[0], m.get<QuantizeAttrs>());
  return b.emit(*by.op, by.attrs, Values{codes})[0];
}

}  // namespace

const RuleSet& fuse_quantised_rules() {
  static const RuleSet rules{
      {"integer-matmul", pat(op::matmul, {dequantised_x, dequantised_y}), is_integer_matmul,
       integer_matmul},
      {"integer-conv", pat(op::conv, {dequantised_x, dequantised_y}), is_integer_conv,
       integer_conv},

      // dequantize goes behind what moves or chooses elements ..
      {"dequantize-movement",
       pat({op::reshape, op::transpose, op::slice, op::reverse}, {dequantised_x}), moves_codes,
       moved_codes},
      {"dequantize-relu", pat(op::relu, {dequantised_x}), clips_codes, clipped_codes},
      {"dequantize-max-pool", pat(op::pool, {dequantised_x}), pools_codes,
       [](Builder& b, const Match& m) {
         return dequantised_again(b, m, op::pool(b, m.node(x).in[0], m.get<PoolAttrs>()));
       }},
      {"dequantize-concat", pat(op::concat), joins_codes, joined_codes},
      // .. and quantize in front of it, next to the arithmetic whose region it joins.
      {"quantize-movement", pat(op::quantize, {pat({op::reshape, op::transpose}).as(y)}), one_scale,
       quantised_before},
      {"quantize-max-pool", pat(op::quantize, {pat(op::pool).as(y)}),
       [](const Match& m) { return one_scale(m) && m.get<PoolAttrs>(y).kind == PoolKind::max; },
       quantised_before},
      {"quantize-dequantize", pat(op::quantize, {pat(op::dequantize, {x}).as(y)}), comes_back,
       [](Builder&, const Match& m) { return m[x]; }},
  };
  return rules;
}

constinit const Pass pass::fuse_quantised{
    "fuse_quantised", "Products of quantised values become integer products.",
    [](Graph&& g, const PassOptions& o) {
      return rewrite(std::move(g), fuse_quantised_rules(), {.pass = "fuse_quantised"}, o.stats);
    }};

}  // namespace rlx
