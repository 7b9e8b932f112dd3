// rlx ops: the op table, as text, JSON or the op reference.
#include <nlohmann/json.hpp>

#include "rlx/base/suggest.h"
#include "rlx/cli/cli.h"
#include "rlx/cli/output.h"
#include "rlx/compile/compile.h"
#include "rlx/ops/core.h"
#include "rlx/ops/reference_page.h"

namespace rlx::cli {

namespace {

using nlohmann::ordered_json;

// The answers of every op; without a CPU backend its column says so.
class Matrix {
 public:
  Matrix() : has_cpu_(is_available("cpu")) {
    if (has_cpu_) names_ = native_ops(*backend_for("cpu"));
    kernels_ = {names_.begin(), names_.end()};
  }
  std::vector<Support> row(const OpDef& op) const {
    std::vector<Support> out = support(op, kernels_);
    for (Support& s : out)
      if (s.column == "cpu" && !has_cpu_)
        s = {s.column, Answer::not_applicable, "this build has no CPU backend"};
    return out;
  }

 private:
  bool has_cpu_;
  std::vector<std::string> names_;
  std::set<std::string_view> kernels_;
};

void print_json(const Matrix& matrix) {
  ordered_json ops = ordered_json::array();
  for (const OpTable::Entry& e : op_table().entries()) {
    ordered_json list = ordered_json::array(), reasons = ordered_json::object();
    for (const AttributeInfo& a : attributes_of(*e.op))
      list.push_back({{"name", a.name}, {"type", a.type}, {"default", a.default_text}});
    ordered_json operands = ordered_json::array();
    for (const OperandName& o : operand_names(*e.op))
      operands.push_back({{"name", o.name}, {"optional", o.optional}, {"several", o.several}});
    ordered_json row{{"name", e.op->name},
                     {"family", e.family},
                     {"stage", enum_names(e.op->stage())[static_cast<size_t>(e.op->stage())]},
                     {"reference", reference_names(*e.op)},
                     {"operands", operands},
                     {"attributes", list}};
    for (const Support& s : matrix.row(*e.op)) {
      row[std::string(s.column)] = name(s.answer);
      if (!s.how.empty()) reasons[std::string(s.column)] = s.how;
    }
    row["reasons"] = reasons;
    ops.push_back(std::move(row));
  }
  say("{}\n", ordered_json{{"ops", ops}}.dump(1));
}

void print_text(const Matrix& matrix) {
  say("{:<24} {:<12}", "op", "family");
  for (std::string_view c : support_columns()) say(" {:<14}", c);
  say("\n");
  int missing = 0;
  for (const OpTable::Entry& e : op_table().entries()) {
    say("{:<24} {:<12}", e.op->name, e.family);
    for (const Support& s : matrix.row(*e.op)) {
      say(" {:<14}", name(s.answer));
      missing += s.answer == Answer::missing;
    }
    say("\n");
  }
  say("{} ops, {} missing\n", op_table().entries().size(), missing);
}

void print_markdown(const Matrix& matrix) {
  say("# Op reference\n\nWritten by `rlx ops --markdown` from the op table. An answer is *native* "
      "(the op states it), "
      "*generated* (from its scalar form), *derived* (from another rule or its decomposition) or "
      "*not-applicable* (with "
      "the reason).\n\n");
  std::string_view family;
  for (const OpTable::Entry& e : op_table().entries()) {
    if (e.family != family) say("## {}\n\n", family = e.family);
    say("{}", reference_page(*e.op, matrix.row(*e.op)));
  }
}

}  // namespace

void add_ops(Cli& cli) {
  struct Options {
    std::string op;
    bool json = false, markdown = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* c =
      cli.command("ops", "Prints every op and its answer to every question, or one op's page",
                  "rlx ops softmax_cross_entropy");
  c->add_option("OP", o->op, "The op whose page to print");
  CLI::Option* json = c->add_flag("--json", o->json, "As JSON");
  c->add_flag("--markdown", o->markdown, "As the op reference")->excludes(json);
  c->callback([&cli, o] {
    cli.action = [o] {
      const Matrix matrix;
      if (!o->op.empty()) {
        const OpDef* op = op_table().find(o->op);
        std::vector<std::string_view> names;
        for (const OpTable::Entry& e : op_table().entries()) names.push_back(e.op->name);
        user_check(op != nullptr, "op-unknown", "there is no op {}{}; `rlx ops` lists them",
                   quote(o->op), did_you_mean(o->op, names));
        say("{}", reference_page(*op, matrix.row(*op)));
        return;
      }
      o->json ? print_json(matrix) : o->markdown ? print_markdown(matrix) : print_text(matrix);
    };
  });
}

}  // namespace rlx::cli
