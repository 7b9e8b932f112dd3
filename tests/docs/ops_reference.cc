// ops_reference: prints the op reference, with an example of each op that was run to write it.
#include "../support/samples.h"
#include "rlx/compile/compile.h"
#include "rlx/ops/reference_page.h"
#include "rlx/runtime/runtime.h"

namespace rlx::testing {
namespace {

constexpr std::string_view kHeader =
    "# Op reference\n\n"
    "Written by `make docs` from the op table; what the words mean stands in [ir.md](ir.md). An "
    "answer is *native* (the "
    "op states it), *generated* (from its scalar form), *derived* (from another rule or its "
    "decomposition) or "
    "*not-applicable* (with the reason). Examples show operands and results of the reference "
    "backend.\n\n";

std::string number(const Tensor& t, int64_t i) {
  if (is_complex(t.dtype())) {
    const Complex z = t.get_complex(i);
    return fmt::format("{:.4g}{:+.4g}i", z.real(), z.imag());
  }
  return is_float(t.dtype()) ? fmt::format("{:.4g}", t.get_float(i))
                             : fmt::format("{}", t.get_int(i));
}

// f32[2, 3] {1, 2, 3, ..}: the first dozen elements.
std::string show(const Tensor& t) {
  constexpr int64_t kMost = 12;
  std::vector<std::string> numbers;
  for (int64_t i = 0; i < std::min(t.elements(), kMost); ++i) numbers.push_back(number(t, i));
  if (t.elements() > kMost) numbers.emplace_back("..");
  return fmt::format("{}[{}] {{{}}}", t.dtype(), fmt::join(t.sizes(), ", "),
                     fmt::join(numbers, ", "));
}

std::string example(const Case& c) {
  std::string out = "```\n";
  for (size_t i = 0; i < c.operands.size(); ++i)
    out += fmt::format("%{} = {}  # {}\n", i, show(c.operands[i]),
                       operand_name(*c.node().op, i, c.operands.size()));
  const std::string text = print(c.graph);
  const std::string name = fmt::format("%{} = ", c.graph.size() - 1);
  const size_t start = text.find("\n  " + name), end = text.find("\n  return");
  out += text.substr(start + 3, end - start - 3) + "\n";
  const Tensors results = evaluate(c.graph, c.operands);
  for (const Tensor& t : results) out += fmt::format("   -> {}\n", show(t));
  return out + "```\n\n";
}

// The first sample that the op takes in f32, else in the first dtype it does.
std::string example_of(const OpDef& op) {
  std::vector<DType> order{DType::F32};
  for (const DTypeInfo& d : kDTypes) order.push_back(d.dtype);
  for (DType d : order)
    for (const Sample& s : samples())
      if (s.op == op.name)
        if (const auto c = make_case(s, d)) return example(*c);
  return {};
}

void write() {
  fmt::print("{}", kHeader);
  const std::vector<std::string> names = native_ops(*backend_for("cpu"));
  const std::set<std::string_view> kernels(names.begin(), names.end());
  std::string_view family;
  for (const OpTable::Entry& e : op_table().entries()) {
    if (e.family != family) fmt::print("## {}\n\n", family = e.family);
    fmt::print("{}", reference_page(*e.op, support(*e.op, kernels), example_of(*e.op)));
  }
}

}  // namespace
}  // namespace rlx::testing

int main() { rlx::testing::write(); }
