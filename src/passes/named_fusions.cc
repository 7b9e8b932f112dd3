// The named composites as rules: products with bias and activation, residual norms, SwiGLU.
#include "rlx/ops/blocks/fused.h"
#include "rlx/ops/core.h"
#include "rlx/ops/rules.h"
#include "rlx/passes/named_passes.h"

namespace rlx {

namespace {

using namespace rule_words;

// The composite rounds as its parts do.
bool rounds_alike(const Match& m) {
  const DType dtype = m.type().dtype;
  return dtype == DType::F32 || dtype == DType::F64 || (m.fast_math() && is_float(dtype));
}

bool is_plain_product(const Match& m, Var product) {
  const auto& a = m.get<MatmulAttrs>(product);
  return !a.transpose_a && !a.transpose_b && m.single_use(product) && m.type(product) == m.type() &&
         m.graph().type(m.node(product).in[1]).rank() == 2;
}

// ---- products with a bias and an activation

bool adds_a_bias(const Match& m) {  // z = x @ y, plus c
  return is_plain_product(m, z) && rounds_alike(m) && m.shape(c) == Shape{m.type().shape.back()};
}

// Activations are known by name: whether the op has the attributes that it has then, and keeps the type of the product z.
bool is_named_activation(const Match& m) {
  const OpDef& op = *m.root().op;
  try {
    if (!(m.root().attrs == default_attrs(op, m.type(z)))) return false;
    Types operands;
    for (Value v : m.node(z).in) operands.push_back(m.graph().type(v));
    return infer_types(op::fused_matmul_bias_act.def, FusedMatmulAttrs{std::string(op.name)},
                       operands) == Types{m.type()};
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::user) throw;
    return false;  // no activation, or one without such attributes
  }
}

bool ends_a_product(const Match& m) {  // z is the product
  return m.single_use(z) && m.get<FusedMatmulAttrs>(z).activation.empty() && rounds_alike(m) &&
         is_named_activation(m);
}

constexpr std::string_view kEpilogues = "gelu|silu";

RuleSet product_rules(const std::vector<const OpDef*>& epilogues) {
  Pattern activation(Pattern::Form::node);
  activation.ops = epilogues;
  activation.operands = std::vector<Pattern>{pat(op::fused_matmul_bias_act).as(z)};
  return {
      {"matmul-bias", pat(op::add, {pat(op::matmul, {x, y}).as(z), c}), adds_a_bias,
       [](Builder& b, const Match& m) {
         return op::fused_matmul_bias_act(b, m[x], m[y], m[c], {});
       }},
      {"matmul-epilogue", activation, ends_a_product,
       [](Builder& b, const Match& m) {
         const Values in = m.node(z).in;
         return op::fused_matmul_bias_act(b, in[0], in[1], in[2], {std::string(m.root().op->name)});
       }},
  };
}

std::vector<const OpDef*> epilogues_of(const PassOptions& o) {
  PassOptions named = o;
  named.arguments.try_emplace("epilogues", kEpilogues);
  std::vector<const OpDef*> out;
  for (const std::string& name : named.list("epilogues")) {
    const OpDef* const op = op_table().find(name);
    user_check(op && op->kind != Kind::leaf && op->arity == 1, "pass-option",
               "fuse_matmul_bias_act: epilogues are ops of one operand, which {} is not",
               quote(name));
    out.push_back(op);
  }
  return out;
}

// ---- norms of a sum

bool is_over_last(const Match& m) {
  return m.get<NormAttrs>().axis == m.type().rank() - 1 && rounds_alike(m);
}

bool norms_a_sum(const Match& m) {  // z = x + y, gains c, shifts d
  return is_over_last(m) && m.single_use(z) && m.type(x) == m.type() && m.type(y) == m.type();
}

bool norms_a_sum_with_bias(const Match& m) {  // (z = x + y) + e
  return norms_a_sum(m) && m.single_use(m.root().in[0]) &&
         m.graph().type(m.root().in[0]) == m.type() && m.shape(e) == Shape{m.type().shape.back()};
}

RuleSet residual_rules(OpRef norm, const Op<FusedResidualAttrs>& fused, std::string_view plain,
                       std::string_view with_bias) {
  return {
      {with_bias, pat(norm, {pat(op::add, {pat(op::add, {x, y}).as(z), e}), c, d}),
       norms_a_sum_with_bias,
       [&fused](Builder& b, const Match& m) {
         return fused(b, {m[x], m[y], m[e], m[c], m[d]}, {true, m.get<NormAttrs>().eps});
       }},
      {plain, pat(norm, {pat(op::add, {x, y}).as(z), c, d}), norms_a_sum,
       [&fused](Builder& b, const Match& m) {
         return fused(b, {m[x], m[y], m[c], m[d]}, {false, m.get<NormAttrs>().eps});
       }},
  };
}

bool merges_rows(const Match& m) {  // of z, a norm over the last axis
  return m.single_use(z) && m.type().rank() == 2 && m.type(z).rank() > 2 &&
         m.get<NormAttrs>(z).axis == m.type(z).rank() - 1 &&
         m.type().shape.back() == m.shape(z).back();
}

// ---- SwiGLU

bool is_weight(const Match& m, Var v) {
  return m.node(v).op == &op::param || m.node(v).op == &op::constant;
}

bool is_dual_product(const Match& m) {  // silu(c = x @ y) as z, e = x @ d
  return m.single_use(z) && is_plain_product(m, c) && is_plain_product(m, e) && is_weight(m, y) &&
         is_weight(m, d) && m.type(y) == m.type(d) && rounds_alike(m);
}

// Where along the last axis a slice begins that has all of the others.
std::optional<Dim> start_of_part(const Match& m, Var part) {
  const Node& n = m.node(part);
  const auto& a = n.get<SliceAttrs>();
  const Shape& from = m.graph().type(n.in[0]).shape;
  for (int64_t stride : a.stride)
    if (stride != 1) return std::nullopt;
  for (size_t i = 0; i + 1 < from.size(); ++i)
    if (n.type().shape[i] != from[i]) return std::nullopt;
  return a.start.empty() ? Dim(0) : a.start.back();
}

bool are_halves(const Match& m) {  // y = up, z = gate of x
  const auto up = start_of_part(m, y), gate = start_of_part(m, z);
  if (!up || !gate || m.type(y) != m.type(z) || m.type() != m.type(y)) return false;
  const Dim n = m.type().shape.back();
  const bool both = (*up == Dim(0) && *gate == n) || (*up == n && *gate == Dim(0));
  return both && m.shape(x).back() == n * 2 && m.single_use(y) && m.single_use(z) &&
         m.single_use(c) && rounds_alike(m);
}

Value joined_swiglu(Builder& b, const Match& m) {
  const Value weights = b.emit(op::concat.def, AxisAttrs{1}, Values{m[d], m[y]})[0];
  return op::fused_swiglu(b, op::matmul(b, m[x], weights), {});
}

const RuleSet& residual_ln_rules() {
  static const RuleSet rules = residual_rules(op::layer_norm, op::fused_residual_ln,
                                              "residual-layer-norm", "residual-bias-layer-norm");
  return rules;
}
const RuleSet& residual_rms_norm_rules() {
  static const RuleSet rules = residual_rules(op::rms_norm, op::fused_residual_rms_norm,
                                              "residual-rms-norm", "residual-bias-rms-norm");
  return rules;
}
const RuleSet& norm_reshape_rules() {
  static const RuleSet rules{{"rms-norm-rows",
                              pat(op::reshape, {pat(op::rms_norm, {x, c, d}).as(z)}), merges_rows,
                              [](Builder& b, const Match& m) {
                                return op::rms_norm(b, reshape_to(b, m[x], m.type().shape), m[c],
                                                    m[d], {1, m.get<NormAttrs>(z).eps});
                              }}};
  return rules;
}
const RuleSet& dual_rules() {
  static const RuleSet rules{{"swiglu-products",
                              pat(op::mul, {pat(op::silu, {pat(op::matmul, {x, y}).as(c)}).as(z),
                                            pat(op::matmul, {x, d}).as(e)}),
                              is_dual_product, joined_swiglu}};
  return rules;
}
const RuleSet& swiglu_rules() {
  static const RuleSet rules{
      {"swiglu-halves",
       pat(op::mul, {pat(op::slice, {x}).as(y), pat(op::silu, {pat(op::slice, {x}).as(z)}).as(c)}),
       are_halves, [](Builder& b, const Match& m) {
         return op::fused_swiglu(b, m[x], {std::nullopt, *start_of_part(m, z) == Dim(0)});
       }}};
  return rules;
}

Graph rewrite_as(Graph&& g, const RuleSet& rules, std::string_view pass, const PassOptions& o) {
  return rewrite(std::move(g), rules, {.pass = std::string(pass), .fast_math = o.fast_math},
                 o.stats);
}

constexpr PassArgument kEpilogueArguments[] = {
    {"epilogues", "the activations that end a product, name|name; gelu|silu when left out"}};

}  // namespace

const RuleSet& named_fusion_rules() {
  static const RuleSet rules = product_rules(epilogues_of({})) + residual_ln_rules() +
                               residual_rms_norm_rules() + norm_reshape_rules() + dual_rules() +
                               swiglu_rules();
  return rules;
}

constinit const Pass pass::fuse_matmul_bias_act{
    .name = "fuse_matmul_bias_act",
    .doc = "A product, its bias and perhaps its activation become one node.",
    .run =
        [](Graph&& g, const PassOptions& o) {
          return rewrite_as(std::move(g), product_rules(epilogues_of(o)), "fuse_matmul_bias_act",
                            o);
        },
    .arguments = kEpilogueArguments};

constinit const Pass pass::fuse_residual_ln{
    "fuse_residual_ln", "A sum and the layer norm over it become one node.",
    [](Graph&& g, const PassOptions& o) {
      return rewrite_as(std::move(g), residual_ln_rules(), "fuse_residual_ln", o);
    }};

constinit const Pass pass::fuse_residual_rms_norm{
    "fuse_residual_rms_norm", "A sum and the RMS norm over it become one node.",
    [](Graph&& g, const PassOptions& o) {
      return rewrite_as(std::move(g), residual_rms_norm_rules(), "fuse_residual_rms_norm", o);
    }};

constinit const Pass pass::fuse_rms_norm_reshape{
    "fuse_rms_norm_reshape", "Rows that are merged after an RMS norm are merged before it.",
    [](Graph&& g, const PassOptions& o) {
      return rewrite_as(std::move(g), norm_reshape_rules(), "fuse_rms_norm_reshape", o);
    }};

constinit const Pass pass::fuse_swiglu_dual_matmul{
    "fuse_swiglu_dual_matmul", "silu(x @ gate) * (x @ up) becomes one product and fused_swiglu.",
    [](Graph&& g, const PassOptions& o) {
      return rewrite_as(std::move(g), dual_rules(), "fuse_swiglu_dual_matmul", o);
    }};

constinit const Pass pass::fuse_swiglu{
    "fuse_swiglu", "silu of one half times the other half of a value becomes fused_swiglu.",
    [](Graph&& g, const PassOptions& o) {
      return rewrite_as(std::move(g), swiglu_rules(), "fuse_swiglu", o);
    }};

}  // namespace rlx
