// Blocks, convolution, elementwise, quantised products, linear algebra, normalisation, reduction,
// shape; further ops.
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/image/resize.h"
#include "rlx/ops/indexing/sorting.h"
#include "rlx/ops/linalg/factor.h"
#include "rlx/ops/linalg/linalg.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/nn/experts.h"
#include "rlx/ops/nn/nn.h"
#include "rlx/ops/nn/norms.h"
#include "rlx/ops/random/distributions.h"
#include "rlx/ops/reduce/cumulative.h"
#include "rlx/ops/reduce/reduce.h"
#include "rlx/stages/builders/graph_builder.h"
#include "rlx/stages/builders/window_attributes.h"

namespace rlx {
namespace {

std::string name_of(std::optional<Activation> act) {
  return act ? std::string(op_of(*act).name) : std::string();
}

}  // namespace

// ---- blocks

NodeId GraphBuilder::linear_bias(NodeId x, NodeId w, const MaybeNode& bias) {
  const NodeId product = mm(x, w);
  return bias ? add(product, *bias) : product;
}

NodeId GraphBuilder::linear_bias_act(NodeId x, NodeId w, const MaybeNode& bias,
                                     std::optional<Activation> act) {
  const NodeId y = linear_bias(x, w, bias);
  return act ? activation(*act, y) : y;
}

NodeId GraphBuilder::linear_fused(NodeId x, NodeId w, NodeId bias, std::optional<Activation> act,
                                  const Declared& out_shape) {
  return fused_matmul_bias_act(x, w, bias, act, out_shape);
}

NodePair GraphBuilder::shared_matmul_pair(NodeId x, NodeId w_first, NodeId w_second) {
  const NodeId first = mm(x, w_first);
  return {first, mm(x, w_second)};
}

NodeId GraphBuilder::swiglu_ffn(NodeId x, NodeId up_w, NodeId gate_w, NodeId down_w) {
  const auto [up, gate] = shared_matmul_pair(x, up_w, gate_w);
  return mm(mul(up, silu(gate)), down_w);
}

NodeId GraphBuilder::fused_swiglu_ffn(NodeId x, NodeId up_w, NodeId gate_w, NodeId down_w,
                                      const Declared& out_shape) {
  return matmul(fused_swiglu(mm(x, concat({up_w, gate_w}, 1))), down_w, out_shape);
}

NodeId GraphBuilder::fused_swiglu(NodeId packed, bool gate_first, std::optional<DType> cast_to) {
  return emit(op::fused_swiglu.def, FusedSwigluAttrs{cast_to, gate_first}, {packed});
}

NodeId GraphBuilder::fused_attention_block(const Values& inputs, int64_t num_heads,
                                           int64_t head_dim, bool has_bias, bool has_rope) {
  return emit(op::fused_attention_block.def,
              FusedAttentionBlockAttrs{num_heads, head_dim, has_bias, has_rope}, inputs);
}

NodeId GraphBuilder::fused_transformer_layer(const Values& inputs, int64_t num_heads,
                                             int64_t head_dim, double eps1, double eps2,
                                             Activation activation, bool has_bias) {
  return emit(
      op::fused_transformer_layer.def,
      FusedTransformerLayerAttrs{num_heads, head_dim, eps1, eps2, name_of(activation), has_bias},
      inputs);
}

// ---- convolution, pooling, resize

NodeId GraphBuilder::conv2d(NodeId x, NodeId w, const Ints& kernel, const Ints& stride,
                            const Ints& padding, const Ints& dilation, int64_t groups) {
  check_kernel("conv2d", kernel, shape(w));
  return emit(op::conv.def, conv_attributes(stride, padding, dilation, groups), {x, w});
}

NodeId GraphBuilder::conv_transpose2d(NodeId x, NodeId w, const Ints& kernel, const Ints& stride,
                                      const Ints& padding, const Ints& dilation,
                                      const Ints& output_padding, int64_t groups) {
  check_kernel("conv_transpose2d", kernel, shape(w));
  ConvTransposeAttrs a;
  static_cast<ConvAttrs&>(a) = conv_attributes(stride, padding, dilation, groups);
  a.output_padding = output_padding;
  return emit(op::conv_transpose.def, a, {x, w});
}

NodeId GraphBuilder::pool(NodeId x, ReduceOp kind, const Ints& kernel, const Ints& stride,
                          const Ints& padding) {
  static constexpr PoolKind kinds[] = {PoolKind::sum, PoolKind::mean, PoolKind::max, PoolKind::min,
                                       PoolKind::prod};
  return emit(op::pool.def,
              pool_attributes(kinds[static_cast<size_t>(kind)], kernel, stride, padding), {x});
}

NodeId GraphBuilder::resize_nearest_2x(NodeId x) {
  return emit(op::resize_nearest_2x.def, NoAttrs{}, {x});
}

// ---- elementwise, int8

NodeId GraphBuilder::binary(BinaryOp op, NodeId lhs, NodeId rhs, const Declared& out_shape) {
  return emit(op_of(op), NoAttrs{}, {lhs, rhs}, out_shape);
}
NodeId GraphBuilder::compare(CmpOp op, NodeId lhs, NodeId rhs, const Declared& shape) {
  return emit(op_of(op), NoAttrs{}, {lhs, rhs}, shape);
}
NodeId GraphBuilder::activation(Activation act, NodeId x, const Declared& shape) {
  return emit(op_of(act), NoAttrs{}, {x}, shape);
}
NodeId GraphBuilder::where_(NodeId cond, NodeId on_true, NodeId on_false) {
  return emit(op::select.def, NoAttrs{}, {cond, on_true, on_false});
}
NodeId GraphBuilder::cast(NodeId x, DType to) { return emit(op::cast.def, CastAttrs{to}, {x}); }

NodeId GraphBuilder::quantize(NodeId x, double scale, int64_t zero_point) {
  return emit(op::quantize.def, QuantizeAttrs{std::nullopt, {scale}, {zero_point}}, {x});
}
NodeId GraphBuilder::quantize_per_channel(NodeId x, int64_t axis, std::vector<double> scales,
                                          Ints zero_points) {
  return emit(op::quantize.def, QuantizeAttrs{axis, std::move(scales), std::move(zero_points)},
              {x});
}
NodeId GraphBuilder::dequantize(NodeId x, double scale, int64_t zero_point) {
  return emit(op::dequantize.def, QuantizeAttrs{std::nullopt, {scale}, {zero_point}}, {x});
}
NodeId GraphBuilder::dequantize_per_channel(NodeId x, int64_t axis, std::vector<double> scales,
                                            Ints zero_points) {
  return emit(op::dequantize.def, QuantizeAttrs{axis, std::move(scales), std::move(zero_points)},
              {x});
}

NodeId GraphBuilder::fake_quantize(NodeId x, int64_t bits, std::optional<int64_t> axis, SteKind ste,
                                   ScaleMode scale_mode, const MaybeNode& state, double decay) {
  Values in{x};
  if (state) in.push_back(*state);
  return emit(op::fake_quantize.def, FakeQuantizeAttrs{bits, axis, ste, scale_mode, decay}, in);
}
NodeId GraphBuilder::fake_quantize_backward(NodeId x, NodeId dy, int64_t bits,
                                            std::optional<int64_t> axis, SteKind ste) {
  return emit(op::fake_quantize_backward.def, FakeQuantizeBackwardAttrs{bits, axis, ste}, {x, dy});
}
NodeId GraphBuilder::fake_quantize_lsq(NodeId x, NodeId scale, int64_t bits,
                                       std::optional<int64_t> axis) {
  return emit(op::fake_quantize_lsq.def, LsqAttrs{.bits = bits, .axis = axis}, {x, scale});
}
NodeId GraphBuilder::fake_quantize_lsq_backward_x(NodeId x, NodeId scale, NodeId dy, int64_t bits,
                                                  std::optional<int64_t> axis) {
  return emit(op::fake_quantize_lsq_backward_x.def, LsqAttrs{.bits = bits, .axis = axis},
              {x, scale, dy});
}
NodeId GraphBuilder::fake_quantize_lsq_backward_scale(NodeId x, NodeId scale, NodeId dy,
                                                      int64_t bits, std::optional<int64_t> axis) {
  return emit(op::fake_quantize_lsq_backward_scale.def, LsqAttrs{.bits = bits, .axis = axis},
              {x, scale, dy});
}

// ---- products

NodeId GraphBuilder::matmul(NodeId lhs, NodeId rhs, const Declared& out_shape) {
  return emit(op::matmul.def, MatmulAttrs{}, {lhs, rhs}, out_shape);
}
NodeId GraphBuilder::dot_general(NodeId lhs, NodeId rhs, Ints lhs_contracting, Ints rhs_contracting,
                                 Ints lhs_batch, Ints rhs_batch) {
  return emit(op::dot_general.def,
              DotAttrs{std::move(lhs_contracting), std::move(rhs_contracting), std::move(lhs_batch),
                       std::move(rhs_batch)},
              {lhs, rhs});
}
NodeId GraphBuilder::dense_solve(NodeId a, NodeId b, const Declared& out_shape) {
  return emit(op::dense_solve.def, NoAttrs{}, {a, b}, out_shape);
}
NodeId GraphBuilder::batched_dense_solve(NodeId a, NodeId b, const Declared& out_shape) {
  user_check(shape(a).rank() >= 3, "solve-shape", "batched_dense_solve: {} has no batch axis",
             shape(a));
  return dense_solve(a, b, out_shape);
}
NodeId GraphBuilder::lora_matmul(NodeId x, NodeId w, NodeId a, NodeId b, double scale,
                                 const Declared& shape) {
  return emit(op::lora_matmul.def, LoraAttrs{scale}, {x, w, a, b}, shape);
}
NodeId GraphBuilder::fused_matmul_bias_act(NodeId x, NodeId w, NodeId bias,
                                           std::optional<Activation> act, const Declared& shape) {
  return emit(op::fused_matmul_bias_act.def, FusedMatmulAttrs{name_of(act)}, {x, w, bias}, shape);
}
NodeId GraphBuilder::grouped_matmul(NodeId x, NodeId weight, NodeId expert_idx) {
  return emit(op::grouped_matmul.def, GroupedMatmulAttrs{}, {x, weight, expert_idx});
}

NodeId GraphBuilder::dequant_matmul(NodeId x, NodeId w_q, NodeId scale, NodeId zp,
                                    const QuantScheme& scheme, const Declared& shape) {
  user_check(!scheme.is_gguf(), "quant-scheme",
             "dequant_matmul: weights in {} hold their scales; use dequant_matmul_packed",
             scheme.to_string());
  return emit(op::dequant_matmul.def, DequantMatmulAttrs{scheme}, {x, w_q, scale, zp}, shape);
}
NodeId GraphBuilder::dequant_matmul_packed(NodeId x, NodeId packed_w, const QuantScheme& scheme,
                                           const Declared& shape) {
  user_check(scheme.is_gguf(), "quant-scheme",
             "dequant_matmul_packed: {} is not a block format of ggml", scheme.to_string());
  return emit(op::dequant_matmul.def, DequantMatmulAttrs{scheme}, {x, packed_w}, shape);
}
NodeId GraphBuilder::dequant_matmul_nvfp4(NodeId x, NodeId w_q, NodeId block_scales,
                                          NodeId global_scale, const Declared& shape) {
  return dequant_matmul(x, w_q, block_scales, global_scale, {QuantFormat::nvfp4_block, 16}, shape);
}
NodeId GraphBuilder::dequant_grouped_matmul(NodeId x, NodeId packed_w, NodeId expert_idx,
                                            const QuantScheme& scheme, int64_t columns) {
  return emit(op::dequant_grouped_matmul.def, DequantGroupedAttrs{scheme, columns},
              {x, packed_w, expert_idx});
}
NodeId GraphBuilder::dequant_moe_weights(NodeId packed_w, const QuantScheme& scheme,
                                         const Shape& shape) {
  return emit(op::dequant_moe_weights.def, MoeWeightsAttrs{scheme, shape}, {packed_w});
}

NodeId GraphBuilder::q_matmul(NodeId x, NodeId w, NodeId bias, int64_t x_zp, int64_t w_zp,
                              int64_t out_zp, double mult, const Declared& out_shape) {
  return emit(op::q_matmul.def, QMatmulAttrs{x_zp, w_zp, out_zp, mult}, {x, w, bias}, out_shape);
}
NodeId GraphBuilder::q_conv2d(NodeId x, NodeId w, NodeId bias, const Ints& kernel,
                              const Ints& stride, const Ints& padding, const Ints& dilation,
                              int64_t groups, int64_t x_zp, int64_t w_zp, int64_t out_zp,
                              double mult, const Declared& out_shape) {
  check_kernel("q_conv2d", kernel, shape(w));
  return emit(op::q_conv2d.def,
              QConvAttrs{stride, padding, dilation, groups, x_zp, w_zp, out_zp, mult}, {x, w, bias},
              out_shape);
}

// ---- normalisation

NodeId GraphBuilder::layer_norm2d(NodeId x, NodeId gamma, NodeId beta, double eps) {
  return emit(op::layer_norm2d.def, ChannelNormAttrs{eps}, {x, gamma, beta});
}
NodeId GraphBuilder::group_norm(NodeId x, NodeId gamma, NodeId beta, int64_t num_groups,
                                double eps) {
  return emit(op::group_norm.def, GroupNormAttrs{num_groups, eps}, {x, gamma, beta});
}
NodeId GraphBuilder::layer_norm(NodeId x, NodeId gamma, NodeId beta, int64_t axis, double eps,
                                const Declared& shape) {
  return emit(op::layer_norm.def, NormAttrs{axis, eps}, {x, gamma, beta}, shape);
}
NodeId GraphBuilder::rms_norm(NodeId x, NodeId gamma, NodeId beta, double eps) {
  return emit(op::rms_norm.def, NormAttrs{-1, eps}, {x, gamma, beta});
}

NodeId GraphBuilder::residual_norm(const Op<FusedResidualAttrs>& op, Values in,
                                   const MaybeNode& bias, NodeId gamma, NodeId beta, double eps,
                                   const Declared& shape) {
  if (bias) in.push_back(*bias);
  in.insert(in.end(), {gamma, beta});
  return emit(op.def, FusedResidualAttrs{bias.has_value(), eps}, in, shape);
}
NodeId GraphBuilder::fused_residual_ln(NodeId x, NodeId residual, const MaybeNode& bias,
                                       NodeId gamma, NodeId beta, double eps,
                                       const Declared& shape) {
  return residual_norm(op::fused_residual_ln, {x, residual}, bias, gamma, beta, eps, shape);
}
NodeId GraphBuilder::fused_residual_rms_norm(NodeId x, NodeId residual, const MaybeNode& bias,
                                             NodeId gamma, NodeId beta, double eps,
                                             const Declared& shape) {
  return residual_norm(op::fused_residual_rms_norm, {x, residual}, bias, gamma, beta, eps, shape);
}

// ---- reduction, order, sampling

NodeId GraphBuilder::reduce(NodeId x, ReduceOp op, Ints axes, bool keep_dim,
                            const Declared& shape) {
  std::sort(axes.begin(), axes.end());  // any order, and an axis counts once
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return emit(op_of(op), ReduceAttrs{std::move(axes), keep_dim}, {x}, shape);
}
NodeId GraphBuilder::softmax(NodeId x, int64_t axis, const Declared& shape) {
  return emit(op::softmax.def, SoftmaxAttrs{axis}, {x}, shape);
}
NodeId GraphBuilder::cumsum(NodeId x, int64_t axis, bool exclusive, const Declared& shape) {
  return emit(op::cumsum.def, CumsumAttrs{.axis = axis, .exclusive = exclusive}, {x}, shape);
}
NodeId GraphBuilder::topk(NodeId x, int64_t k, DType dtype) {
  return emit(op::topk.def, TopkAttrs{.k = k, .index_dtype = dtype}, {x}, {}, 1);
}
NodeId GraphBuilder::sample(NodeId logits, int64_t top_k, double top_p, double temperature,
                            uint64_t seed, const Declared& output_shape) {
  return emit(op::sample.def,
              SampleAttrs{.top_k = top_k,
                          .top_p = top_p,
                          .temperature = temperature,
                          .seed = static_cast<int64_t>(seed),
                          .dtype = output_shape ? output_shape->dtype : DType::F32},
              {logits}, output_shape);
}

// ---- shape and indexing

NodeId GraphBuilder::reshape(NodeId x, const Ints& new_shape, const Declared& out_shape) {
  return emit(op::reshape.def, ShapeAttrs{Shape::of(new_shape)}, {x}, out_shape);
}
NodeId GraphBuilder::transpose_(NodeId x, const Ints& perm) {
  return emit(op::transpose.def, TransposeAttrs{perm}, {x});
}
NodeId GraphBuilder::narrow_(NodeId x, int64_t axis, const Dim& start, const Dim& len) {
  const Shape& dims = shape(x).shape;
  axis = normalise_axis(axis, dims.rank(), "narrow_");
  SliceAttrs a{.start = Shape(dims.size(), Dim(0)), .limit = dims, .stride = {}};
  a.start[static_cast<size_t>(axis)] = start;
  a.limit[static_cast<size_t>(axis)] = start + len;
  return emit(op::slice.def, a, {x});
}
NodeId GraphBuilder::concat(const Values& inputs, int64_t axis, const Declared& shape) {
  return emit(op::concat.def, AxisAttrs{axis}, inputs, shape);
}
NodeId GraphBuilder::gather(NodeId table, NodeId indices, int64_t axis, const Declared& shape) {
  return emit(op::gather.def, AxisAttrs{axis}, {table, indices}, shape);
}
NodeId GraphBuilder::scatter_add(NodeId updates, NodeId indices, const Dim& rows) {
  return emit(op::scatter_add.def, ScatterAttrs{0, rows}, {updates, indices});
}
NodeId GraphBuilder::expand(NodeId x, const Ints& target_shape) {
  const Shape& from = shape(x).shape;
  Shape to = Shape::of(target_shape);
  for (size_t i = 0; i < to.size(); ++i)
    if (target_shape[i] == -1) {
      user_check(to.size() - i <= from.size(), "broadcast",
                 "expand: -1 keeps a size, but {} has none at dim {} of {}", shape(x), i,
                 to.size());
      to[i] = from[from.size() - (to.size() - i)];
    }
  return emit(op::broadcast.def, ShapeAttrs{std::move(to)}, {x});
}

}  // namespace rlx
