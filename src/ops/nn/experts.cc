// Grouped products, mixtures of experts and low-rank adapters.
#include "rlx/ops/nn/experts.h"

#include <cmath>
#include <limits>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/indexing/scatter.h"
#include "rlx/ops/indexing/sorting.h"
#include "rlx/ops/linalg/linalg.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/nn/nn.h"
#include "rlx/ops/quant/quant_rules.h"
#include "rlx/ops/quant/quantise.h"
#include "rlx/ops/reduce/reduce.h"

namespace rlx {
namespace {

constexpr DTypeSet kIndexTypes = kInts | DTypeSet{DType::F32, DType::F64};

void require_experts(const InferArgs& a, size_t i) {
  if (!kIndexTypes.has(a.in[i].dtype))
    bad_operands(a, "index-dtype",
                 fmt::format("expert ids must be of {}", kIndexTypes.to_string()));
  if (a.in[i].rank() != 1 || differ(a.in[i].shape[0], a.in[0].shape[0]))
    bad_operands(a, "experts-shape", "there must be one expert id per row of x");
}

int64_t expert_of(const EvalArgs& e, int64_t row, int64_t experts) {
  const double value = e.in[2].get_float(row);
  const int64_t id = e.in[2].get_int(row);
  user_check(id >= 0 && id < experts && !std::isnan(value), "index-range",
             "{}: expert {} of row {} is out of range, allowed is [0, {})", e.node.op->name, value,
             row, experts);
  return id;
}

// [B, M, ..] -> [B * M, ..]
Value merge_rows(Builder& b, Value x) {
  Shape shape = b.shape(x);
  shape[1] = shape[0] * shape[1];
  shape.erase(shape.begin());
  return op::reshape(b, x, {shape});
}

// Rows and ids of all batches below each other, for shared weights; result [B * M, N] -> [B, M, N].
Values vmap_rows(Builder& b, const VmapArgs& a) {
  if (a.batched[1]) return {};
  auto rows = [&](size_t i) {
    return merge_rows(b, a.batched[i] ? a.in[i] : batch_operand(b, a.in[i], a.size));
  };
  const Value y = b.clone(a.node, Values{rows(0), a.in[1], rows(2)})[0];
  return {reshape_to(b, y, prepend(a.size, a.node.out[0].shape))};
}

// ---- grouped_matmul -------------------------------------------------------------------------------------

Types infer_grouped(const InferArgs& a) {
  const Shape &x = a.in[0].shape, &w = a.in[1].shape;
  const bool swapped = a.get<GroupedMatmulAttrs>().transpose_weight;
  if (a.in[0].dtype != a.in[1].dtype)
    bad_operands(a, "dtype-mixed", "x and the weights must have one dtype");
  if (x.rank() != 2 || w.rank() != 3 || differ(x[1], w[swapped ? 2 : 1]))
    bad_operands(a, "experts-shape",
                 "x is [M, K] and the weights [E, K, N] or transposed [E, N, K]");
  require_experts(a, 2);
  return {{a.in[0].dtype, {x[0], w[swapped ? 1 : 2]}}};
}

Tensors evaluate_grouped(const EvalArgs& e) {
  Tensor out = e.make();
  const Tensor &x = e.in[0], &w = e.in[1];
  const bool swapped = e.get<GroupedMatmulAttrs>().transpose_weight;
  const int64_t m = out.sizes()[0], n = out.sizes()[1], k = x.sizes()[1];
  const int64_t k_step = swapped ? 1 : n, n_step = swapped ? k : 1;
  for (int64_t i = 0; i < m; ++i) {
    const int64_t slab = expert_of(e, i, w.sizes()[0]) * k * n;
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p)
        sum += x.get_float(i * k + p) * w.get_float(slab + p * k_step + j * n_step);
      out.set_float(i * n + j, sum);
    }
  }
  return {out};
}

// Every row with its own copy of a weight: [M, 1, K] @ [M, K, N]. f16 and bf16 as f32.
Values decompose_grouped(Builder& b, const Node& n, Operands in) {
  const DType dtype = b.type(in[0]).dtype, wide = wide_of(dtype);
  if (wide != dtype) {
    const Values operands{cast_to(b, in[0], wide), cast_to(b, in[1], wide), in[2]};
    return {cast_to(b, b.emit(*n.op, n.attrs, operands)[0], dtype)};
  }
  const Shape x = b.shape(in[0]);
  const Value own = op::gather(b, in[1], in[2], {.axis = 0});
  const Value rows = reshape_to(b, in[0], {x[0], 1, x[1]});
  const MatmulAttrs attrs{.transpose_b = n.get<GroupedMatmulAttrs>().transpose_weight};
  return {reshape_to(b, op::matmul(b, rows, own, attrs), n.out[0].shape)};
}

Values vjp_grouped(Builder& b, const VjpArgs& a) {
  const bool swapped = a.node.get<GroupedMatmulAttrs>().transpose_weight;
  const Value x = a.in[0], w = a.in[1], ids = a.in[2], g = a.cotangents[0];
  Values out(3, kNone);
  if (a.wanted[0]) out[0] = op::grouped_matmul(b, g, w, ids, {!swapped});
  if (a.wanted[1])
    out[1] = op::grouped_outer(b, swapped ? g : x, swapped ? x : g, ids, {b.shape(w)[0]});
  return out;
}

// ---- grouped_outer --------------------------------------------------------------------------------------

Types infer_outer(const InferArgs& a) {
  const Shape &x = a.in[0].shape, &y = a.in[1].shape;
  const Dim experts = a.get<GroupedOuterAttrs>().experts;
  if (a.in[0].dtype != a.in[1].dtype) bad_operands(a, "dtype-mixed", "x and y must have one dtype");
  if (x.rank() != 2 || y.rank() != 2 || differ(x[0], y[0]) || is_negative(experts))
    bad_operands(a, "experts-shape", "x is [M, K] and y [M, N], for 0 or more experts");
  require_experts(a, 2);
  return {{a.in[0].dtype, {experts, x[1], y[1]}}};
}

Tensors evaluate_outer(const EvalArgs& e) {
  Tensor out = e.make();
  const Tensor &x = e.in[0], &y = e.in[1];
  const int64_t m = x.sizes()[0], k = x.sizes()[1], n = y.sizes()[1];
  std::vector<double> sums(at(out.elements()));
  for (int64_t i = 0; i < m; ++i) {
    const int64_t slab = expert_of(e, i, out.sizes()[0]) * k * n;
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = 0; j < n; ++j)
        sums[at(slab + p * n + j)] += x.get_float(i * k + p) * y.get_float(i * n + j);
  }
  for (int64_t i = 0; i < out.elements(); ++i) out.set_float(i, sums[at(i)]);
  return {out};
}

Values decompose_outer(Builder& b, const Node& n, Operands in) {
  const Shape x = b.shape(in[0]), y = b.shape(in[1]);
  const DType dtype = b.type(in[0]).dtype, wide = wide_of(dtype);
  const Expr column(b, reshape_to(b, cast_to(b, in[0], wide), {x[0], x[1], 1}));
  const Expr row(b, reshape_to(b, cast_to(b, in[1], wide), {y[0], 1, y[1]}));
  const Value sums =
      op::scatter_add(b, column * row, in[2], {0, n.get<GroupedOuterAttrs>().experts});
  return {cast_to(b, sums, dtype)};
}

Values vjp_outer(Builder& b, const VjpArgs& a) {
  const Value g = a.cotangents[0], ids = a.in[2];
  Values out(3, kNone);
  if (a.wanted[0]) out[0] = op::grouped_matmul(b, a.in[1], g, ids, {.transpose_weight = true});
  if (a.wanted[1]) out[1] = op::grouped_matmul(b, a.in[0], g, ids);
  return out;
}

// ---- quantised experts ----------------------------------------------------------------------------------

// How many experts' slabs of [columns, K] are in the bytes.
Dim experts_in(const InferArgs& a, const FormatInfo& f, const Dim& columns, const Dim& k,
               const Type& bytes) {
  if (bytes.dtype != DType::U8) bad_operands(a, "dtype", "packed weights are u8");
  const Dim slab = columns * Dim(row_bytes(a.op.name, f, k));
  const auto experts = slab == Dim(0) ? std::nullopt : bytes.shape.elements().divide(slab);
  if (!experts)
    bad_operands(a, "quant-bytes",
                 fmt::format("{} bytes are not slabs of {}", bytes.shape.elements(), slab));
  return *experts;
}

Types infer_dequant_grouped(const InferArgs& a) {
  const auto& [scheme, columns] = a.get<DequantGroupedAttrs>();
  const FormatInfo& f = ggml_format(a.op.name, scheme);
  if (a.in[0].rank() != 2 || columns < 1)
    bad_operands(a, "experts-shape", "x is [M, K], and there is at least one column");
  require_experts(a, 2);
  experts_in(a, f, columns, a.in[0].shape[1], a.in[1]);
  return {{a.in[0].dtype, {a.in[0].shape[0], columns}}};
}

Values decompose_dequant_grouped(Builder& b, const Node& n, Operands in) {
  const auto& [scheme, columns] = n.get<DequantGroupedAttrs>();
  const DType dtype = b.type(in[0]).dtype, wide = wide_of(dtype);
  if (wide != dtype) {
    const Value x = cast_to(b, in[0], wide);
    return {cast_to(b, b.emit(*n.op, n.attrs, Values{x, in[1], in[2]})[0], dtype)};
  }
  const Dim k = b.shape(in[0])[1];
  const Dim row = row_bytes(n.op->name, scheme.info(), k);
  const Dim experts = *b.shape(in[1]).elements().divide(row * Dim(columns));
  const Value w = op::dequantise_blocks(b, in[1], {scheme, {experts, columns, k}});
  return {op::grouped_matmul(b, in[0], cast_to(b, w, wide), in[2], {.transpose_weight = true})};
}

Types infer_moe_weights(const InferArgs& a) {
  const auto& [scheme, shape] = a.get<MoeWeightsAttrs>();
  const FormatInfo& f = ggml_format(a.op.name, scheme);
  if (shape.rank() != 3) bad_operands(a, "experts-shape", "the shape is [E, K, N]");
  if (differ(shape[0] * shape[2] * Dim(row_bytes(a.op.name, f, shape[1])),
             a.in[0].shape.elements()))
    bad_operands(a, "quant-bytes", fmt::format("the bytes are not {} of {}", shape, f.name));
  return {{DType::F32, shape}};
}

// ---- adapters -------------------------------------------------------------------------------------------

Types infer_lora(const InferArgs& a) {
  require_same_dtype(a);
  const Shape &x = a.in[0].shape, &w = a.in[1].shape, &p = a.in[2].shape, &q = a.in[3].shape;
  if (x.rank() < 2 || w.rank() != 2 || p.rank() != 2 || q.rank() != 2 || differ(x.back(), w[0]) ||
      differ(p[0], w[0]) || differ(q[1], w[1]) || differ(p[1], q[0]))
    bad_operands(a, "lora-shape", "operands are x [.., M, K], w [K, N], a [K, r] and b [r, N]");
  Shape shape = x;
  shape.back() = w[1];
  return {{a.in[0].dtype, shape}};
}

Values decompose_lora(Builder& b, const Node& n, Operands in) {
  const DType dtype = b.type(in[0]).dtype, wide = wide_of(dtype);
  auto operand = [&](size_t i) { return cast_to(b, in[i], wide); };
  const Expr low(b, op::matmul(b, operand(0), operand(2)));
  const Expr base(b, op::matmul(b, operand(0), operand(1)));
  const Expr update(b, op::matmul(b, low * n.get<LoraAttrs>().scale, operand(3)));
  return {cast_to(b, base + update, dtype)};
}

// ---- routing --------------------------------------------------------------------------------------------

void require_k(const InferArgs& a, const Dim& experts) {
  const int64_t k = a.get<MoeGateAttrs>().k;
  if (k < 1 || is_negative(experts - k))
    bad_operands(a, "experts-k", fmt::format("k must be in [1, {}], not {}", experts, k));
}

Types infer_gate(const InferArgs& a) {
  if (a.in[0].rank() != 2) bad_operands(a, "experts-shape", "the logits are [T, E]");
  require_k(a, a.in[0].shape[1]);
  const Shape shape{a.in[0].shape[0], a.get<MoeGateAttrs>().k};
  return {{a.in[0].dtype, shape}, {DType::I64, shape}};
}

// The k largest logits; their scores follow from the places.
Values decompose_gate(Builder& b, const Node& n, Operands in) {
  const auto& [k, kind] = n.get<MoeGateAttrs>();
  const DType dtype = b.type(in[0]).dtype;
  const Expr logits(b, cast_to(b, in[0], wide_of(dtype)));
  const Expr score = kind == GateKind::softmax   ? Expr(op::softmax(logits))
                     : kind == GateKind::sigmoid ? Expr(op::sigmoid(logits))
                                                 : logits;
  const Value ids = b.emit(*&op::topk, TopkAttrs{.k = k, .axis = 1}, Values{logits})[1];
  Expr w(b, op::take_along_axis(b, score, ids, {.axis = 1}));
  if (kind == GateKind::softmax_topk) w = op::softmax(w);
  if (kind == GateKind::sigmoid)
    w = w / Expr(b, op::reduce_sum(b, w, {.axes = {1}, .keepdims = true}));
  return {cast_to(b, w, dtype), ids};
}

Types infer_moe(const InferArgs& a) {
  require_same_dtype(a);
  const Shape &x = a.in[0].shape, &r = a.in[1].shape, &g = a.in[2].shape, &u = a.in[3].shape,
              &d = a.in[4].shape;
  const bool ranks =
      x.rank() == 2 && r.rank() == 2 && g.rank() == 3 && u.rank() == 3 && d.rank() == 3;
  if (!ranks || differ(x[1], r[0]) || differ(g[0], r[1]) || differ(g[1], x[1]) ||
      differ(u[0], g[0]) || differ(u[1], g[1]) || differ(u[2], g[2]) || differ(d[0], g[0]) ||
      differ(d[1], g[2]) || differ(d[2], x[1]))
    bad_operands(a, "experts-shape",
                 "operands are x [T, D], router [D, E], gate and up [E, D, F], down [E, F, D]");
  require_k(a, r[1]);
  return {a.in[0]};
}

Values decompose_moe(Builder& b, const Node& n, Operands in) {
  const auto& gate = n.get<MoeGateAttrs>();
  const DType dtype = b.type(in[0]).dtype, wide = wide_of(dtype);
  auto operand = [&](size_t i) { return cast_to(b, in[i], wide); };
  const Value x = operand(0);
  const Dim tokens = b.shape(x)[0], width = b.shape(x)[1], k = gate.k;
  const Values chosen = b.emit(*&op::moe_gate, gate, Values{op::matmul(b, x, operand(1))});
  // Every token once for each of its experts.
  const Value ids = reshape_to(b, chosen[1], {tokens * k});
  const Value spread = broadcast_to(b, reshape_to(b, x, {tokens, 1, width}), {tokens, k, width});
  const Value rows = reshape_to(b, spread, {tokens * k, width});
  const Expr up(b, op::grouped_matmul(b, rows, operand(3), ids));
  const Expr gated = Expr(b, op::silu(b, op::grouped_matmul(b, rows, operand(2), ids))) * up;
  const Value down = op::grouped_matmul(b, gated, operand(4), ids);
  const Expr each(b, reshape_to(b, down, {tokens, k, width}));
  const Expr weight(b, reshape_to(b, chosen[0], {tokens, k, 1}));
  return {cast_to(b, sum_axes(b, each * weight, {1}), dtype)};
}

}  // namespace

namespace op {

constinit const Op<GroupedMatmulAttrs> grouped_matmul = OpDef{
    .name = "grouped_matmul",
    .doc =
        "result[i] = x[i] @ w[experts[i]] (or @ w[experts[i]]^T): rows of x [M, K] with weights "
        "[E, K, N]. f16 and "
        "bf16 are summed in f32; an expert out of range raises \"index-range\".",
    .reference = "GroupedMatMul",
    .role = Role::product,
    .kind = Kind::contraction,
    .arity = 3,
    .operands = "x, w, expert_ids",
    .dtypes = kFloats,
    .infer = infer_grouped,
    .eval = evaluate_grouped,
    .decompose = decompose_grouped,
    .jvp = jvp_bilinear,
    .vjp = vjp_grouped,
    .vmap = vmap_rows,
    .cost =
        [](const Node& n, std::span<const Type> in) {
          return element_count(in[0]) * element_count({DType::F32, {n.type().shape[1]}});
        },
};

constinit const Op<GroupedOuterAttrs> grouped_outer = OpDef{
    .name = "grouped_outer",
    .doc =
        "result[e] = the sum of x[i]^T y[i] over the rows with experts[i] = e; 0 for none. f16 and "
        "bf16 are summed "
        "in f32; an expert out of range raises \"index-range\".",
    .kind = Kind::contraction,
    .arity = 3,
    .operands = "x, y, expert_ids",
    .dtypes = kFloats,
    .infer = infer_outer,
    .eval = evaluate_outer,
    .decompose = decompose_outer,
    .jvp = jvp_bilinear,
    .vjp = vjp_outer,
    .cost =
        [](const Node&, std::span<const Type> in) {
          return element_count(in[0]) * element_count({DType::F32, {in[1].shape[1]}});
        },
};

constinit const Op<DequantGroupedAttrs> dequant_grouped_matmul = OpDef{
    .name = "dequant_grouped_matmul",
    .doc =
        "grouped_matmul with weights in ggml blocks: one slab of rows [N, K] per expert. "
        "Differentiable by x.",
    .reference = "DequantGroupedMatMul",
    .role = Role::product,
    .numerics = Numerics::exact,
    .arity = 3,
    .operands = "x, w, expert_ids",
    .dtypes = kFloats,
    .infer = infer_dequant_grouped,
    .decompose = decompose_dequant_grouped,
    .vmap = vmap_rows,
};

constinit const Op<MoeWeightsAttrs> dequant_moe_weights = OpDef{
    .name = "dequant_moe_weights",
    .doc = "The f32 weights [E, K, N] of slabs of ggml blocks, each stored as rows [N, K].",
    .reference = "DequantMoEWeights",
    .role = Role::product,
    .numerics = Numerics::exact,
    .operands = "blocks",
    .dtypes = {DType::U8},
    .infer = infer_moe_weights,
    .decompose = [](Builder& b, const Node& n, Operands in) -> Values {
      const auto& [scheme, shape] = n.get<MoeWeightsAttrs>();
      const Shape stored{shape[0], shape[2], shape[1]};
      return {matrix_transpose(b, op::dequantise_blocks(b, in[0], {scheme, stored}))};
    },
    .not_differentiable = "its operand is packed codes",
};

constinit const Op<LoraAttrs> lora_matmul = OpDef{
    .name = "lora_matmul",
    .doc =
        "x @ w + (scale * (x @ a)) @ b: a product with a low-rank adapter. f16 and bf16 are "
        "computed in f32.",
    .reference = "LoraMatMul",
    .role = Role::product,
    .arity = 4,
    .operands = "x, w, a, b",
    .dtypes = kFloats,
    .infer = infer_lora,
    .decompose = decompose_lora,
};

constinit const Op<MoeGateAttrs> moe_gate = OpDef{
    .name = "moe_gate",
    .doc =
        "The k experts with the largest logits of each token, largest first and the first of "
        "equals, and their "
        "weights: softmax over all experts, softmax_topk over the chosen ones, or sigmoid divided "
        "by the sum over "
        "the chosen ones. The choice counts as a constant in derivatives.",
    .operands = "logits",
    .dtypes = kFloats,
    .infer = infer_gate,
    .decompose = decompose_gate,
};

constinit const Op<MoeGateAttrs> moe = OpDef{
    .name = "moe",
    .doc =
        "A mixture of SwiGLU experts: the sum over the k chosen experts e (moe_gate of x @ router) "
        "of weight * "
        "(silu(x @ gate[e]) * (x @ up[e])) @ down[e]. f16 and bf16 are computed in f32.",
    .arity = 5,
    .operands = "x, router, gate, up, down",
    .dtypes = kFloats,
    .infer = infer_moe,
    .decompose = decompose_moe,
};

}  // namespace op

namespace {
constexpr const OpDef* kExpertsOps[] = {&op::grouped_matmul,
                                        &op::grouped_outer,
                                        &op::dequant_grouped_matmul,
                                        &op::dequant_moe_weights,
                                        &op::lora_matmul,
                                        &op::moe_gate,
                                        &op::moe};
}  // namespace

constinit const Family kExperts{"experts", kExpertsOps};

}  // namespace rlx
