// GraphBuilder: a method per op, under established names.
//
//   GraphBuilder g("bert_layer");
//   NodeId x = g.input("hidden", {DType::F32, {4, 15, 384}});
//   NodeId w = g.param("qkv_weight", {DType::F32, {384, 1152}});
//   NodeId b = g.param("qkv_bias", {DType::F32, {1152}});
//   NodeId mm = g.matmul(x, w, {DType::F32, {4, 15, 1152}});        // declared, and checked
//   NodeId qkv = g.add(mm, b);                                      // inferred
//   g.set_outputs({qkv});
//   Graph graph = g.finish();                                       // verified
//
// It appends nodes of the op table (ops/) through a Builder; types are always inferred. A method whose
// last argument is a shape need not be given it: where it is, it is checked and
// Error(user, "declared-shape") names both. Builders raise what their ops raise and leave the graph as it
// was. Names that C++ reserves get a trailing underscore (`if_`, `while_`); `new(name)` is the
// constructor. `shape` arguments are Types: dims and dtype.
//
// Mutation (set_inputs, node_mut, nodes_mut) is checked: set_inputs at once, the rest when finish()
// verifies the graph.
#pragma once

#include "rlx/ops/blocks/fused.h"
#include "rlx/ops/quant/quantise.h"
#include "rlx/ops/signal/fft.h"
#include "rlx/ops/splat/splat.h"
#include "rlx/stages/builders/vocabulary.h"

namespace rlx {

class GraphModule;
class HirModule;
class LirModule;
class MirModule;
struct HirNodeId;
class GraphBuilder;

using Declared = std::optional<Type>;  // a shape the caller expects, or none
using MaybeNode = std::optional<NodeId>;
using NodePair = std::pair<NodeId, NodeId>;

// The builders' own names for the factors of Fourier transforms: backward divides in neither direction,
// forward is NumPy's backward. FftNorm has NumPy's names.
enum class BuilderFftNorm : uint8_t { backward, forward, ortho };
inline std::span<const std::string_view> enum_names(BuilderFftNorm) {
  static constexpr std::string_view names[] = {"backward", "forward", "ortho"};
  return names;
}
FftNorm norm_of(BuilderFftNorm norm);

// The results of custom_fn_multi, packed one after the other in `source` [elements].
struct MultiOutputHandle {
  NodeId source;
  Types sub_shapes;
  Ints offsets;
  size_t n_outputs() const { return sub_shapes.size(); }
  NodeId output(GraphBuilder& g, size_t i) const;  // raises "output-index"
};

class GraphBuilder {
 public:
  // ---- core, pipeline, analysis
  explicit GraphBuilder(std::string name = "main") : b_(std::move(name)) {}
  explicit GraphBuilder(Graph g);  // goes on where `g` ends

  size_t len() const { return b_.graph().nodes.size(); }
  bool is_empty() const { return len() == 0; }
  const Node& node(NodeId id) const;
  std::span<const Node> nodes() const { return b_.graph().nodes; }
  const Type& shape(NodeId id) const { return b_.type(id); }
  void set_outputs(Values outputs);
  void set_inputs(NodeId id, Values inputs);  // raises "rewire-type" when the results would change
  Node& node_mut(NodeId id);
  std::span<Node> nodes_mut() { return b_.mutable_graph().nodes; }
  NodeId append_node(const AnyOp& op, const Values& inputs, const Declared& shape = {},
                     std::string name = {});
  Values users(NodeId id) const;      // nodes that read it, ascending, each once
  size_t use_count(NodeId id) const;  // how many
  Values topo_order() const;
  Values reverse_topo() const;

  static GraphModule define(std::string name, FunctionRef<HirNodeId(HirModule&)> build);
  static GraphModule hir(std::string name);
  GraphModule module();  // finishes
  MirModule to_mir();    // finishes
  static Graph from_hir(const HirModule& hir);
  static Graph from_lir(const LirModule& lir);
  std::string inspect() const;
  static std::string inspect_module(const GraphModule& module);
  bool has_dynamic_dims() const { return !dynamic_symbols().empty(); }
  std::vector<std::string> dynamic_symbols() const;  // sorted
  Graph bind(const DimBinding& binding) const { return rlx::bind(b_.graph(), binding); }

  const Graph& graph() const { return b_.graph(); }
  Builder& builder() { return b_; }
  Graph finish() { return b_.finish(); }

  // ---- leaves, any op, custom ops, transforms
  NodeId input(std::string name, Type shape) { return b_.input(std::move(name), std::move(shape)); }
  NodeId param(std::string name, Type shape) { return b_.param(std::move(name), std::move(shape)); }
  NodeId constant(Tensor value) { return b_.constant(std::move(value)); }
  NodeId add_node(const AnyOp& op, const Values& inputs, const Declared& shape = {}) {
    return append_node(op, inputs, shape);
  }
  NodeId custom_op(const std::string& name, const std::string& attrs, const Values& inputs);
  // The result has the declared type, whatever the op infers.
  NodeId custom_op_packed(const std::string& name, const std::string& attrs, const Values& inputs,
                          const Type& out_shape);
  NodeId fft(NodeId x, bool inverse) { return fft_norm(x, inverse, BuilderFftNorm::backward); }
  NodeId fft_norm(NodeId x, bool inverse, BuilderFftNorm norm);
  NodeId fft_axis(NodeId x, int64_t axis, bool inverse);
  NodeId fftn(NodeId x, Ints axes, bool inverse);
  NodeId ifftn(NodeId x, Ints axes) { return fftn(x, std::move(axes), true); }

  // ---- attention, rotary
  NodeId attention(NodeId q, NodeId k, NodeId v, NodeId mask, int64_t num_heads, int64_t head_dim,
                   const Declared& shape = {});
  NodeId attention_opts(NodeId q, NodeId k, NodeId v, NodeId mask, int64_t num_heads,
                        int64_t head_dim, const Declared& shape, std::optional<double> score_scale,
                        std::optional<double> attn_logit_softcap);
  // Masks that need no operand; others raise "attention-operands".
  NodeId attention_kind(NodeId q, NodeId k, NodeId v, int64_t num_heads, int64_t head_dim,
                        const AttentionMask& mask_kind, const Declared& shape = {});
  NodeId attention_kind_opts(NodeId q, NodeId k, NodeId v, int64_t num_heads, int64_t head_dim,
                             const AttentionMask& mask_kind, const Declared& shape,
                             std::optional<double> score_scale, std::optional<double> softcap);
  NodeId attention_bias(NodeId q, NodeId k, NodeId v, NodeId bias, int64_t num_heads,
                        int64_t head_dim, const Declared& shape = {});
  NodeId axial_rope2d(NodeId x, int64_t end_x, int64_t end_y, int64_t head_dim, int64_t num_heads,
                      double theta, int64_t repeat_factor);

  // ---- backward
  NodeId relu_backward(NodeId x, NodeId dy);
  NodeId activation_backward(Activation kind, NodeId x, NodeId dy);
  NodeId layer_norm_backward_input(NodeId x, NodeId gamma, NodeId dy, int64_t axis, double eps);
  NodeId layer_norm_backward_gamma(NodeId x, NodeId dy, const Declared& gamma_shape, int64_t axis,
                                   double eps);
  NodeId rms_norm_backward_input(NodeId x, NodeId gamma, NodeId beta, NodeId dy, int64_t axis,
                                 double eps);
  NodeId rms_norm_backward_gamma(NodeId x, NodeId gamma, NodeId beta, NodeId dy, int64_t axis,
                                 double eps);
  NodeId rms_norm_backward_beta(NodeId x, NodeId gamma, NodeId beta, NodeId dy, int64_t axis,
                                double eps);
  NodeId rope_backward(NodeId dy, NodeId cos, NodeId sin, int64_t head_dim, int64_t n_rot);
  NodeId cumsum_backward(NodeId dy, const Declared& out_shape, int64_t axis, bool exclusive);
  NodeId gather_backward(NodeId dy, NodeId indices, const Type& table_shape, int64_t axis);
  NodeId group_norm_backward_input(NodeId x, NodeId gamma, NodeId beta, NodeId dy,
                                   int64_t num_groups, double eps);
  NodeId group_norm_backward_gamma(NodeId x, NodeId dy, const Declared& gamma_shape,
                                   int64_t num_groups, double eps);
  NodeId group_norm_backward_beta(NodeId x, NodeId dy, const Declared& beta_shape,
                                  int64_t num_groups, double eps);
  NodeId maxpool2d_backward(NodeId x, NodeId dy, const Ints& kernel, const Ints& stride,
                            const Ints& padding);
  NodeId conv2d_backward_input(NodeId dy, NodeId w, const Type& x_shape, const Ints& kernel,
                               const Ints& stride, const Ints& padding, const Ints& dilation,
                               int64_t groups);
  NodeId conv2d_backward_weight(NodeId x, NodeId dy, const Type& w_shape, const Ints& kernel,
                                const Ints& stride, const Ints& padding, const Ints& dilation,
                                int64_t groups);
  NodeId softmax_cross_entropy_with_logits(NodeId logits, NodeId labels);
  NodeId softmax_cross_entropy_backward(NodeId logits, NodeId labels, NodeId d_loss);
  NodeId complex_norm_sq(NodeId z);
  NodeId complex_norm_sq_backward(NodeId z, NodeId g);
  NodeId conjugate(NodeId z);
  NodeId attention_backward(AttentionOperand wrt, NodeId q, NodeId k, NodeId v, NodeId dy,
                            int64_t num_heads, int64_t head_dim, const AttentionMask& mask_kind,
                            const MaybeNode& mask = {}, std::optional<double> score_scale = {},
                            std::optional<double> attn_logit_softcap = {});
  std::tuple<NodeId, NodeId, NodeId> attention_backward_all(NodeId q, NodeId k, NodeId v, NodeId dy,
                                                            int64_t num_heads, int64_t head_dim,
                                                            const AttentionMask& mask_kind,
                                                            const MaybeNode& mask = {});

  // ---- blocks
  NodeId linear_bias(NodeId x, NodeId w, const MaybeNode& bias = {});
  NodeId linear_bias_act(NodeId x, NodeId w, const MaybeNode& bias, std::optional<Activation> act);
  NodeId linear_fused(NodeId x, NodeId w, NodeId bias, std::optional<Activation> act,
                      const Declared& out_shape = {});
  NodePair shared_matmul_pair(NodeId x, NodeId w_first, NodeId w_second);
  NodeId swiglu_ffn(NodeId x, NodeId up_w, NodeId gate_w, NodeId down_w);
  NodeId fused_swiglu_ffn(NodeId x, NodeId up_w, NodeId gate_w, NodeId down_w,
                          const Declared& out_shape = {});

  // ---- convolution, elementwise, int8
  NodeId conv2d(NodeId x, NodeId w, const Ints& kernel, const Ints& stride, const Ints& padding,
                const Ints& dilation, int64_t groups);
  NodeId conv_transpose2d(NodeId x, NodeId w, const Ints& kernel, const Ints& stride,
                          const Ints& padding, const Ints& dilation, const Ints& output_padding,
                          int64_t groups);
  NodeId binary(BinaryOp op, NodeId lhs, NodeId rhs, const Declared& out_shape = {});
  NodeId activation(Activation act, NodeId x, const Declared& shape = {});
  NodeId quantize(NodeId x, double scale, int64_t zero_point);
  NodeId quantize_per_channel(NodeId x, int64_t axis, std::vector<double> scales, Ints zero_points);
  NodeId dequantize(NodeId x, double scale, int64_t zero_point);
  NodeId dequantize_per_channel(NodeId x, int64_t axis, std::vector<double> scales,
                                Ints zero_points);

  // ---- spectral helpers for real signals; see ops/signal/fft_helpers.h
  NodeId pad_last_axis_to_pow2(NodeId x);
  NodePair split_spectrum(NodeId spectrum);
  NodePair fft_real(NodeId x, BuilderFftNorm norm);
  NodePair fft_batch_real(NodeId x, BuilderFftNorm norm);
  NodePair rfft(NodeId x, BuilderFftNorm norm);
  NodeId irfft(NodeId re_half, NodeId im_half, int64_t n, BuilderFftNorm norm);
  NodeId stft(NodeId x, int64_t frame_len, int64_t hop, BuilderFftNorm norm);
  NodeId fft_conv1d(NodeId a, NodeId b, int64_t n_fft, BuilderFftNorm norm);
  NodeId fftfreq_tensor(int64_t n);
  NodeId rfftfreq_tensor(int64_t n);
  NodeId psd_real(NodeId x, BuilderFftNorm norm);
  NodeId ifft_spectrum(NodeId re, NodeId im, BuilderFftNorm norm);
  NodeId psd(NodeId re, NodeId im);

  // ---- linear algebra, quantised
  NodeId matmul(NodeId lhs, NodeId rhs, const Declared& out_shape = {});
  NodeId dense_solve(NodeId a, NodeId b, const Declared& out_shape = {});
  NodeId batched_dense_solve(NodeId a, NodeId b, const Declared& out_shape = {});
  NodeId lora_matmul(NodeId x, NodeId w, NodeId a, NodeId b, double scale,
                     const Declared& shape = {});
  NodeId dequant_matmul(NodeId x, NodeId w_q, NodeId scale, NodeId zp, const QuantScheme& scheme,
                        const Declared& shape = {});
  NodeId dequant_matmul_packed(NodeId x, NodeId packed_w, const QuantScheme& scheme,
                               const Declared& shape = {});
  NodeId dequant_matmul_nvfp4(NodeId x, NodeId w_q, NodeId block_scales, NodeId global_scale,
                              const Declared& shape = {});
  NodeId fused_matmul_bias_act(NodeId x, NodeId w, NodeId bias, std::optional<Activation> act,
                               const Declared& shape = {});
  NodeId q_matmul(NodeId x, NodeId w, NodeId bias, int64_t x_zp, int64_t w_zp, int64_t out_zp,
                  double mult, const Declared& out_shape = {});
  NodeId q_conv2d(NodeId x, NodeId w, NodeId bias, const Ints& kernel, const Ints& stride,
                  const Ints& padding, const Ints& dilation, int64_t groups, int64_t x_zp,
                  int64_t w_zp, int64_t out_zp, double mult, const Declared& out_shape = {});

  // ---- normalisation, reduction, shape
  NodeId layer_norm2d(NodeId x, NodeId gamma, NodeId beta, double eps);
  NodeId group_norm(NodeId x, NodeId gamma, NodeId beta, int64_t num_groups, double eps);
  NodeId layer_norm(NodeId x, NodeId gamma, NodeId beta, int64_t axis, double eps,
                    const Declared& shape = {});
  NodeId fused_residual_ln(NodeId x, NodeId residual, const MaybeNode& bias, NodeId gamma,
                           NodeId beta, double eps, const Declared& shape = {});
  NodeId fused_residual_rms_norm(NodeId x, NodeId residual, const MaybeNode& bias, NodeId gamma,
                                 NodeId beta, double eps, const Declared& shape = {});
  NodeId reduce(NodeId x, ReduceOp op, Ints axes, bool keep_dim, const Declared& shape = {});
  NodeId softmax(NodeId x, int64_t axis, const Declared& shape = {});
  NodeId cumsum(NodeId x, int64_t axis, bool exclusive, const Declared& shape = {});
  // Token ids in the dtype of `output_shape`, f32 without one.
  NodeId sample(NodeId logits, int64_t top_k, double top_p, double temperature, uint64_t seed,
                const Declared& output_shape = {});
  NodeId reshape(NodeId x, const Ints& new_shape, const Declared& out_shape = {});
  NodeId gather(NodeId table, NodeId indices, int64_t axis, const Declared& shape = {});
  NodeId concat(const Values& inputs, int64_t axis, const Declared& shape = {});

  // ---- recurrences, scans, custom functions
  NodeId selective_scan(NodeId x, NodeId delta, NodeId a, NodeId b, NodeId c, int64_t state_size,
                        const Declared& shape = {});
  NodeId gated_delta_net(NodeId q, NodeId k, NodeId v, NodeId g, NodeId beta, int64_t state_size,
                         const Declared& shape = {});
  // The last state is result 1 of the node: write it back with builder().update().
  NodeId gated_delta_net_carry(NodeId q, NodeId k, NodeId v, NodeId g, NodeId beta, NodeId state,
                               int64_t state_size, const Declared& shape = {});
  NodeId scan(NodeId init, const Graph& body, int64_t length);
  NodeId scan_checkpointed(NodeId init, const Graph& body, int64_t length, int64_t num_checkpoints);
  NodeId scan_with_bcasts_and_xs(NodeId init, const Values& bcasts, const Values& xs,
                                 const Graph& body, int64_t length);
  NodeId scan_with_xs(NodeId init, const Values& xs, const Graph& body, int64_t length);
  NodeId scan_trajectory(NodeId init, const Graph& body, int64_t length);
  NodeId scan_backward(NodeId init, NodeId trajectory, NodeId upstream, const Values& xs,
                       const Graph& body_vjp, int64_t length, bool save_trajectory,
                       const Declared& out_shape = {});
  NodeId scan_backward_with_checkpoints(NodeId init, NodeId trajectory, NodeId upstream,
                                        const Values& xs, const Graph& body_vjp, int64_t length,
                                        bool save_trajectory, int64_t num_checkpoints,
                                        const std::optional<Graph>& forward_body,
                                        const Declared& out_shape = {});
  NodeId scan_backward_xs(NodeId init, NodeId trajectory, NodeId upstream, const Values& xs,
                          const Graph& body_vjp, int64_t length, bool save_trajectory,
                          int64_t xs_idx, const Declared& out_shape = {});
  NodeId scan_backward_xs_with_checkpoints(NodeId init, NodeId trajectory, NodeId upstream,
                                           const Values& xs, const Graph& body_vjp, int64_t length,
                                           bool save_trajectory, int64_t xs_idx,
                                           int64_t num_checkpoints,
                                           const std::optional<Graph>& forward_body,
                                           const Declared& out_shape = {});
  // One output; bodies as CustomFnAttrs says.
  NodeId custom_fn(const Values& inputs, const Graph& fwd_body,
                   const std::optional<Graph>& vjp_body = {},
                   const std::optional<Graph>& jvp_body = {});
  // Any number of outputs of one dtype and static shapes, packed into one.
  MultiOutputHandle custom_fn_multi(const Values& inputs, const Graph& fwd_body);

  // ---- Gaussian splats; see ops/splat/splat.h
  NodeId gaussian_splat_render(const GaussianSplatInputs& inputs,
                               const GaussianSplatRenderParams& params) {
    return rlx::gaussian_splat_render(b_, inputs, params);
  }
  NodeId gaussian_splat_render_meta(const std::array<double, 3>& camera_position,
                                    const std::array<double, 3>& camera_target,
                                    const std::array<double, 3>& camera_up, double fov_y_degrees,
                                    double near, double far,
                                    const std::array<double, 3>& background,
                                    const GaussianSplatRenderParams& params) {
    return rlx::gaussian_splat_render_meta(b_, camera_position, camera_target, camera_up,
                                           fov_y_degrees, near, far, background, params);
  }
  NodeId gaussian_splat_prepare(const GaussianSplatInputs& inputs,
                                const GaussianSplatRenderParams& params) {
    return rlx::gaussian_splat_prepare(b_, inputs, params);
  }
  NodeId gaussian_splat_rasterize(NodeId prep, NodeId meta,
                                  const GaussianSplatRasterParams& params) {
    return rlx::gaussian_splat_rasterize(b_, prep, meta, params);
  }
  NodeId gaussian_splat_render_decomposed(const GaussianSplatInputs& inputs,
                                          const GaussianSplatRenderParams& params) {
    return rlx::gaussian_splat_render_decomposed(b_, inputs, params);
  }
  NodeId gaussian_splat_render_backward(const GaussianSplatInputs& inputs, NodeId d_loss_rgba,
                                        const GaussianSplatBackwardParams& params) {
    return rlx::gaussian_splat_render_backward(b_, inputs, d_loss_rgba, params);
  }

  // ---- inferring builders
  NodeId mm(NodeId lhs, NodeId rhs) { return matmul(lhs, rhs); }
  NodeId add(NodeId lhs, NodeId rhs) { return binary(BinaryOp::add, lhs, rhs); }
  NodeId sub(NodeId lhs, NodeId rhs) { return binary(BinaryOp::sub, lhs, rhs); }
  NodeId mul(NodeId lhs, NodeId rhs) { return binary(BinaryOp::mul, lhs, rhs); }
  NodeId div(NodeId lhs, NodeId rhs) { return binary(BinaryOp::div, lhs, rhs); }
  NodeId max(NodeId lhs, NodeId rhs) { return binary(BinaryOp::max, lhs, rhs); }
  NodeId min(NodeId lhs, NodeId rhs) { return binary(BinaryOp::min, lhs, rhs); }
  NodeId pow(NodeId lhs, NodeId rhs) { return binary(BinaryOp::pow, lhs, rhs); }
  NodeId gelu(NodeId x) { return activation(Activation::gelu, x); }
  NodeId gelu_approx(NodeId x) { return activation(Activation::gelu_tanh, x); }
  NodeId silu(NodeId x) { return activation(Activation::silu, x); }
  NodeId relu(NodeId x) { return activation(Activation::relu, x); }
  NodeId sigmoid(NodeId x) { return activation(Activation::sigmoid, x); }
  NodeId tanh(NodeId x) { return activation(Activation::tanh, x); }
  NodeId exp(NodeId x) { return activation(Activation::exp, x); }
  NodeId log(NodeId x) { return activation(Activation::log, x); }  // the natural logarithm
  NodeId sqrt(NodeId x) { return activation(Activation::sqrt, x); }
  NodeId rsqrt(NodeId x) { return activation(Activation::rsqrt, x); }
  NodeId neg(NodeId x) { return activation(Activation::neg, x); }
  NodeId abs(NodeId x) { return activation(Activation::abs, x); }
  NodeId sin(NodeId x) { return activation(Activation::sin, x); }
  NodeId cos(NodeId x) { return activation(Activation::cos, x); }
  NodeId tan(NodeId x) { return activation(Activation::tan, x); }
  NodeId atan(NodeId x) { return activation(Activation::atan, x); }
  NodeId round(NodeId x) { return activation(Activation::round, x); }
  // Layer norm over the last axis (not the logarithm).
  NodeId ln(NodeId x, NodeId gamma, NodeId beta, double eps) {
    return layer_norm(x, gamma, beta, -1, eps);
  }
  NodeId rms_norm(NodeId x, NodeId gamma, NodeId beta, double eps);
  NodeId sum(NodeId x, Ints axes, bool keep_dim) {
    return reduce(x, ReduceOp::sum, std::move(axes), keep_dim);
  }
  NodeId mean(NodeId x, Ints axes, bool keep_dim) {
    return reduce(x, ReduceOp::mean, std::move(axes), keep_dim);
  }
  NodeId sm(NodeId x, int64_t axis) { return softmax(x, axis); }
  NodeId reshape_(NodeId x, const Ints& new_shape) { return reshape(x, new_shape); }
  NodeId transpose_(NodeId x, const Ints& perm);
  NodeId narrow_(NodeId x, int64_t axis, const Dim& start, const Dim& len);
  NodeId concat_(const Values& inputs, int64_t axis) { return concat(inputs, axis); }
  NodeId gather_(NodeId table, NodeId indices, int64_t axis) {
    return gather(table, indices, axis);
  }
  NodeId compare(CmpOp op, NodeId lhs, NodeId rhs, const Declared& shape = {});
  NodeId eq(NodeId lhs, NodeId rhs) { return compare(CmpOp::eq, lhs, rhs); }
  NodeId ne(NodeId lhs, NodeId rhs) { return compare(CmpOp::ne, lhs, rhs); }
  NodeId lt(NodeId lhs, NodeId rhs) { return compare(CmpOp::lt, lhs, rhs); }
  NodeId le(NodeId lhs, NodeId rhs) { return compare(CmpOp::le, lhs, rhs); }
  NodeId gt(NodeId lhs, NodeId rhs) { return compare(CmpOp::gt, lhs, rhs); }
  NodeId ge(NodeId lhs, NodeId rhs) { return compare(CmpOp::ge, lhs, rhs); }
  NodeId attention_(NodeId q, NodeId k, NodeId v, NodeId mask, int64_t num_heads,
                    int64_t head_dim) {
    return attention(q, k, v, mask, num_heads, head_dim);
  }
  NodeId rope(NodeId x, NodeId cos, NodeId sin, int64_t head_dim) {
    return rope_n(x, cos, sin, head_dim, head_dim);
  }
  NodeId rope_n(NodeId x, NodeId cos, NodeId sin, int64_t head_dim, int64_t n_rot);
  NodeId cast(NodeId x, DType to);

  // ---- further ops
  NodeId where_(NodeId cond, NodeId on_true, NodeId on_false);
  NodeId expand(NodeId x, const Ints& target_shape);  // -1 keeps a size
  NodeId pool(NodeId x, ReduceOp kind, const Ints& kernel, const Ints& stride, const Ints& padding);
  NodeId resize_nearest_2x(NodeId x);
  NodeId topk(NodeId x, int64_t k, DType dtype = DType::F32);  // indices, largest first
  NodeId scatter_add(NodeId updates, NodeId indices, const Dim& rows);
  NodeId dot_general(NodeId lhs, NodeId rhs, Ints lhs_contracting, Ints rhs_contracting,
                     Ints lhs_batch, Ints rhs_batch);
  NodeId grouped_matmul(NodeId x, NodeId weight, NodeId expert_idx);
  NodeId dequant_grouped_matmul(NodeId x, NodeId packed_w, NodeId expert_idx,
                                const QuantScheme& scheme, int64_t columns);
  NodeId dequant_moe_weights(NodeId packed_w, const QuantScheme& scheme, const Shape& shape);
  // The state is what scale_mode reads; with ema result 1 of the node is the new one.
  NodeId fake_quantize(NodeId x, int64_t bits, std::optional<int64_t> axis, SteKind ste,
                       ScaleMode scale_mode, const MaybeNode& state = {}, double decay = 0.9);
  NodeId fake_quantize_backward(NodeId x, NodeId dy, int64_t bits, std::optional<int64_t> axis,
                                SteKind ste);
  NodeId fake_quantize_lsq(NodeId x, NodeId scale, int64_t bits, std::optional<int64_t> axis);
  NodeId fake_quantize_lsq_backward_x(NodeId x, NodeId scale, NodeId dy, int64_t bits,
                                      std::optional<int64_t> axis);
  NodeId fake_quantize_lsq_backward_scale(NodeId x, NodeId scale, NodeId dy, int64_t bits,
                                          std::optional<int64_t> axis);
  // The predicate has one element; non-zero chooses `then_branch`. Results of the chosen branch.
  Values if_(NodeId predicate, const Values& captures, const Graph& then_branch,
             const Graph& else_branch);
  Values while_(const Values& carried, const Graph& cond, const Graph& body,
                std::optional<int64_t> max_iterations = {});
  Values elementwise_region(const Values& inputs, const Graph& body);
  NodeId fused_swiglu(NodeId packed, bool gate_first = false, std::optional<DType> cast_to = {});
  // hidden, qkv_w, out_w, mask, [qkv_b, out_b], [cos, sin]
  NodeId fused_attention_block(const Values& inputs, int64_t num_heads, int64_t head_dim,
                               bool has_bias, bool has_rope);
  // Operands as op::fused_transformer_layer lists them.
  NodeId fused_transformer_layer(const Values& inputs, int64_t num_heads, int64_t head_dim,
                                 double eps1, double eps2, Activation activation, bool has_bias);

 private:
  NodeId emit(const OpDef& op, Attrs attrs, const Values& in, const Declared& declared = {},
              int32_t result = 0);
  // Attention with the operands that the mask asks for; checks head_dim.
  NodeId attend(const Values& qkv, const MaybeNode& mask, int64_t num_heads, int64_t head_dim,
                const AttentionMask& kind, const Declared& shape, std::optional<double> scale,
                std::optional<double> softcap);
  NodeId residual_norm(const Op<FusedResidualAttrs>& op, Values in, const MaybeNode& bias,
                       NodeId gamma, NodeId beta, double eps, const Declared& shape);

  Builder b_;
};

}  // namespace rlx
