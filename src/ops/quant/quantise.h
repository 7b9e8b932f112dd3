// Quantised numbers: int8, fake quantisation for training, packed weights and products with them.
//
//   Value q = op::quantize(b, x, {.scales = {0.05}, .zero_points = {3}});                  // i8
//   Value y = op::fake_quantize(b, x, {.bits = 4, .axis = 0, .ste = SteKind::clipped_identity});
//   Value packed = op::quantise_blocks(b, w, {parse_scheme("gguf_q4k")});                  // w [N, K]
//   Value z = op::dequant_matmul(b, x, packed, {parse_scheme("gguf_q4k")});                // [.., N]
//
// Derivatives of quantize and dequantize, and of ONNX's, are straight through: a tangent or cotangent goes from floats to
// codes and back as it is, saturated or not, in f64 where it is one by codes (carries() in ops/rules.h).
//
// quant/format.h lists the formats. rhaz(x) is the nearest integer, halves away from zero. A channel is an
// index along `axis`; without an axis there is one channel. f16 and bf16 are computed in f32; "wide" below is
// the dtype of the computation: f32, and f64 for f64.
//
// Raises Error(user): "quant-bits", "quant-scales", "quant-state", "quant-scheme", "quant-block" (K is not whole
// blocks), "quant-bytes" (packed operand of the wrong size), "quant-operands" (number, dtype or shape of scales
// and zero points), "quant-conv", "conv-*" (image/conv.h), "window", "matmul-inner", "matmul-rank", "dtype", "axis-range".
#pragma once

#include "rlx/ops/image/conv.h"
#include "rlx/quant/format.h"

namespace rlx {

struct QuantizeAttrs {  // one scale and zero point per channel
  std::optional<int64_t> axis;
  std::vector<double> scales = {1};
  Ints zero_points = {0};
  static constexpr auto fields() {
    return Fields<&QuantizeAttrs::axis, &QuantizeAttrs::scales, &QuantizeAttrs::zero_points>();
  }
};

// The derivative that stands in for that of rounding, at limit = q_max * scale:
enum class SteKind : uint8_t {
  identity,          // 1
  clipped_identity,  // 1 where |x| <= limit, else 0
  tanh,              // 1 - tanh(x / scale)^2
  hard_tanh,         // max(0, 1 - |x| / limit)
};
inline std::span<const std::string_view> enum_names(SteKind) {
  static constexpr std::string_view names[] = {"identity", "clipped_identity", "tanh", "hard_tanh"};
  return names;
}
enum class ScaleMode : uint8_t { per_batch, ema, fixed };
inline std::span<const std::string_view> enum_names(ScaleMode) {
  static constexpr std::string_view names[] = {"per_batch", "ema", "fixed"};
  return names;
}
struct FakeQuantizeAttrs {
  int64_t bits = 8;  // 2 to 8; q_max = 2^(bits - 1) - 1
  std::optional<int64_t> axis;
  SteKind ste = SteKind::identity;
  ScaleMode scale_mode = ScaleMode::per_batch;
  double decay = 0.9;  // ema
  static constexpr auto fields() {
    return Fields<&FakeQuantizeAttrs::bits, &FakeQuantizeAttrs::axis, &FakeQuantizeAttrs::ste,
                  &FakeQuantizeAttrs::scale_mode, &FakeQuantizeAttrs::decay>();
  }
};
struct FakeQuantizeBackwardAttrs {
  int64_t bits = 8;
  std::optional<int64_t> axis;
  SteKind ste = SteKind::identity;
  static constexpr auto fields() {
    return Fields<&FakeQuantizeBackwardAttrs::bits, &FakeQuantizeBackwardAttrs::axis,
                  &FakeQuantizeBackwardAttrs::ste>();
  }
};
struct LsqAttrs {
  int64_t bits = 8;
  std::optional<int64_t> axis;
  bool gradient_scale =
      false;  // the scale's gradient times 1 / sqrt(elements of a channel * q_max)
  static constexpr auto fields() {
    return Fields<&LsqAttrs::bits, &LsqAttrs::axis, &LsqAttrs::gradient_scale>();
  }
};
struct QuantizeLinearAttrs {
  int64_t axis = 1;         // of a scale [C]
  DType dtype = DType::U8;  // of the result when there is no zero point: u8 or i8
  static constexpr auto fields() {
    return Fields<&QuantizeLinearAttrs::axis, &QuantizeLinearAttrs::dtype>();
  }
};
struct DequantizeLinearAttrs {
  int64_t axis = 1;
  static constexpr auto fields() { return Fields<&DequantizeLinearAttrs::axis>(); }
};
struct QMatmulAttrs {
  int64_t x_zp = 0, w_zp = 0, out_zp = 0;
  double mult = 1;  // scale of x * scale of w / scale of the result, as f32
  static constexpr auto fields() {
    return Fields<&QMatmulAttrs::x_zp, &QMatmulAttrs::w_zp, &QMatmulAttrs::out_zp,
                  &QMatmulAttrs::mult>();
  }
};
struct QConvAttrs {
  Ints stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  int64_t groups = 1, x_zp = 0, w_zp = 0, out_zp = 0;
  double mult = 1;
  static constexpr auto fields() {
    return Fields<&QConvAttrs::stride, &QConvAttrs::padding, &QConvAttrs::dilation,
                  &QConvAttrs::groups, &QConvAttrs::x_zp, &QConvAttrs::w_zp, &QConvAttrs::out_zp,
                  &QConvAttrs::mult>();
  }
};
struct SchemeAttrs {
  QuantScheme scheme;
  static constexpr auto fields() { return Fields<&SchemeAttrs::scheme>(); }
};
// What dequant_matmul multiplies the weights with.
enum class Activations : uint8_t {
  exact,  // x
  q8,     // x rounded as fake_quantize {bits = 8} does, each 32 elements of a row by themselves
};
inline std::span<const std::string_view> enum_names(Activations) {
  static constexpr std::string_view names[] = {"exact", "q8"};
  return names;
}
struct DequantMatmulAttrs {
  QuantScheme scheme;
  Activations activations = Activations::exact;
  static constexpr auto fields() {
    return Fields<&DequantMatmulAttrs::scheme, &DequantMatmulAttrs::activations>();
  }
};
struct BlocksAttrs {
  QuantScheme scheme;
  Shape shape;
  static constexpr auto fields() { return Fields<&BlocksAttrs::scheme, &BlocksAttrs::shape>(); }
};

namespace op {
extern const Op<QuantizeAttrs> quantize, dequantize;
// x [, state [C], wide] -> value [, new state]. per_batch takes no state; fixed reads it as the scale; ema makes
// a second result, the average of scales that the value used, to be fed back as the next state.
extern const Op<FakeQuantizeAttrs> fake_quantize;
extern const Op<FakeQuantizeBackwardAttrs> fake_quantize_backward;  // x, dy [, scale [C]]
extern const Op<LsqAttrs> fake_quantize_lsq;                        // x, scale [C]
extern const Op<LsqAttrs> fake_quantize_lsq_backward_x, fake_quantize_lsq_backward_scale;
// As in ONNX.
extern const Op<> dynamic_quantize_linear;             // x -> u8, scale [], zero point []
extern const Op<QuantizeLinearAttrs> quantize_linear;  // x, scale [] or [C] [, zero point]
extern const Op<DequantizeLinearAttrs> dequantize_linear;
extern const Op<> matmul_integer;         // a, b [, zero point of a] [, of b] -> i32
extern const Op<ConvAttrs> conv_integer;  // x, w [, zero point of x] [, of w] -> i32

extern const Op<QMatmulAttrs> q_matmul;          // x i8 [.., M, K], w i8 [K, N], bias i32 [N] -> i8
extern const Op<QConvAttrs> q_conv2d;            // x i8 NCHW, w i8 OIHW, bias i32 [O] -> i8 NCHW
extern const Op<SchemeAttrs> quantise_blocks;    // x [.., K] -> u8 [.., bytes]
extern const Op<BlocksAttrs> dequantise_blocks;  // u8 -> f32 of the shape [.., K]
// x [.., M, K] and a weight: ggml schemes one packed operand, u8, rows of [N, K]; the others
//   int8/g   w i8 [K, N],  scale [ceil(K / g), N]           w * scale
//   int8a/g  w i8 [K, N],  scale, zero point (same shape)   (w - zp) * scale
//   int4/g   w u8, nibbles of [K, N], low first, scale, zero point
//   fp8*     w u8 [K, N],  scale [N]
//   nvfp4/16 w u8, nibbles, scale u8 (E4M3) [ceil(K / 16), N], global [1]
// with f32 scales (f64 for f64 x). A fourth operand that the scheme does not use is ignored.
// activations = q8 rounds x first, so that products of integers are left; K is whole blocks of 32 then.
extern const Op<DequantMatmulAttrs> dequant_matmul;
}  // namespace op

// The weight [K, N] of a scheme with its scales apart, as a value of the dtype (f32 or f64) that the scales have: what
// dequant_matmul multiplies with. Operands are its own without x.
Value decode_weight(Builder& b, const QuantScheme& scheme, Operands codes, const Dim& k,
                    DType wide);

// The bits of a value that fake_quantize or fake_quantize_lsq makes (result 0); nullopt for any other.
std::optional<int64_t> quantized_weight_bits(const Graph& g, Value v);

extern const Family kQuantise;

}  // namespace rlx
