#include "rlx/ops/reference_page.h"

namespace rlx {

namespace {

// A table's cell: bars would end it.
std::string cell(std::string_view text) {
  std::string out;
  for (char c : text) out += c == '|' ? "\\|" : c == '\n' ? " " : std::string(1, c);
  return out;
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

std::string signature(const OpDef& op) { return fmt::format("{}({})", op.name, op.operands); }

std::string reference_page(const OpDef& op, const std::vector<Support>& support,
                           const std::string& example) {
  std::string out =
      fmt::format("### {}\n\n{}`{}`: {}\n\n", op.name, example, signature(op), op.doc);
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
  if (const auto names = operand_names(op); !names.empty())
    out += fmt::format("Dtypes of {}: {}. ", names[0].name, op.dtypes.to_string());
  out += fmt::format("Kind: {}.", enum_names(op.kind)[static_cast<size_t>(op.kind)]);
  if (op.block) out += fmt::format(" A block of HIR: `{}`.", op.block->kind);
  if (!op.reference.empty()) out += fmt::format(" In dumps: `{}`.", op.reference);
  return out + fmt::format(" {}.\n\n", fmt::join(answers, "; "));
}

}  // namespace rlx
