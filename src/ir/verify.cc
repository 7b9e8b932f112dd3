#include "rlx/ir/verify.h"

#include <unordered_map>
#include <unordered_set>

#include "rlx/ir/builder.h"

namespace rlx {

namespace {

constexpr VerifyRule kRules[] = {
    {"operand-order", "operands are results of earlier nodes"},
    {"arity", "the number of operands is one the op takes"},
    {"dtype", "operand 0 has a dtype the op takes"},
    {"attributes", "the attributes belong to the op and are in range"},
    {"result-type", "declared result types equal the inferred ones"},
    {"output-value", "outputs are results of nodes"},
    {"leaf-name", "inputs and parameters have unique, non-empty names"},
    {"update-target", "an update writes an existing parameter of the same type, once"},
    {"body",
     "nested graphs are valid, closed (no parameters, no updates) and nested at most 64 deep; "
     "passes "
     "may nest deeper"},
};

class Verifier {
 public:
  Verifier(const Graph& g, int depth_left) : g_(g), depth_left_(depth_left) {}

  std::vector<Violation> run() {
    for (int32_t i = 0; i < g_.size(); ++i) check_node(i);
    for (Value v : g_.outputs)
      if (!in_range(v, g_.size()))
        add("output-value", "outputs", fmt::format("{} does not exist", v));
    check_updates();
    return std::move(found_);
  }

 private:
  void add(std::string_view rule, std::string where, std::string message) {
    found_.push_back({std::string(rule), std::move(where), std::move(message)});
  }

  bool in_range(Value v, int32_t limit) const {
    return v.node >= 0 && v.node < limit && v.index >= 0 &&
           v.index < static_cast<int32_t>(g_.node(v).out.size());
  }

  void check_node(int32_t i) {
    const Node& n = g_.node(i);
    const std::string where = fmt::format("%{} {}", i, n.op->name);
    bool ok = true;
    for (Value v : n.in)
      if (!in_range(v, i)) {
        add("operand-order", where,
            fmt::format("operand {} is not a result of an earlier node", v));
        ok = false;
      }
    if (!ok) return;
    if (n.attrs.type() != n.op->attr_type)
      return add("attributes", where, "attributes of another op");
    check_bodies(n, where);
    check_leaf(i, n, where);
    check_types(n, where);
  }

  // Inference is the one judge of arity, dtypes and attribute ranges; here its errors become
  // violations.
  void check_types(const Node& n, const std::string& where) {
    const int count = static_cast<int>(n.in.size());
    if (std::string wrong = wrong_arity(*n.op, count); !wrong.empty())
      return add("arity", where, std::move(wrong));
    Types in;
    for (Value v : n.in) in.push_back(g_.type(v));
    if (count && !n.op->dtypes.has(in[0].dtype))
      return add("dtype", where,
                 fmt::format("{} is not among {}", in[0].dtype, n.op->dtypes.to_string()));
    try {
      Types inferred = infer_types(*n.op, n.attrs, in);
      for (size_t i = 0; i < std::max(inferred.size(), n.out.size()); ++i)
        if (inferred.size() != n.out.size() || !(inferred[i] == n.out[i]))
          return add("result-type", where,
                     fmt::format("result {} is declared as {}, inferred is {}", i,
                                 i < n.out.size() ? n.out[i].to_string() : "missing",
                                 i < inferred.size() ? inferred[i].to_string() : "missing"));
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::resource) throw;
      add("attributes", where, e.message());
    }
  }

  void check_bodies(const Node& n, const std::string& where) {
    for (const auto& [field, body] : bodies(n.attrs)) {
      if (depth_left_ == 0) return add("body", where, "nested too deeply");
      if (!body.updates.empty()) add("body", where, "a body cannot have updates");
      for (const Node& inner : body.nodes)
        if (inner.op == &op::param)
          add("body", where, "a body cannot have parameters; pass them as operands");
      for (Violation& v : Verifier(body, depth_left_ - 1).run())
        add(v.rule, fmt::format("{} {}: {}", where, field, v.where), v.message);
    }
  }

  void check_leaf(int32_t i, const Node& n, const std::string& where) {
    if (n.op != &op::input && n.op != &op::param) return;
    const std::string& name = n.get<LeafAttrs>().name;
    if (name.empty()) add("leaf-name", where, "a leaf needs a name");
    if (!leaves_.try_emplace(name, Value{i, 0}).second)
      add("leaf-name", where, fmt::format("the name \"{}\" is used twice", name));
  }

  void check_updates() {
    std::unordered_set<std::string_view> written;
    for (const Update& u : g_.updates) {
      const auto found = leaves_.find(u.param);
      const Value leaf = found == leaves_.end() ? kNone : found->second;
      const std::string where = fmt::format("update \"{}\"", u.param);
      if (!leaf.valid() || g_.node(leaf).op != &op::param)
        add("update-target", where, "there is no such parameter");
      else if (!in_range(u.value, g_.size()))
        add("output-value", where, fmt::format("{} does not exist", u.value));
      else if (!(g_.type(u.value) == g_.type(leaf)))
        add("update-target", where,
            fmt::format("{} written with {}", g_.type(leaf), g_.type(u.value)));
      else if (!written.insert(u.param).second)
        add("update-target", where, "written twice");
    }
  }

  const Graph& g_;
  int depth_left_;  // levels of bodies that may follow
  std::vector<Violation> found_;
  std::unordered_map<std::string_view, Value> leaves_;  // inputs and parameters by name
};

}  // namespace

std::span<const VerifyRule> verify_rules() { return kRules; }

std::string wrong_arity(const OpDef& op, int count) {
  const bool open = op.arity == kVariadic, optional = !open && op.min_arity;
  const int least = open || optional ? op.min_arity : op.arity;
  if (count >= least && (open || count <= op.arity)) return "";
  return fmt::format("takes {}{}{} operands, got {}", open ? "at least " : "", least,
                     optional ? fmt::format(" to {}", op.arity) : "", count);
}

std::vector<Violation> violations(const Graph& g, int added) {
  return Verifier(g, Lexer::kMaxDepth + added).run();
}

void verify(const Graph& g, std::string_view stage) {
  within_memory([&] {
    const auto found = violations(g, stage.empty() ? 0 : kPassDepth);
    if (found.empty()) return;
    const Violation& v = found[0];
    if (stage.empty()) throw Error(ErrorKind::user, v.rule, v.message).at(v.where);
    throw Error(ErrorKind::internal, v.rule, fmt::format("after {}: {}", stage, v.message))
        .at(v.where);
  });
}

void verify_read(const Graph& g) {
  try {
    verify(g);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::resource) throw;
    throw Error(ErrorKind::data, e.code(), e.message()).at(e.where());
  }
}

}  // namespace rlx
