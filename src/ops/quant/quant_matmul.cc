// Packed weights, and products with int8 and packed operands.
#include <cmath>

#include "rlx/base/checked.h"
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/image/windows.h"
#include "rlx/ops/linalg/linalg.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/quant/quant_rules.h"
#include "rlx/ops/quant/quantise.h"
#include "rlx/quant/minifloat.h"

namespace rlx {

const FormatInfo& ggml_format(std::string_view op, const QuantScheme& scheme) {
  user_check(scheme.is_gguf(), "quant-scheme",
             "{}: the scheme {} keeps scales apart; allowed are ggml's (gguf_*)", op,
             scheme.to_string());
  return scheme.info();
}

int64_t row_bytes(std::string_view op, const FormatInfo& f, const Dim& k) {
  user_check(k.is_static() && k.value() % f.block_elements == 0, "quant-block",
             "{}: rows of {} elements are not whole blocks of {} ({})", op, k, f.block_elements,
             f.name);
  return mul_or_fail(k.value() / f.block_elements, f.block_bytes,
                     fmt::format("{}: the bytes of a row", op));
}

namespace {

Value to_i32(Builder& b, Value v) { return cast_to(b, v, DType::I32); }

// ---- blocks ---------------------------------------------------------------------------------------------

Types infer_quantise_blocks(const InferArgs& a) {
  const FormatInfo& f = ggml_format(a.op.name, a.get<SchemeAttrs>().scheme);
  if (a.in[0].rank() == 0) bad_operands(a, "quant-block", "x must have rank 1 or more");
  Shape shape = a.in[0].shape;
  shape.back() = row_bytes(a.op.name, f, shape.back());
  return {{DType::U8, shape}};
}

Tensors evaluate_quantise_blocks(const EvalArgs& e) {
  const FormatInfo& f = e.get<SchemeAttrs>().scheme.info();
  Tensor out = e.make();
  std::vector<float> values(at(e.in[0].elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(e.in[0].get_float(static_cast<int64_t>(i)));
  encode_blocks(f, values.data(), e.in[0].elements(), out.mutable_data<uint8_t>());
  return {out};
}

Types infer_dequantise_blocks(const InferArgs& a) {
  const auto& [scheme, shape] = a.get<BlocksAttrs>();
  const FormatInfo& f = ggml_format(a.op.name, scheme);
  if (shape.empty()) bad_operands(a, "quant-block", "the shape must have rank 1 or more");
  Shape packed = shape;
  packed.back() = row_bytes(a.op.name, f, shape.back());
  if (differ(packed.elements(), a.in[0].shape.elements()))
    bad_operands(a, "quant-bytes",
                 fmt::format("{} of {} is {} bytes", shape, f.name, packed.elements()));
  return {{DType::F32, shape}};
}

Tensors evaluate_dequantise_blocks(const EvalArgs& e) {
  Tensor out = e.make();
  decode_blocks(e.get<BlocksAttrs>().scheme.info(), e.in[0].data<uint8_t>(), out.elements(),
                out.mutable_data<float>());
  return {out};
}

// ---- dequant_matmul -------------------------------------------------------------------------------------

Dim groups_of(const Dim& k, int64_t group) { return ceil_div(k.value(), group); }

void require_operand(const InferArgs& a, size_t i, const Type& want) {
  bool fits = a.in[i].dtype == want.dtype && a.in[i].rank() == want.rank();
  for (size_t d = 0; fits && d < want.shape.size(); ++d)
    fits = !differ(a.in[i].shape[d], want.shape[d]);
  if (!fits) bad_operands(a, "quant-operands", fmt::format("{} must be {}", a.name(i), want));
}

// Columns of a ggml weight whose rows have K elements.
Dim packed_columns(const InferArgs& a, const FormatInfo& f, const Dim& k) {
  const int64_t row = row_bytes(a.op.name, f, k);
  const Dim bytes = a.in[1].shape.elements();
  if (a.in[1].dtype != DType::U8) bad_operands(a, "dtype", "packed weights are u8");
  const auto n = row ? bytes.divide(Dim(row)) : std::nullopt;
  if (!n)
    bad_operands(a, "quant-bytes",
                 fmt::format("{} bytes are not whole rows of {} bytes", bytes, row));
  return *n;
}

// Columns of a weight with its scales apart; checks all its operands.
Dim coded_columns(const InferArgs& a, const QuantScheme& s, const Dim& k) {
  const bool needs_fourth = s.has_zero_point() || s.scale_is_fp8();
  if (a.in.size() < (needs_fourth ? 4 : 3))
    bad_operands(a, "quant-operands",
                 fmt::format("{} takes {} operands", s.to_string(), needs_fourth ? 4 : 3));
  if (!k.is_static()) bad_operands(a, "quant-block", fmt::format("K = {} must be known", k));
  const DType wide = wide_of(a.in[0].dtype);
  if (a.in[2].rank() < 1) bad_operands(a, "quant-operands", "scales have rank 1 or 2");
  const Dim n = a.in[2].shape.back();
  const Type scale{s.scale_is_fp8() ? DType::U8 : wide,
                   s.has_scale() ? Shape{groups_of(k, s.group), n} : Shape{n}};
  require_operand(a, 2, scale);
  if (s.scale_is_fp8()) require_operand(a, 3, {wide, {1}});
  if (s.has_zero_point()) require_operand(a, 3, scale);
  if (!needs_fourth && a.in.size() > 3 && a.in[3].dtype != wide)
    bad_operands(a, "quant-operands",
                 fmt::format("the zero points, though not read, are {}", wide));
  if (s.info().block_elements == 2) {  // nibbles
    if (a.in[1].dtype != DType::U8) bad_operands(a, "dtype", "nibbles are u8");
    if (!n.is_static() ||
        differ(a.in[1].shape.elements(), ceil_div(k.value() * n.value(), int64_t{2})))
      bad_operands(a, "quant-bytes",
                   fmt::format("[{}, {}] nibbles, two to a byte, do not fill the weights", k, n));
  } else {
    const bool fp8 = s.format == QuantFormat::fp8_e4m3 || s.format == QuantFormat::fp8_e5m2;
    require_operand(a, 1, {fp8 ? DType::U8 : DType::I8, {k, n}});
  }
  return n;
}

Types infer_dequant_matmul(const InferArgs& a) {
  const QuantScheme& s = a.get<SchemeAttrs>().scheme;
  if (a.in[0].rank() < 2) bad_operands(a, "matmul-rank", "x must have rank 2 or more");
  Shape shape = a.in[0].shape;
  if (s.is_gguf() && a.in.size() != 2)
    bad_operands(a, "quant-operands", fmt::format("{} takes two operands", s.to_string()));
  shape.back() =
      s.is_gguf() ? packed_columns(a, s.info(), shape.back()) : coded_columns(a, s, shape.back());
  return {{a.in[0].dtype, shape}};
}

// The numbers of all codes of a format, as a constant.
Value code_table(Builder& b, const FormatInfo& f, DType dtype) {
  const int64_t codes = f.block_elements == 2 ? 16 : 256;
  Tensor t(dtype, {codes});
  for (int64_t i = 0; i < codes; ++i) {
    const auto byte = static_cast<uint8_t>(i);
    float values[2];
    f.decode(&byte, values);
    t.set_float(i, static_cast<double>(values[0]));
  }
  return b.constant(std::move(t));
}

// `count` nibbles of u8 bytes as a vector, low ones first.
Value unpack_nibbles(Builder& b, Value bytes, int64_t count) {
  const Expr flat(b, reshape_to(b, bytes, {b.shape(bytes).elements(), 1}));
  const Values halves{op::rem(flat, flat.like(16)), op::div(flat, flat.like(16))};
  const Value pairs = b.emit(*&op::concat, AxisAttrs{1}, halves)[0];
  const Value all = reshape_to(b, pairs, {b.shape(pairs).elements()});
  return op::slice(b, all, {{0}, {count}, {}});
}

// One row per group of K elements as K rows.
Value repeat_rows(Builder& b, Value x, int64_t group, const Dim& k) {
  const Dim rows = b.shape(x)[0], n = b.shape(x)[1];
  const Value spread = broadcast_to(b, reshape_to(b, x, {rows, 1, n}), {rows, group, n});
  const Value all = reshape_to(b, spread, {rows * Dim(group), n});
  return b.shape(all)[0] == k ? all : op::slice(b, all, {{0, 0}, {k, n}, {}});
}

// The weight [K, N] of a scheme with scales apart.
Value coded_weight(Builder& b, const QuantScheme& s, Operands in, const Dim& k, DType wide) {
  const FormatInfo& f = s.info();
  const Dim n = b.shape(in[2]).back();
  Value codes = in[1];
  if (f.block_elements == 2)
    codes = reshape_to(b, unpack_nibbles(b, codes, k.value() * n.value()), {k, n});
  // fp4 and fp8 codes are looked up; the others are numbers already.
  const bool numbers = s.format != QuantFormat::nvfp4_block && s.group > 0;
  const Expr w(b, numbers ? cast_to(b, codes, wide)
                          : op::gather(b, code_table(b, f, wide), codes, {.axis = 0}));
  if (s.scale_is_fp8()) {
    const Value table = code_table(b, info(QuantFormat::fp8_e4m3), wide);
    const Expr scale(b, op::gather(b, table, in[2], {.axis = 0}));
    return w * Expr(b, repeat_rows(b, scale, s.group, k)) * Expr(b, in[3]);
  }
  if (!s.has_scale()) return w * Expr(b, in[2]);
  const Expr scale(b, repeat_rows(b, in[2], s.group, k));
  if (!s.has_zero_point()) return w * scale;
  return (w - Expr(b, repeat_rows(b, in[3], s.group, k))) * scale;
}

Values decompose_dequant_matmul(Builder& b, const Node& n, Operands in) {
  const QuantScheme& s = n.get<SchemeAttrs>().scheme;
  const Type x = b.type(in[0]);
  const DType wide = wide_of(x.dtype);
  if (wide != x.dtype) {  // the same product in f32
    Values operands(in.begin(), in.end());
    operands[0] = cast_to(b, in[0], wide);
    return {cast_to(b, b.emit(*n.op, n.attrs, operands)[0], x.dtype)};
  }
  const Dim k = x.shape.back(), columns = n.out[0].shape.back();
  if (!s.is_gguf()) return {op::matmul(b, in[0], coded_weight(b, s, in, k, wide))};
  const Value w = op::dequantise_blocks(b, in[1], {s, {columns, k}});
  return {op::matmul(b, in[0], cast_to(b, w, wide), MatmulAttrs{.transpose_b = true})};
}

// ---- int8 products --------------------------------------------------------------------------------------

// clamp(rhaz(f32(acc) * mult) + zero_point) as i8.
Value requantise(Builder& b, Value acc, double mult, int64_t zero_point) {
  const Expr sum(b, cast_to(b, acc, DType::F32));
  const Expr q = round_half_away(sum * mult) + static_cast<double>(zero_point);
  return cast_to(b, op::clamp(b, q, q.like(-128), q.like(127)), DType::I8);
}

Value centred(Builder& b, Value x, int64_t zero_point) {
  const Expr v(b, to_i32(b, x));
  return zero_point ? v - static_cast<double>(zero_point) : v;
}

void require_dtypes(const InferArgs& a, DType x, DType w, DType bias) {
  if (a.in[0].dtype != x || a.in[1].dtype != w || a.in[2].dtype != bias)
    bad_operands(a, "dtype", fmt::format("the operands must be {}, {} and {}", x, w, bias));
}

Types infer_q_matmul(const InferArgs& a) {
  require_dtypes(a, DType::I8, DType::I8, DType::I32);
  const Shape &x = a.in[0].shape, &w = a.in[1].shape, &bias = a.in[2].shape;
  if (x.rank() < 2 || w.rank() != 2) bad_operands(a, "matmul-rank", "x is [.., M, K] and w [K, N]");
  if (differ(x.back(), w[0]))
    bad_operands(
        a, "matmul-inner",
        fmt::format("{} columns of x meet {} rows of w; they must be equal", x.back(), w[0]));
  if (bias.rank() != 1 || differ(bias[0], w[1]))
    bad_operands(a, "quant-operands", fmt::format("the bias must be [{}]", w[1]));
  Shape shape = x;
  shape.back() = w[1];
  return {{DType::I8, shape}};
}

Values decompose_q_matmul(Builder& b, const Node& n, Operands in) {
  const auto& q = n.get<QMatmulAttrs>();
  const Expr acc(b, op::matmul(b, centred(b, in[0], q.x_zp), centred(b, in[1], q.w_zp)));
  return {requantise(b, acc + Expr(b, in[2]), q.mult, q.out_zp)};
}

Types infer_q_conv(const InferArgs& a) {
  const auto& q = a.get<QConvAttrs>();
  require_dtypes(a, DType::I8, DType::I8, DType::I32);
  const Shape &x = a.in[0].shape, &w = a.in[1].shape, &bias = a.in[2].shape;
  auto refuse = [&](const std::string& why) { bad_operands(a, "quant-conv", why); };
  if (x.rank() != 4 || w.rank() != 4 || bias.rank() != 1)
    refuse("x is [N, C, H, W], w [O, C / groups, kh, kw], bias [O]");
  for (size_t i = 1; i < 4; ++i)
    if (!x[i].is_static() || !w[i].is_static()) refuse("all sizes but N must be known");
  if (!w[0].is_static() || q.groups < 1 || w[0].value() % q.groups != 0 ||
      !(x[1] == w[1] * q.groups) || differ(bias[0], w[0]))
    refuse(fmt::format("{} groups of channels do not fit", q.groups));
  const Window window{.kernel = {w[2].value(), w[3].value()},
                      .stride = q.stride,
                      .dilation = q.dilation,
                      .low = q.padding,
                      .high = q.padding};
  require_window(a.op.name, window);
  for (int64_t p : q.padding)
    if (p < 0) refuse(fmt::format("padding must be 0 or more, not {}", p));
  return {{DType::I8,
           {x[0], w[0], count_windows(a.op.name, x[2], window, 0),
            count_windows(a.op.name, x[3], window, 1)}}};
}

// Every tap's window of x side by side: [N, groups, C / groups * kh * kw, OH * OW].
Value patches(Builder& b, const Node& n, Value x, const Shape& w) {
  const auto& q = n.get<QConvAttrs>();
  const Shape& out = n.out[0].shape;
  const Dim channels = b.shape(x)[1], pixels = out[2] * out[3];
  Values taps;
  for (int64_t i = 0; i < w[2].value(); ++i)
    for (int64_t j = 0; j < w[3].value(); ++j) {
      const Dim top = i * q.dilation[0], left = j * q.dilation[1];
      const Value window =
          op::slice(b, x,
                    {.start = {0, 0, top, left},
                     .limit = {out[0], channels, top + (out[2] - 1) * q.stride[0] + 1,
                               left + (out[3] - 1) * q.stride[1] + 1},
                     .stride = {1, 1, q.stride[0], q.stride[1]}});
      taps.push_back(reshape_to(b, window, {out[0], q.groups, w[1], 1, pixels}));
    }
  const Value all = b.emit(*&op::concat, AxisAttrs{3}, taps)[0];
  return reshape_to(b, all, {out[0], q.groups, w[1] * w[2] * w[3], pixels});
}

Values decompose_q_conv(Builder& b, const Node& n, Operands in) {
  const auto& q = n.get<QConvAttrs>();
  const Shape w = b.shape(in[1]);
  Value x = centred(b, in[0], q.x_zp);  // so padding with x_zp is padding with 0
  if (q.padding[0] || q.padding[1]) {
    const Shape edge{0, 0, q.padding[0], q.padding[1]};
    x = op::pad(b, x, b.constant_like(x, 0), PadAttrs{edge, edge});
  }
  const Dim per_group = w[0].value() / q.groups;
  const Value kernel =
      reshape_to(b, centred(b, in[1], q.w_zp), {q.groups, per_group, w[1] * w[2] * w[3]});
  const Value product =
      op::matmul(b, kernel, patches(b, n, x, w));  // [N, groups, O / groups, pixels]
  const Expr acc(b, reshape_to(b, product, n.out[0].shape));
  const Expr bias(b, reshape_to(b, in[2], {w[0], 1, 1}));
  return {requantise(b, acc + bias, q.mult, q.out_zp)};
}

constexpr DTypeSet kBytes{DType::U8, DType::I8};

Types infer_matmul_integer(const InferArgs& a) {
  const Shape &x = a.in[0].shape, &y = a.in[1].shape;
  for (size_t i = 1; i < a.in.size(); ++i)
    if (a.in[i].dtype != a.in[i % 2].dtype || !kBytes.has(a.in[i].dtype))
      bad_operands(a, "dtype", "operands are u8 or i8, zero points of the same");
  if (x.rank() < 2 || y.rank() < 2) bad_operands(a, "matmul-rank", "operands have rank 2 or more");
  if (differ(x.back(), y[at(y.rank() - 2)]))
    bad_operands(a, "matmul-inner",
                 fmt::format("{} columns of a meet {} rows of b; they must be equal", x.back(),
                             y[at(y.rank() - 2)]));
  const Dim lengths[] = {x[at(x.rank() - 2)], y.back()};
  for (size_t i = 2; i < a.in.size(); ++i)
    if (a.in[i].rank() > 1 || (a.in[i].rank() == 1 && differ(a.in[i].shape[0], lengths[i - 2])))
      bad_operands(a, "quant-operands",
                   "a zero point is a scalar or has one element per row of a or column of b");
  auto shape = broadcast_shapes(Shape(x.begin(), x.end() - 2), Shape(y.begin(), y.end() - 2));
  if (!shape) bad_operands(a, "broadcast", "the batch dims do not broadcast");
  shape->push_back(lengths[0]);
  shape->push_back(lengths[1]);
  return {{DType::I32, *shape}};
}

Values decompose_matmul_integer(Builder& b, const Node&, Operands in) {
  Expr x(b, to_i32(b, in[0])), y(b, to_i32(b, in[1]));
  if (in.size() > 2) {
    const Value zero = to_i32(b, in[2]);
    x = x - Expr(b, b.shape(zero).empty() ? zero : reshape_to(b, zero, {b.shape(zero)[0], 1}));
  }
  if (in.size() > 3) y = y - Expr(b, to_i32(b, in[3]));
  return {op::matmul(b, x, y)};
}

constexpr std::string_view kIntegers = "its operands are integers";

}  // namespace

namespace op {

constinit const Op<> matmul_integer = OpDef{
    .name = "matmul_integer",
    .doc =
        "(a - zero point) @ (b - zero point) of u8 or i8 matrices in i32, which wraps. Zero points "
        "are scalars, or "
        "one per row of a and column of b; those that are not given are 0.",
    .numerics = Numerics::exact,
    .arity = 4,
    .min_arity = 2,
    .operands = "a, b, a_zero_point?, b_zero_point?",
    .dtypes = kBytes,
    .infer = infer_matmul_integer,
    .decompose = decompose_matmul_integer,
    .not_differentiable = kIntegers,
};

constinit const Op<QMatmulAttrs> q_matmul = OpDef{
    .name = "q_matmul",
    .doc =
        "i8 product: acc = bias + sum over k of (x - x_zp)(w - w_zp) in i32, then "
        "clamp(rhaz(f32(acc) * mult) + "
        "out_zp, -128, 127).",
    .reference = "QMatMul",
    .numerics = Numerics::exact,
    .arity = 3,
    .operands = "x, w, bias",
    .dtypes = {DType::I8},
    .infer = infer_q_matmul,
    .decompose = decompose_q_matmul,
    .not_differentiable = kIntegers,
};

constinit const Op<QConvAttrs> q_conv2d = OpDef{
    .name = "q_conv2d",
    .doc =
        "i8 convolution, NCHW: acc = bias + the sum over taps of (x - x_zp)(w - w_zp) in i32, "
        "padded taps adding "
        "nothing, then clamp(rhaz(f32(acc) * mult) + out_zp, -128, 127).",
    .reference = "QConv2d",
    .numerics = Numerics::exact,
    .arity = 3,
    .operands = "x, w, bias",
    .dtypes = {DType::I8},
    .infer = infer_q_conv,
    .decompose = decompose_q_conv,
    .not_differentiable = kIntegers,
};

constinit const Op<SchemeAttrs> quantise_blocks = OpDef{
    .name = "quantise_blocks",
    .doc =
        "x [.., K] packed into ggml blocks along its last axis, u8 [.., bytes]; K must be whole "
        "blocks. x is "
        "rounded to f32 first. The plain formats give ggml's bytes, the others minimise the "
        "squared error.",
    .numerics = Numerics::exact,
    .kind = Kind::movement,
    .dtypes = kFloats,
    .infer = infer_quantise_blocks,
    .eval = evaluate_quantise_blocks,
    .vmap = [](Builder& b, const VmapArgs& a) { return b.clone(a.node, a.in); },
    .not_differentiable = "its result is packed codes; fake_quantize is the differentiable form",
};

constinit const Op<BlocksAttrs> dequantise_blocks = OpDef{
    .name = "dequantise_blocks",
    .doc =
        "The f32 values of ggml blocks, row by row of the given shape, whose last dim must be "
        "whole blocks. The "
        "bytes may have any shape.",
    .numerics = Numerics::exact,
    .kind = Kind::movement,
    .operands = "blocks",
    .dtypes = {DType::U8},
    .infer = infer_dequantise_blocks,
    .eval = evaluate_dequantise_blocks,
    .vmap = [](Builder& b, const VmapArgs& a) -> Values {
      const auto& [scheme, shape] = a.node.get<BlocksAttrs>();
      return {op::dequantise_blocks(b, a.in[0], {scheme, prepend(a.size, shape)})};
    },
    .not_differentiable = "its operand is packed codes",
};

constinit const Op<SchemeAttrs> dequant_matmul = OpDef{
    .name = "dequant_matmul",
    .doc =
        "x [.., M, K] times a quantised weight [K, N]: one packed operand for ggml schemes (rows "
        "of [N, K], "
        "K whole blocks); codes, scale and zero point (nvfp4: global scale) for the others. "
        "Differentiable by x, "
        "the scales and the zero points.",
    .reference = "DequantMatMul",
    .role = Role::product,
    .numerics = Numerics::exact,
    .arity = 4,
    .min_arity = 2,
    .operands = "x, w, scale?, zero_point?",
    .dtypes = kFloats,
    .infer = infer_dequant_matmul,
    .decompose = decompose_dequant_matmul,
    .vmap = [](Builder& b, const VmapArgs& a) -> Values {
      for (size_t i = 1; i < a.batched.size(); ++i)
        if (a.batched[i]) return {};
      return b.clone(a.node, a.in);
    },
};

}  // namespace op

}  // namespace rlx
