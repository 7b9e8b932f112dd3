#include "rlx/ops/blocks/fused.h"

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/linalg/linalg.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/nn/nn_rules.h"
#include "rlx/ops/table.h"

namespace rlx {

Attrs default_attrs(const OpDef& op, const Type& operand) {
  std::shared_ptr<void> attrs = op.attr_type->make();
  if (op.normalise) op.normalise(attrs.get(), op.name, {&operand, 1});
  return {op.attr_type, std::move(attrs)};
}

namespace {

bool keeps_type(const OpDef& op, const Type& type) {
  if (op.arity != 1 || !op.dtypes.has(type.dtype)) return false;
  try {
    return infer_types(op, default_attrs(op, type), {&type, 1}) == Types{type};
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::user) throw;
    return false;  // its default attributes do not fit
  }
}

// The op that an activation names; nullptr for "".
const OpDef* activation_of(const InferArgs& a, const std::string& name, const Type& type) {
  if (name.empty()) return nullptr;
  const OpDef* const op = op_table().find(name);
  if (!op || !keeps_type(*op, type))
    bad_operands(a, "activation",
                 fmt::format("\"{}\" is no op of one operand that keeps its type", name));
  return op;
}

Expr activate(Expr x, const std::string& name) {
  if (name.empty()) return x;
  const OpDef& op = *op_table().find(name);
  return x.make(x.builder().emit(op, default_attrs(op, x.type()), Values{x})[0]);
}

void require(const InferArgs& a, bool fits, const std::string& what) {
  if (!fits) bad_operands(a, "fused-shape", what);
}

bool is_shape(const Type& t, const Shape& want) {
  if (t.shape.size() != want.size()) return false;
  for (size_t i = 0; i < want.size(); ++i)
    if (differ(t.shape[i], want[i])) return false;
  return true;
}

void require_operands(const InferArgs& a, size_t count) {
  if (a.in.size() != count)
    bad_operands(a, "fused-operands", fmt::format("these attributes ask for {} operands", count));
}

// ---- matmul, norms, swiglu

Types infer_fused_matmul(const InferArgs& a) {
  require_same_dtype(a);
  const Attrs plain = MatmulAttrs{};
  const Type out = op::matmul.def.infer({a.op, plain, a.in.first(2)})[0];
  require(a, is_shape(a.in[2], {out.shape.back()}),
          fmt::format("bias must be [{}]", out.shape.back()));
  activation_of(a, a.get<FusedMatmulAttrs>().activation, out);
  return {out};
}

Types infer_residual(const InferArgs& a) {
  require_same_dtype(a);
  const bool bias = a.get<FusedResidualAttrs>().has_bias;
  require_operands(a, bias ? 5 : 4);
  const Type& x = a.in[0];
  require(a, x.rank() > 0 && is_shape(a.in[1], x.shape),
          "residual must be as x, of rank 1 or more");
  for (const Type& t : a.in.subspan(2))
    require(a, is_shape(t, {x.shape.back()}),
            fmt::format("bias, gamma and beta must be [{}]", x.shape.back()));
  return {x};
}

template <const auto& norm>
Values decompose_residual(Builder& b, const Node& n, Operands in) {
  const auto& f = n.get<FusedResidualAttrs>();
  Expr x = widen(b, in[0]) + widen(b, in[1]);
  if (f.has_bias) x = x + widen(b, in[2]);
  const size_t gamma = f.has_bias ? 3 : 2;
  const Value y = norm(b, x, widen(b, in[gamma]), widen(b, in[gamma + 1]), {-1, f.eps});
  return {cast_to(b, y, n.type().dtype)};
}

template <const auto& norm>
constexpr OpDef residual_norm(std::string_view name, std::string_view doc,
                              std::string_view reference) {
  return {.name = name,
          .doc = doc,
          .reference = reference,
          .arity = 5,
          .min_arity = 4,
          .dtypes = kFloats,
          .infer = infer_residual,
          .decompose = decompose_residual<norm>};
}

Types infer_swiglu(const InferArgs& a) {
  const auto& f = a.get<FusedSwigluAttrs>();
  Type out = a.in[0];
  const auto half = out.rank() > 0 ? out.shape.back().divide(Dim(2)) : std::nullopt;
  require(a, half.has_value(), "x must be [.., 2 N]");
  if (f.cast_to && !kFloats.has(*f.cast_to))
    bad_operands(a, "fused-operands", fmt::format("cast_to must be a float, not {}", *f.cast_to));
  out.shape.back() = *half;
  out.dtype = f.cast_to.value_or(out.dtype);
  return {out};
}

Values decompose_swiglu(Builder& b, const Node& n, Operands in) {
  Expr x = widen(b, in[0]);
  const Dim half = n.type().shape.back();
  const auto part = [&](bool second) -> Expr {
    Shape start(x.shape().size(), Dim(0)), limit = x.shape();
    start.back() = second ? half : Dim(0);
    limit.back() = second ? half * 2 : half;
    return op::slice(x, {start, limit, {}});
  };
  const bool gate_first = n.get<FusedSwigluAttrs>().gate_first;
  Expr up = part(gate_first), gate = part(!gate_first);
  return {cast_to(b, up * (gate * op::sigmoid(gate)), n.type().dtype)};
}

// ---- blocks

struct HeadSizes {
  int64_t heads, head_dim;
  Dim width;
};
HeadSizes head_sizes(const InferArgs& a, int64_t heads, int64_t head_dim) {
  require_same_dtype({a.op, a.attrs, a.in.first(3)});
  const Type& hidden = a.in[0];
  require(a, hidden.rank() == 3, "hidden must be [B, S, heads * head_dim]");
  const auto size = heads > 0 ? hidden.shape[2].divide(Dim(heads)) : std::nullopt;
  require(
      a,
      size && size->is_static() && size->value() > 0 && (head_dim == 0 || *size == Dim(head_dim)),
      fmt::format("hidden must be [B, S, {} * head_dim] with head_dim {}", heads,
                  head_dim ? std::to_string(head_dim) : "a positive number"));
  return {heads, size->value(), hidden.shape[2]};
}

// The operands from `first` on are of hidden's dtype, the mask is of a real one or bool.
void require_block_dtypes(const InferArgs& a, size_t mask, size_t first, size_t end) {
  Types own{a.in[0]};
  for (size_t i = first; i < end; ++i)
    if (i != mask) own.push_back(a.in[i]);
  require_same_dtype({a.op, a.attrs, own});
  if (!(kReals | kBools).has(a.in[mask].dtype))
    bad_operands(a, "dtype", "the mask must be of a real dtype or bool");
}

Types infer_attention_block(const InferArgs& a) {
  const auto& f = a.get<FusedAttentionBlockAttrs>();
  require_operands(a, size_t{4} + (f.has_bias ? 2 : 0) + (f.has_rope ? 2 : 0));
  const HeadSizes s = head_sizes(a, f.num_heads, f.head_dim);
  const Shape& hidden = a.in[0].shape;
  require(a,
          is_shape(a.in[1], {s.width, s.width * 3}) && is_shape(a.in[2], {s.width, s.width}) &&
              is_shape(a.in[3], {hidden[0], hidden[1]}),
          fmt::format("qkv_w must be [{0}, 3 * {0}], out_w [{0}, {0}], mask [{1}, {2}]", s.width,
                      hidden[0], hidden[1]));
  if (f.has_bias)
    require(a, is_shape(a.in[4], {s.width * 3}) && is_shape(a.in[5], {s.width}),
            fmt::format("qkv_b must be [3 * {0}], out_b [{0}]", s.width));
  require_block_dtypes(a, 3, 1, f.has_bias ? 6 : 3);
  if (f.has_rope) {
    const size_t tables = f.has_bias ? 6 : 4;
    const Type turned[] = {a.in[0], a.in[tables], a.in[tables + 1]};
    const Attrs rope = RopeAttrs{.head_dim = s.head_dim, .n_rot = s.head_dim};
    op::rope.def.infer({a.op, rope, turned});
  }
  return {a.in[0]};
}

struct Projection {
  Value weight, bias = kNone;
  Expr operator()(Expr x) const {
    Expr y = op::matmul(x, x.make(weight));
    return bias.valid() ? y + x.make(bias) : y;
  }
};

// Attention of hidden with itself between two projections. cos and sin may be kNone.
Expr attend(Expr hidden, const Projection& qkv, const Projection& out, Value mask, Value cos,
            Value sin, int64_t heads) {
  Builder& b = hidden.builder();
  const Dim width = hidden.shape()[2];
  const Expr packed = qkv(hidden);
  Values parts;
  for (int64_t i = 0; i < 3; ++i) {
    Shape limit = packed.shape();
    limit[2] = width * (i + 1);
    Value part = op::slice(b, packed, {{0, 0, width * i}, limit, {}});
    if (i < 2 && cos.valid())
      part = op::rope(b, part, cos, sin, {.head_dim = width.divide(Dim(heads))->value()});
    parts.push_back(part);
  }
  parts.push_back(mask);
  const AttentionAttrs attrs{.num_heads = heads, .has_mask = true};
  return out(hidden.make(b.emit(op::attention.def, attrs, parts)[0]));
}

Values decompose_attention_block(Builder& b, const Node& n, Operands in) {
  const auto& f = n.get<FusedAttentionBlockAttrs>();
  const size_t tables = f.has_bias ? 6 : 4;
  return {attend({b, in[0]}, {in[1], f.has_bias ? in[4] : kNone},
                 {in[2], f.has_bias ? in[5] : kNone}, in[3], f.has_rope ? in[tables] : kNone,
                 f.has_rope ? in[tables + 1] : kNone, f.num_heads)};
}

// A transformer layer's operands in the order of the op; biases are absent without has_bias.
template <class T>
struct LayerParts {
  T hidden, qkv_w, qkv_b, out_w, out_b, ln1_g, ln1_b, fc1_w, fc1_b, fc2_w, fc2_b, ln2_g, ln2_b,
      mask;
  LayerParts(std::span<const T> in, bool has_bias, const T& none) {
    size_t at = 0;
    for (auto [part, is_bias] : std::initializer_list<std::pair<T*, bool>>{{&hidden, false},
                                                                           {&qkv_w, false},
                                                                           {&qkv_b, true},
                                                                           {&out_w, false},
                                                                           {&out_b, true},
                                                                           {&ln1_g, false},
                                                                           {&ln1_b, false},
                                                                           {&fc1_w, false},
                                                                           {&fc1_b, true},
                                                                           {&fc2_w, false},
                                                                           {&fc2_b, true},
                                                                           {&ln2_g, false},
                                                                           {&ln2_b, false},
                                                                           {&mask, false}})
      *part = is_bias && !has_bias ? none : in[at++];
  }
};

Types infer_transformer_layer(const InferArgs& a) {
  const auto& f = a.get<FusedTransformerLayerAttrs>();
  require_operands(a, f.has_bias ? 14 : 10);
  const HeadSizes s = head_sizes(a, f.num_heads, f.head_dim);
  const LayerParts<Type> p(a.in, f.has_bias, Type{});
  require(a, p.fc1_w.rank() == 2, "fc1_w must be [hs, intermediate]");
  const Dim inner = p.fc1_w.shape[1];
  const auto bias = [&](const Type& t, const Dim& size) {
    return !f.has_bias || is_shape(t, {size});
  };
  require(a,
          is_shape(p.qkv_w, {s.width, s.width * 3}) && bias(p.qkv_b, s.width * 3) &&
              is_shape(p.out_w, {s.width, s.width}) && bias(p.out_b, s.width) &&
              is_shape(p.fc1_w, {s.width, inner}) && bias(p.fc1_b, inner) &&
              is_shape(p.fc2_w, {inner, s.width}) && bias(p.fc2_b, s.width) &&
              is_shape(p.mask, {p.hidden.shape[0], p.hidden.shape[1]}),
          fmt::format("with hidden [B, S, hs] and fc1_w [hs, I]: qkv_w [hs, 3 hs], out_w [hs, hs], "
                      "fc2_w [I, hs], biases as wide as the products, mask [B, S]; hs is {}",
                      s.width));
  for (const Type* t : {&p.ln1_g, &p.ln1_b, &p.ln2_g, &p.ln2_b})
    require(a, is_shape(*t, {s.width}), fmt::format("gains and shifts must be [{}]", s.width));
  require_block_dtypes(a, a.in.size() - 1, 1, a.in.size());
  activation_of(a, f.activation, {p.hidden.dtype, {p.hidden.shape[0], p.hidden.shape[1], inner}});
  return {p.hidden};
}

Values decompose_transformer_layer(Builder& b, const Node& n, Operands in) {
  const auto& f = n.get<FusedTransformerLayerAttrs>();
  const LayerParts<Value> p(in, f.has_bias, kNone);
  Expr hidden(b, p.hidden);
  const auto residual = [&](Expr x, Expr to, Value gamma, Value beta, double eps) -> Expr {
    return {b, op::fused_residual_ln(b, {x, to, gamma, beta}, {false, eps})};
  };
  Expr attended =
      attend(hidden, {p.qkv_w, p.qkv_b}, {p.out_w, p.out_b}, p.mask, kNone, kNone, f.num_heads);
  Expr h1 = residual(attended, hidden, p.ln1_g, p.ln1_b, f.eps1);
  Expr inner = activate(Projection{p.fc1_w, p.fc1_b}(h1), f.activation);
  return {residual(Projection{p.fc2_w, p.fc2_b}(inner), h1, p.ln2_g, p.ln2_b, f.eps2)};
}

}  // namespace

namespace op {

constinit const Op<FusedMatmulAttrs> fused_matmul_bias_act = OpDef{
    .name = "fused_matmul_bias_act",
    .doc = "act(x @ w + bias), bias [N]; activation names the op, \"\" none.",
    .reference = "FusedMatMulBiasAct",
    .role = Role::product,
    .arity = 3,
    .operands = "x, w, bias",
    .dtypes = kFloats,
    .infer = infer_fused_matmul,
    .decompose = [](Builder& b, const Node& n, Operands in) -> Values {
      Expr y = op::matmul(widen(b, in[0]), widen(b, in[1])) + widen(b, in[2]);
      return {cast_to(b, activate(y, n.get<FusedMatmulAttrs>().activation), n.type().dtype)};
    },
};

constinit const Op<FusedResidualAttrs> fused_residual_ln =
    named("x, residual, bias?, gamma, beta",
          residual_norm<op::layer_norm>("fused_residual_ln",
                                        "layer_norm(x + residual [+ bias]) over the last axis; "
                                        "operands x, residual, [bias], gamma, "
                                        "beta.",
                                        "FusedResidualLN"));

constinit const Op<FusedResidualAttrs> fused_residual_rms_norm = named(
    "x, residual, bias?, gamma, beta",
    residual_norm<op::rms_norm>(
        "fused_residual_rms_norm",
        "rms_norm(x + residual [+ bias]) over the last axis; operands x, residual, [bias], gamma, "
        "beta.",
        "FusedResidualRmsNorm"));

constinit const Op<FusedSwigluAttrs> fused_swiglu = OpDef{
    .name = "fused_swiglu",
    .doc =
        "up * gate * sigmoid(gate) of the halves of the last axis: up first, or the gate with "
        "gate_first; cast_to is the result's dtype.",
    .reference = "FusedSwiGLU",
    .arity = 1,
    .dtypes = kFloats,
    .infer = infer_swiglu,
    .decompose = decompose_swiglu,
};

constinit const Op<FusedAttentionBlockAttrs> fused_attention_block = OpDef{
    .name = "fused_attention_block",
    .doc =
        "Self-attention between two projections: q, k, v are thirds of hidden @ qkv_w [+ qkv_b], "
        "turned by rope where cos and sin are given, keys masked by mask [B, S], then @ out_w [+ "
        "out_b].",
    .reference = "FusedAttentionBlock",
    .role = Role::product,
    .arity = 8,
    .min_arity = 4,
    .operands = "hidden, qkv_w, out_w, mask, qkv_b?, out_b?, cos?, sin?",
    .dtypes = kFloats,
    .infer = infer_attention_block,
    .decompose = decompose_attention_block,
};

constinit const Op<FusedTransformerLayerAttrs> fused_transformer_layer = OpDef{
    .name = "fused_transformer_layer",
    .doc =
        "A post-norm layer: h1 = layer_norm(attention_block(hidden) + hidden), layer_norm(act(h1 @ "
        "fc1) @ fc2 + h1); 14 operands, or 10 without the biases.",
    .reference = "FusedTransformerLayer",
    .role = Role::product,
    .arity = 14,
    .min_arity = 10,
    .operands =
        "hidden, qkv_w, qkv_b?, out_w, out_b?, ln1_g, ln1_b, fc1_w, fc1_b?, fc2_w, fc2_b?, ln2_g, "
        "ln2_b, mask",
    .dtypes = kFloats,
    .infer = infer_transformer_layer,
    .decompose = decompose_transformer_layer,
};

}  // namespace op

namespace {
constexpr const OpDef* kFusedOps[] = {
    &op::fused_matmul_bias_act, &op::fused_residual_ln,     &op::fused_residual_rms_norm,
    &op::fused_swiglu,          &op::fused_attention_block, &op::fused_transformer_layer,
};
}  // namespace
constinit const Family kFused{"fused", kFusedOps};

}  // namespace rlx
