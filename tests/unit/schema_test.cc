// The schema of every op: operands and fields by name, type, order and default (tests/schema.txt). Texts, bytes and Python
// programs name them, so a change here is a change of format: read the diff, and think of those who have files.
// RLX_UPDATE_TEXT=1 rewrites the snapshot.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "rlx/ops/ops.h"
#include "rlx/ops/reference_page.h"

namespace rlx {
namespace {

const std::string kSnapshot = RLX_SOURCE_DIR "/tests/schema.txt";

std::string schema() {
  std::string out = fmt::format("version {}\n", kLanguageVersion);
  for (const auto& [op, family] : op_table().entries()) {
    if (family == "custom" && op->name != "custom") continue;  // registered by a test
    out += signature(*op);
    if (op->since > 1) out += fmt::format(" since {}", op->since);
    if (!op->formerly.empty()) out += fmt::format(", formerly {}", op->formerly);
    out += '\n';
    for (const AttributeInfo& a : attributes_of(*op))
      out += fmt::format("  {}: {} = {}\n", a.name, a.type, a.default_text);
  }
  return out;
}

TEST(Schema, IsTheCheckedInOne) {
  const std::string now = schema();
  if (std::getenv("RLX_UPDATE_TEXT")) std::ofstream(kSnapshot) << now;
  std::ifstream file(kSnapshot);
  std::ostringstream before;
  before << file.rdbuf();
  if (before.str() == now) return;
  std::istringstream a(before.str()), b(now);
  std::string was, is;
  while (was == is && (a || b)) {
    if (!std::getline(a, was)) was.clear();
    if (!std::getline(b, is)) is.clear();
  }
  ADD_FAILURE()
      << "the schema changed, first here:\n  was: " << was << "\n  is:  " << is
      << "\nA renamed or reordered field is a change of format (ir/text.h); with RLX_UPDATE_TEXT=1 "
         "this test rewrites tests/schema.txt.";
}

bool is_identifier(std::string_view s) {
  bool good = !s.empty() && !('0' <= s[0] && s[0] <= '9');
  for (char c : s) good = good && (('a' <= c && c <= 'z') || ('0' <= c && c <= '9') || c == '_');
  return good;
}

TEST(Schema, EveryOperandHasAName) {
  for (const auto& [op, family] : op_table().entries()) {
    const std::vector<OperandName> names = operand_names(*op);
    std::string stated;
    for (const OperandName& n : names)
      stated +=
          (stated.empty() ? "" : ", ") + n.name + (n.several ? ".." : "") + (n.optional ? "?" : "");
    EXPECT_EQ(stated, op->operands) << op->name << ": the entry has to name them all";
    std::set<std::string> seen;
    int optional = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      EXPECT_TRUE(is_identifier(names[i].name)) << signature(*op);
      EXPECT_TRUE(seen.insert(names[i].name).second) << signature(*op) << ": a name twice";
      EXPECT_TRUE(!names[i].several || i + 1 == names.size()) << signature(*op);
      optional += names[i].optional;
    }
    for (const AttributeInfo& a : attributes_of(*op))
      EXPECT_FALSE(seen.contains(a.name)) << op->name << ": " << a.name << " is an attribute, too";
    const int count = static_cast<int>(names.size());
    const bool several = !names.empty() && names.back().several;
    EXPECT_EQ(several, op->arity == kVariadic) << signature(*op);
    if (several) {
      EXPECT_LE(count - 1, op->min_arity) << signature(*op);
    } else {
      EXPECT_EQ(count, op->arity) << signature(*op);
      EXPECT_EQ(count - optional, op->min_arity > 0 ? op->min_arity : op->arity) << signature(*op);
    }
  }
}

// The page of an op: its example, what it does with its operands, its attributes, and bookkeeping last.
TEST(Schema, PagesBeginWithTheExample) {
  for (const OpDef* op : {&op::softmax.def, &op::conv.def}) {
    const std::string page = reference_page(*op, {}, "EXAMPLE\n\n");
    size_t before = 0;
    for (const std::string& part :
         {std::string("EXAMPLE"), "`" + signature(*op) + "`", std::string("| attribute |"),
          std::string("Dtypes of "), std::string("Kind: ")}) {
      const size_t at = page.find(part);
      ASSERT_NE(at, std::string::npos) << part << "\n" << page;
      EXPECT_GT(at, before) << part << "\n" << page;
      before = at;
    }
  }
}

TEST(Schema, MessagesNameOperands) {
  Builder b("f");
  const Value logits = b.input("logits", {DType::F32, {4, 3}}),
              labels = b.input("labels", {DType::I64, {5}});
  try {
    op::softmax_cross_entropy(b, logits, labels);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("logits [4, 3] f32, labels [5] i64"), std::string::npos)
        << e.message();
  }
  EXPECT_EQ(operand_name(op::concat.def, 2, 4), "xs[2]");
  EXPECT_EQ(operand_name(op::fused_residual_ln.def, 2, 4), "gamma");
  EXPECT_EQ(operand_name(op::fused_residual_ln.def, 2, 5), "bias");
  EXPECT_EQ(operand_name(op::scan_backward.def, 4, 6), "xs[1]");
}

}  // namespace
}  // namespace rlx
