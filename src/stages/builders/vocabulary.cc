#include "rlx/stages/builders/vocabulary.h"

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/reduce/reduce.h"

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

AnyOp attention_kind_op(int64_t num_heads, int64_t head_dim, const AttentionMask& mask,
                        std::optional<double> score_scale,
                        std::optional<double> attn_logit_softcap) {
  return {op::attention,
          attention_attributes(num_heads, head_dim, mask, score_scale, attn_logit_softcap)};
}

std::string op_kind(const OpDef& op) {
  if (op.block) return std::string(op.block->kind);
  const std::string_view name = op.reference.empty() ? op.name : op.reference;
  return std::string(name.substr(0, name.find_first_of("(,")));
}

namespace {

// What dumps call the members of an enum, in its order.
constexpr std::string_view kActivationWords[] = {
    "Gelu",  "GeluApprox", "Silu", "Relu", "Sigmoid", "Tanh", "Exp",  "Log",  "Sqrt",
    "Rsqrt", "Neg",        "Abs",  "Sin",  "Cos",     "Tan",  "Atan", "Round"};
constexpr std::string_view kBinaryWords[] = {"Add", "Sub", "Mul", "Div", "Max", "Min", "Pow"};
constexpr std::string_view kCmpWords[] = {"Eq", "Ne", "Lt", "Le", "Gt", "Ge"};
constexpr std::string_view kReduceWords[] = {"Sum", "Mean", "Max", "Min", "Prod"};

template <class Enum>
std::string_view word_of(const OpDef& op, std::span<const std::string_view> words) {
  for (size_t i = 0; i < words.size(); ++i)
    if (&op_of(static_cast<Enum>(i)) == &op) return words[i];
  return {};
}

// "" for ops that are shown under their own name.
std::string_view elementwise_word(const OpDef& op) {
  for (std::string_view word : {word_of<Activation>(op, kActivationWords),
                                word_of<BinaryOp>(op, kBinaryWords), word_of<CmpOp>(op, kCmpWords)})
    if (!word.empty()) return word;
  return {};
}

}  // namespace

std::string op_text(const OpDef& op, const Attrs& attrs) {
  if (&op == &op::constant)
    return fmt::format("const({}B)", attrs.get<ConstantAttrs>().value.type().bytes());
  if (op.kind == Kind::leaf)
    return fmt::format("{}({})", op.name, quote(attrs.get<LeafAttrs>().name));
  if (const auto word = elementwise_word(op); !word.empty()) return std::string(word);
  if (const auto word = word_of<ReduceOp>(op, kReduceWords); !word.empty())
    return fmt::format("reduce_{}([{}])", word, fmt::join(attrs.get<ReduceAttrs>().axes, ", "));
  Printer shown;
  const std::shared_ptr<void> standard = attrs.type()->make();
  for (const FieldInfo& f : attrs.fields()) {
    if (f.is<Body>() || f.equal(attrs.data(), standard.get())) continue;
    shown.out += fmt::format("{}{}=", shown.out.empty() ? "" : ", ", f.name);
    f.print(shown, attrs.data());
  }
  return shown.out.empty() ? std::string(op.name) : fmt::format("{}({})", op.name, shown.out);
}

}  // namespace rlx
