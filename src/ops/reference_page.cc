#include "rlx/ops/reference_page.h"

namespace rlx {

namespace {

// A table's cell: bars would end it.
std::string cell(std::string_view text) {
  std::string out;
  for (char c : text) out += c == '|' ? "\\|" : c == '\n' ? " " : std::string(1, c);
  return out;
}

std::string arity_text(const OpDef& op) {
  if (op.arity == kVariadic) return fmt::format("{} or more", op.min_arity);
  if (op.min_arity > 0 && op.min_arity < op.arity)
    return fmt::format("{} to {}", op.min_arity, op.arity);
  return std::to_string(op.arity);
}

}  // namespace

std::vector<AttributeInfo> attributes_of(const OpDef& op) {
  std::vector<AttributeInfo> out;
  const std::shared_ptr<void> defaults = op.attr_type->make();
  for (const FieldInfo& f : op.attr_type->fields) {
    Printer p;
    f.print(p, defaults.get());
    out.push_back({std::string(f.name), f.type(), p.out});
  }
  return out;
}

std::string reference_page(const OpDef& op, const std::vector<Support>& support) {
  std::string out = fmt::format("### {}\n\n{}\n\n", op.name, op.doc);
  out += fmt::format("Operands: {}; dtypes of the first: {}; kind: {}.", arity_text(op),
                     op.dtypes.to_string(), enum_names(op.kind)[static_cast<size_t>(op.kind)]);
  if (!op.reference.empty()) out += fmt::format(" In the specification: `{}`.", op.reference);
  out += "\n\n";
  if (const auto attrs = attributes_of(op); !attrs.empty()) {
    out += "| attribute | type | default |\n|---|---|---|\n";
    for (const AttributeInfo& a : attrs)
      out += fmt::format("| `{}` | {} | `{}` |\n", a.name, cell(a.type), cell(a.default_text));
    out += '\n';
  }
  std::vector<std::string> answers;
  for (const Support& s : support)
    answers.push_back(
        fmt::format("{}: {}{}", s.column, name(s.answer), s.how.empty() ? "" : " (" + s.how + ")"));
  return out + fmt::format("{}.\n\n", fmt::join(answers, "; "));
}

}  // namespace rlx
