#include "rlx/stages/vocabulary.h"

#include "rlx/ops/elementwise.h"
#include "rlx/ops/reduce.h"

namespace rlx {

const OpDef& op_of(BinaryOp kind) {
  static constexpr const OpDef* ops[] = {&op::add,     &op::sub,     &op::mul, &op::div,
                                         &op::maximum, &op::minimum, &op::pow};
  return *ops[static_cast<size_t>(kind)];
}
const OpDef& op_of(CmpOp kind) {
  static constexpr const OpDef* ops[] = {&op::eq, &op::ne, &op::lt, &op::le, &op::gt, &op::ge};
  return *ops[static_cast<size_t>(kind)];
}
const OpDef& op_of(ReduceOp kind) {
  static constexpr const OpDef* ops[] = {&op::reduce_sum, &op::reduce_mean, &op::reduce_max,
                                         &op::reduce_min, &op::reduce_prod};
  return *ops[static_cast<size_t>(kind)];
}

std::string AttentionMask::to_string() const {
  static constexpr std::string_view names[] = {"none", "causal", "sw=", "custom", "bias"};
  std::string out(names[static_cast<size_t>(kind)]);
  if (kind == Kind::sliding_window) out += std::to_string(window);
  return out;
}

AnyOp attention_kind_op(int64_t num_heads, int64_t head_dim, const AttentionMask& mask,
                        std::optional<double> score_scale,
                        std::optional<double> attn_logit_softcap) {
  user_check(num_heads > 0 && head_dim > 0, "attention-heads",
             "attention: {} heads of width {}; both must be positive", num_heads, head_dim);
  AttentionAttrs a{.num_heads = num_heads, .scale = score_scale, .softcap = attn_logit_softcap};
  switch (mask.kind) {
    case AttentionMask::Kind::none:
      break;
    case AttentionMask::Kind::causal:
      a.mask = MaskKind::causal;
      break;
    case AttentionMask::Kind::sliding_window:
      a.mask = MaskKind::sliding_window;
      a.window = mask.window;
      break;
    case AttentionMask::Kind::custom:
      a.has_mask = true;
      break;
    case AttentionMask::Kind::bias:
      a.has_bias = true;
      break;
  }
  return {op::attention, a};
}

std::string op_kind(const OpDef& op) {
  const std::string_view name = op.reference.empty() ? op.name : op.reference;
  return std::string(name.substr(0, name.find_first_of("(,")));
}

namespace {

// "Binary(Add)" -> "Add"; "" for names without a part in parentheses.
std::string_view part_of(std::string_view reference) {
  const size_t open = reference.find('('), close = reference.find(')');
  if (open == reference.npos || close == reference.npos) return {};
  return reference.substr(open + 1, close - open - 1);
}

}  // namespace

std::string op_text(const OpDef& op, const Attrs& attrs) {
  if (op.kind == Kind::leaf && op.name != "constant")
    return fmt::format("{}({})", op.name, quote(attrs.get<LeafAttrs>().name));
  if (op.name == "constant")
    return fmt::format("const({}B)", attrs.get<ConstantAttrs>().value.type().bytes());
  const std::string_view part = part_of(op.reference);
  std::string out(part.empty() ? op.name : part);
  Printer shown;
  const std::shared_ptr<void> standard = attrs.type()->make();
  for (const FieldInfo& f : attrs.fields()) {
    if (*f.member_type == typeid(Body) || f.equal(attrs.data(), standard.get())) continue;
    shown.out += fmt::format("{}{}=", shown.out.empty() ? "" : ", ", f.name);
    f.print(shown, attrs.data());
  }
  return shown.out.empty() ? out : fmt::format("{}({})", out, shown.out);
}

}  // namespace rlx
