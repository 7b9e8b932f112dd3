#include "rlx/transform/walk.h"

#include <algorithm>

#include "rlx/ops/rules.h"

namespace rlx {

Builder builder_of(const Graph& g, std::string_view ending) {
  Builder b;
  b.mutable_graph() = g;
  b.mutable_graph().name += ending;
  b.mutable_graph().outputs.clear();
  return b;
}

Values find_leaves(const Graph& g, const std::vector<std::string>& names,
                   std::string_view transform) {
  Values out;
  std::unordered_map<std::string_view, Value> leaves;
  for (const Values& list : {g.params(), g.inputs()})
    for (Value v : list) leaves[g.node(v).get<LeafAttrs>().name] = v;
  for (const std::string& name : names) {
    const auto found = leaves.find(name);
    out.push_back(found == leaves.end() ? kNone : found->second);
    user_check(out.back().valid(), "no-leaf", "{}: graph \"{}\" has no input or parameter \"{}\"",
               transform, g.name, name);
  }
  return out;
}

std::string free_name(const Builder& b, const std::string& name) {
  std::string out = name;
  for (int i = 1; b.find_leaf(out).valid(); ++i) out = fmt::format("{}_{}", name, i);
  return out;
}

void check_differentiable(const Graph& g, Operands wrt, std::string_view transform) {
  for (Value v : wrt)
    user_check(is_differentiable(g.type(v).dtype), "wrt-dtype",
               "{}: {} is {}; only floats and complex have derivatives", transform, describe(g, v),
               g.type(v));
}

std::string describe(const Graph& g, Value v) {
  const Node& n = g.node(v);
  if (n.op == &op::input || n.op == &op::param)
    return fmt::format("{} \"{}\"", n.op->name, n.get<LeafAttrs>().name);
  return fmt::format("{} {}", v, n.op->name);
}

std::string path_back(const Graph& g, Operands outputs, int32_t i) {
  std::vector<int32_t> reader(g.nodes.size(), -1),
      queue;  // which node was come from; itself: an output
  const auto meet = [&](Value v, int32_t from) {
    if (!v.valid() || reader[static_cast<size_t>(v.node)] >= 0) return;
    reader[static_cast<size_t>(v.node)] = from < 0 ? v.node : from;
    queue.push_back(v.node);
  };
  for (Value v : outputs) meet(v, -1);
  for (size_t at = 0; at < queue.size() && reader[static_cast<size_t>(i)] < 0; ++at)
    for (Value v : g.node(queue[at]).in) meet(v, queue[at]);
  if (reader[static_cast<size_t>(i)] < 0) return "";
  std::vector<std::string> names;
  for (int32_t at = i, last = -1; at != last; at = reader[static_cast<size_t>(at)]) {
    names.push_back(describe(g, {at, 0}));
    last = at;
  }
  std::reverse(names.begin(), names.end());
  constexpr size_t kFirst = 3, kLast = 5;
  if (names.size() > kFirst + kLast + 1) {
    const auto from = names.begin() + static_cast<int64_t>(kFirst);
    const auto to = names.end() - static_cast<int64_t>(kLast);
    *from = fmt::format("({} more)", to - from);
    names.erase(from + 1, to);
  }
  return fmt::format("{}", fmt::join(names, " <- "));
}

void no_rule(std::string_view transform, const Node& n, std::string_view path) {
  fail(ErrorKind::unsupported, "no-rule",
       "{}: {} states no rule and no decomposition (result: {}){}{}", transform, n.op->name,
       fmt::join(n.out, ", "), path.empty() ? "" : "; the way from the loss: ", path);
}

bool blocks(const Node& n) { return !n.op->not_differentiable.empty(); }

ValueSet active_values(const Graph& g, Operands wrt, int32_t begin, int32_t end) {
  ValueSet active(wrt.begin(), wrt.end());
  active.erase(kNone);
  for (int32_t i = begin; i < end; ++i) {
    const Node& n = g.node(i);
    const auto moves = [&](Value v) {
      return active.contains(v) && carries(*n.op, g.type(v).dtype);
    };
    if (blocks(n) || std::none_of(n.in.begin(), n.in.end(), moves)) continue;
    for (size_t k = 0; k < n.out.size(); ++k)
      if (carries(*n.op, n.out[k].dtype)) active.insert({i, static_cast<int32_t>(k)});
  }
  return active;
}

std::vector<bool> needed_nodes(const Graph& g, Operands outputs, int32_t begin, int32_t end) {
  std::vector<bool> needed(static_cast<size_t>(std::max(0, end - begin)), false);
  auto mark = [&](Value v) {
    if (v.node >= begin && v.node < end) needed[static_cast<size_t>(v.node - begin)] = true;
  };
  for (Value v : outputs) mark(v);
  for (int32_t i = end; i-- > begin;)
    if (needed[static_cast<size_t>(i - begin)])
      for (Value v : g.node(i).in) mark(v);
  return needed;
}

Value zeros(Builder& b, const Type& type) { return full(b, type, 0); }

Range range_between(const Graph& g, Operands from, Operands to) {
  Range r{g.size(), 0};
  for (Value v : from)
    if (v.valid()) r.begin = std::min(r.begin, v.node);
  for (Value v : to)
    if (v.valid()) r.end = std::max(r.end, v.node + 1);
  r.begin = std::min(r.begin, r.end);
  return r;
}

}  // namespace rlx
