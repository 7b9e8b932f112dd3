#include "rlx/ops/support.h"

namespace rlx {

namespace {

constexpr std::string_view kColumns[] = {"infer", "eval", "decompose", "jvp", "vjp",
                                         "vmap",  "text", "bytes",     "cpu"};

using Entry = std::pair<Answer, std::string>;

const Entry kNative{Answer::native, ""};
const Entry kByDecomposition{Answer::derived, "decomposition"};
// A field's type always has a codec, or the attribute struct would not compile.
const Entry kByFields{Answer::derived, "fields"};

Entry infer_column(const OpDef& op) {
  return op.infer ? kNative : Entry{Answer::missing, "no infer rule"};
}

Entry eval_column(const OpDef& op) {
  if (op.eval) return kNative;
  if (op.decompose) return kByDecomposition;
  if (op.kind == Kind::leaf) return {Answer::native, "a leaf is bound by the caller"};
  return {Answer::missing, "neither eval nor decompose"};
}

Entry decompose_column(const OpDef& op) {
  if (op.decompose) return kNative;
  if (op.kind == Kind::composite) return {Answer::missing, "a composite without decomposition"};
  return {Answer::derived, "a primitive is its own definition"};
}

Entry derivative_column(const OpDef& op, bool stated, bool reverse) {
  if (op.kind == Kind::leaf) return {Answer::native, "a leaf: derivatives start or end here"};
  if (!op.not_differentiable.empty())
    return {Answer::not_applicable, std::string(op.not_differentiable)};
  if (stated) return kNative;
  if (op.derivative) return {Answer::derived, "derivative"};
  if (reverse && op.jvp) return {Answer::derived, "transpose of jvp"};
  if (!reverse && op.linear) return {Answer::derived, "linear"};
  if (op.decompose) return kByDecomposition;
  return {Answer::missing, "no derivative rule, no decomposition and no reason"};
}

Entry vmap_column(const OpDef& op) {
  if (op.kind == Kind::leaf) return {Answer::native, "a leaf: the caller says which are batched"};
  if (op.vmap) return kNative;
  if (op.kind == Kind::elementwise) return {Answer::derived, "elementwise"};
  if (op.decompose) return kByDecomposition;
  if (op.arity == 0) return {Answer::derived, "no operand can be batched: shared"};
  return {Answer::missing, "no vmap rule and no decomposition"};
}

Entry cpu_column(const OpDef& op, const std::set<std::string_view>& kernels) {
  if (op.kind == Kind::leaf) return {Answer::native, "a leaf is a buffer"};
  if (kernels.contains(op.name)) return kNative;
  if (op.scalar) return {Answer::generated, "scalar form"};
  if (op.decompose) return kByDecomposition;
  return {Answer::missing, "no kernel, no scalar form and no decomposition"};
}

}  // namespace

std::string_view name(Answer answer) {
  static constexpr std::string_view names[] = {"native", "generated", "derived", "not-applicable",
                                               "missing"};
  return names[static_cast<size_t>(answer)];
}

std::span<const std::string_view> support_columns() { return kColumns; }

std::vector<Support> support(const OpDef& op, const std::set<std::string_view>& cpu_kernels) {
  const Entry entries[] = {
      infer_column(op),
      eval_column(op),
      decompose_column(op),
      derivative_column(op, op.jvp != nullptr, false),
      derivative_column(op, op.vjp != nullptr, true),
      vmap_column(op),
      kByFields,  // text
      kByFields,  // bytes
      cpu_column(op, cpu_kernels),
  };
  static_assert(std::size(entries) == std::size(kColumns));
  std::vector<Support> out;
  for (size_t i = 0; i < std::size(kColumns); ++i)
    out.push_back({kColumns[i], entries[i].first, entries[i].second});
  return out;
}

std::vector<std::string> reference_names(const OpDef& op) {
  std::vector<std::string> out;
  std::string_view rest = op.reference;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    std::string_view name = rest.substr(0, comma);
    while (name.starts_with(' ')) name.remove_prefix(1);
    out.emplace_back(name);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return out;
}

}  // namespace rlx
