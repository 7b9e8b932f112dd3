// Packed weights and products with them.
#include "rlx/base/checked.h"
#include "rlx/ops/elementwise/elementwise.h"
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

constexpr int64_t kActivationBlock = 32;

Types infer_dequant_matmul(const InferArgs& a) {
  const auto& [s, activations] = a.get<DequantMatmulAttrs>();
  if (a.in[0].rank() < 2) bad_operands(a, "matmul-rank", "x must have rank 2 or more");
  Shape shape = a.in[0].shape;
  const Dim k = shape.back();
  if (activations == Activations::q8 && !(k.is_static() && k.value() % kActivationBlock == 0))
    bad_operands(
        a, "quant-block",
        fmt::format("activations = q8: rows of {} elements of x are not whole blocks of {}", k,
                    kActivationBlock));
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

}  // namespace

Value decode_weight(Builder& b, const QuantScheme& s, Operands in, const Dim& k, DType wide) {
  const FormatInfo& f = s.info();
  const Dim n = b.shape(in[1]).back();
  Value codes = in[0];
  if (f.block_elements == 2)
    codes = reshape_to(b, unpack_nibbles(b, codes, k.value() * n.value()), {k, n});
  // fp4 and fp8 codes are looked up; the others are numbers already.
  const bool numbers = s.format != QuantFormat::nvfp4_block && s.group > 0;
  const Expr w(b, numbers ? cast_to(b, codes, wide)
                          : op::gather(b, code_table(b, f, wide), codes, {.axis = 0}));
  if (s.scale_is_fp8()) {
    const Value table = code_table(b, info(QuantFormat::fp8_e4m3), wide);
    const Expr scale(b, op::gather(b, table, in[1], {.axis = 0}));
    return w * Expr(b, repeat_rows(b, scale, s.group, k)) * Expr(b, in[2]);
  }
  if (!s.has_scale()) return w * Expr(b, in[1]);
  const Expr scale(b, repeat_rows(b, in[1], s.group, k));
  if (!s.has_zero_point()) return w * scale;
  return (w - Expr(b, repeat_rows(b, in[2], s.group, k))) * scale;
}

namespace {

// x with each block of a row rounded to 8 bits.
Value rounded_blocks(Builder& b, Value x) {
  const Shape shape = b.shape(x);
  Dim blocks = Dim(shape.back().value() / kActivationBlock);
  for (size_t d = 0; d + 1 < shape.size(); ++d) blocks = blocks * shape[d];
  const Value flat = reshape_to(b, x, {blocks, kActivationBlock});
  return reshape_to(b, op::fake_quantize(b, flat, {.bits = 8, .axis = 0}), shape);
}

Values decompose_dequant_matmul(Builder& b, const Node& n, Operands in) {
  const auto& [s, activations] = n.get<DequantMatmulAttrs>();
  const Type x = b.type(in[0]);
  const DType wide = wide_of(x.dtype);
  if (wide != x.dtype) {  // the same product in f32
    Values operands(in.begin(), in.end());
    operands[0] = cast_to(b, in[0], wide);
    return {cast_to(b, b.emit(*n.op, n.attrs, operands)[0], x.dtype)};
  }
  const Dim k = x.shape.back(), columns = n.out[0].shape.back();
  if (activations == Activations::q8) {
    Values operands(in.begin(), in.end());
    operands[0] = rounded_blocks(b, in[0]);
    return {b.emit(*n.op, DequantMatmulAttrs{s}, operands)[0]};
  }
  if (!s.is_gguf()) return {op::matmul(b, in[0], decode_weight(b, s, in.subspan(1), k, wide))};
  const Value w = op::dequantise_blocks(b, in[1], {s, {columns, k}});
  return {op::matmul(b, in[0], cast_to(b, w, wide), MatmulAttrs{.transpose_b = true})};
}

}  // namespace

namespace op {

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

constinit const Op<DequantMatmulAttrs> dequant_matmul = OpDef{
    .name = "dequant_matmul",
    .doc =
        "x [.., M, K] times a quantised weight [K, N]: one packed operand for ggml schemes (rows "
        "of [N, K], "
        "K whole blocks); codes, scale and zero point (nvfp4: global scale) for the others. "
        "Differentiable by x, "
        "the scales and the zero points. activations = q8 rounds x first, as fake_quantize {bits = "
        "8} does, each 32 elements of a row by themselves (K is a multiple of 32): integers are "
        "multiplied then; the gradient is that of exact.",
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
