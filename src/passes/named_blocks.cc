// Named composites over more than a rule sees: the attention block, the transformer layer.
#include <charconv>
#include <set>

#include "rlx/ops/blocks/fused.h"
#include "rlx/ops/core.h"
#include "rlx/passes/named_passes.h"

namespace rlx {

namespace {

// ---- blocks

// The node whose first result is v, when it is of that op and only `readers` nodes read it.
const Node* inner(const Graph& g, const Uses& uses, Value v, OpRef op, int readers = 1) {
  const Node& n = g.node(v);
  const bool is_inner =
      v.index == 0 && n.op == op.op && uses.count(v.node) == readers && !uses.is_output(v.node);
  return is_inner ? &n : nullptr;
}

bool is_linear(const Node* n, bool activated) {
  return n && n->get<FusedMatmulAttrs>().activation.empty() != activated;
}

// A composite that takes the place of a node: kNone where its operands do not fit.
struct Composite {
  const OpDef* op = nullptr;
  Attrs attrs;
  Values in;  // of the old graph
};

bool fits(const Graph& g, const Composite& made, const Type& want) {
  Types types;
  for (Value v : made.in) types.push_back(g.type(v));
  try {
    return infer_types(*made.op, made.attrs, types) == Types{want};
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::user) throw;
    return false;
  }
}

// Thirds of the last axis, in order.
bool is_third(const Graph& g, const Node& slice, int64_t which) {
  const auto& a = slice.get<SliceAttrs>();
  const Shape& from = g.type(slice.in[0]).shape;
  const Dim width = slice.type().shape.back();
  for (int64_t stride : a.stride)
    if (stride != 1) return false;
  for (size_t i = 0; i + 1 < from.size(); ++i)
    if (slice.type().shape[i] != from[i]) return false;
  return from.back() == width * 3 && (a.start.empty() ? Dim(0) : a.start.back()) == width * which;
}

std::optional<Composite> attention_block(const Graph& g, const Uses& uses, const Node& out) {
  if (out.op != &op::fused_matmul_bias_act || !is_linear(&out, false)) return std::nullopt;
  const Node* attention = inner(g, uses, out.in[0], op::attention);
  if (!attention || attention->in.size() != 4) return std::nullopt;
  const auto& a = attention->get<AttentionAttrs>();
  const bool plain = a.has_mask && !a.has_bias && !a.has_sinks && a.mask == MaskKind::none &&
                     !a.scale && !a.softcap && a.layout == AttentionLayout::automatic &&
                     (a.num_kv_heads == 0 || a.num_kv_heads == a.num_heads);
  if (!plain) return std::nullopt;
  Value packed = kNone;
  for (size_t i = 0; i < 3; ++i) {
    const Node* part = inner(g, uses, attention->in[i], op::slice);
    if (!part || !is_third(g, *part, static_cast<int64_t>(i))) return std::nullopt;
    if (packed.valid() && part->in[0] != packed) return std::nullopt;
    packed = part->in[0];
  }
  const Node* qkv = inner(g, uses, packed, op::fused_matmul_bias_act, 3);
  if (!is_linear(qkv, false)) return std::nullopt;
  const auto width = out.type().shape.back().divide(Dim(a.num_heads));
  if (!width || !width->is_static()) return std::nullopt;
  Composite made{&op::fused_attention_block,
                 FusedAttentionBlockAttrs{a.num_heads, width->value(), true, false},
                 {qkv->in[0], qkv->in[1], out.in[1], attention->in[3], qkv->in[2], out.in[2]}};
  return fits(g, made, out.type()) ? std::optional(std::move(made)) : std::nullopt;
}

// The operand of a residual norm that `is` accepts, and the other one.
std::optional<std::pair<Value, Value>> terms(const Node& norm, FunctionRef<bool(Value)> is) {
  if (norm.get<FusedResidualAttrs>().has_bias) return std::nullopt;
  for (size_t i : {0, 1})
    if (is(norm.in[i])) return std::pair{norm.in[i], norm.in[1 - i]};
  return std::nullopt;
}

std::optional<Composite> transformer_layer(const Graph& g, const Uses& uses, const Node& ln2) {
  if (ln2.op != &op::fused_residual_ln) return std::nullopt;
  const auto last = terms(
      ln2, [&](Value v) { return is_linear(inner(g, uses, v, op::fused_matmul_bias_act), false); });
  if (!last) return std::nullopt;
  const auto [fc2_value, h1] = *last;
  const Node& fc2 = g.node(fc2_value);
  const Node* fc1 = inner(g, uses, fc2.in[0], op::fused_matmul_bias_act);
  const Node* ln1 = inner(g, uses, h1, op::fused_residual_ln, 2);
  if (!is_linear(fc1, true) || !ln1 || fc1->in[0] != h1) return std::nullopt;
  const auto first = terms(*ln1, [&](Value v) {
    const Node* n = inner(g, uses, v, op::fused_attention_block);
    return n && n->get<FusedAttentionBlockAttrs>().has_bias &&
           !n->get<FusedAttentionBlockAttrs>().has_rope;
  });
  if (!first) return std::nullopt;
  const Node& block = g.node(first->first);
  if (block.in[0] != first->second) return std::nullopt;
  const auto& a = block.get<FusedAttentionBlockAttrs>();
  Composite made{
      &op::fused_transformer_layer,
      FusedTransformerLayerAttrs{a.num_heads, a.head_dim, ln1->get<FusedResidualAttrs>().eps,
                                 ln2.get<FusedResidualAttrs>().eps,
                                 fc1->get<FusedMatmulAttrs>().activation, true},
      {block.in[0], block.in[1], block.in[4], block.in[2], block.in[5], ln1->in[2], ln1->in[3],
       fc1->in[1], fc1->in[2], fc2.in[1], fc2.in[2], ln2.in[2], ln2.in[3], block.in[3]}};
  return fits(g, made, ln2.type()) ? std::optional(std::move(made)) : std::nullopt;
}

// Blocks pay where there are few rows: some input's first two axes have at most `threshold` places.
bool has_few_rows(const Graph& g, int64_t threshold) {
  for (Value v : g.inputs()) {
    const Shape& s = g.type(v).shape;
    if (s.size() < 2 || !s[0].is_static() || !s[1].is_static()) continue;
    if (s[0].value() == 0 || s[1].value() <= threshold / s[0].value()) return true;
  }
  return false;
}

int64_t threshold_of(const PassOptions& o, std::string_view pass) {
  const std::string text = o.argument("threshold", "64");
  int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  user_check(status == std::errc() && end == text.data() + text.size() && value >= 0, "pass-option",
             "{}: threshold is a count of rows, not {}", pass, quote(text));
  return value;
}

using FindComposite = std::optional<Composite> (*)(const Graph&, const Uses&, const Node&);

Graph make_blocks(Graph&& g, const PassOptions& o, std::string_view pass, FindComposite find) {
  if (!has_few_rows(g, threshold_of(o, pass))) return std::move(g);
  const Uses uses(g);
  ResultMap<Values> map(g);
  bool changed = false;
  Graph out = rebuild(g, [&](Builder& b, int32_t i, Operands in) {
    const Node& n = g.node(i);
    const std::optional<Composite> made = find(g, uses, n);
    if (made) b.set_pass(std::string(pass));
    changed |= made.has_value();
    return map[i] = made ? b.emit(*made->op, made->attrs, map.at(made->in)) : b.clone(n, in);
  });
  return changed ? drop_dead(std::move(out)) : std::move(g);
}

constexpr PassArgument kThresholdArguments[] = {
    {"threshold", "the most rows (first two axes of an input) that a block is made for; 64"}};

}  // namespace

constinit const Pass pass::fuse_attention_block{
    .name = "fuse_attention_block",
    .doc = "Attention between two linear layers becomes one node, where rows are few.",
    .run =
        [](Graph&& g, const PassOptions& o) {
          return make_blocks(std::move(g), o, "fuse_attention_block", attention_block);
        },
    .arguments = kThresholdArguments};

constinit const Pass pass::fuse_transformer_layer{
    .name = "fuse_transformer_layer",
    .doc =
        "An attention block, two linear layers and their norms become one node, where rows are "
        "few.",
    .run =
        [](Graph&& g, const PassOptions& o) {
          return make_blocks(std::move(g), o, "fuse_transformer_layer", transformer_layer);
        },
    .arguments = kThresholdArguments};

}  // namespace rlx
