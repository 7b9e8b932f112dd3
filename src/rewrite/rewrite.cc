#include "rlx/rewrite/rewrite.h"

#include "rlx/ops/rules.h"

namespace rlx {

RuleSet operator+(RuleSet a, const RuleSet& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

namespace {

// A walk asks for what the next nodes point to before it gets there: a large program does not stay in the caches,
// and what its nodes point to lies in no order that the machine could guess.
void fetch_ahead(const std::vector<Node>& nodes, size_t i) {
  constexpr size_t kFar = 8, kNear = 4;
  if (i + kFar >= nodes.size()) return;
  __builtin_prefetch(nodes[i + kFar].attrs.data());
  __builtin_prefetch(nodes[i + kFar].out.data());
  const Types& out = nodes[i + kNear].out;
  if (!out.empty()) __builtin_prefetch(out[0].shape.data());
}

}  // namespace

const Node& Rebuild::node(int32_t i) {
  Node& n = g_.node(i);
  now_ = i;
  fetch_ahead(g_.nodes, static_cast<size_t>(i));
  if (changed_)
    for (Value& v : n.in) v = at(v);
  return n;
}

void Rebuild::keep(int32_t i) {
  if (changed_) move(i);
}

void Rebuild::move(int32_t i) {
  Graph& out = b_.mutable_graph();
  Node& n = g_.node(i);
  for (int32_t k = 0; k < static_cast<int32_t>(n.out.size()); ++k)
    map_[slot({i, k})] = {out.size(), k};
  out.nodes.push_back(std::move(n));
}

void Rebuild::begin_to_change() {
  changed_ = true;
  b_.mutable_graph().name = g_.name;
  b_.mutable_graph().nodes.reserve(g_.nodes.size());
  first_.reserve(g_.nodes.size());
  size_t results = 0;
  for (const Node& n : g_.nodes) {
    first_.push_back(results);
    results += n.out.size();
  }
  map_.resize(results);
  for (int32_t i = 0; i < now_; ++i) move(i);
}

void Rebuild::replace(int32_t i, const Values& values) {
  builder();
  const Node& n = g_.node(i);
  check(values.size() == n.out.size(), "{}: {} results replaced by {}", n.op->name, n.out.size(),
        values.size());
  for (size_t k = 0; k < values.size(); ++k)
    map_[slot({i, 0}) + k] = settle(b_, values[k], n.out[k], *n.op, "what replaces result", k);
}

Graph Rebuild::finish() {
  if (!changed_) return drop_dead(std::move(g_));
  Graph out = std::move(b_.mutable_graph());
  for (Value v : g_.outputs) out.outputs.push_back(at(v));
  for (Update& u : g_.updates) out.updates.push_back({std::move(u.param), at(u.value)});
  return drop_dead(std::move(out));
}

namespace {

// Rules by the op of their root, in the order of the set.
class RuleIndex {
 public:
  explicit RuleIndex(const RuleSet& rules) : rules_(rules) {}

  std::span<const Rule* const> of(const OpDef& op) {
    auto [it, fresh] = by_op_.try_emplace(&op);
    if (fresh)
      for (const Rule& r : rules_)
        if (matches_op(r.pattern, op)) it->second.push_back(&r);
    return it->second;
  }

 private:
  const RuleSet& rules_;
  std::unordered_map<const OpDef*, std::vector<const Rule*>> by_op_;
};

// One walk over the graph. Operands are rewritten before their users, so chains settle in one walk.
class Sweep {
 public:
  Sweep(Graph g, RuleIndex& rules, const RewriteOptions& options)
      : rules_(rules),
        options_(options),
        old_uses_(count_uses(g)),
        r_(std::move(g), options.pass) {}

  // Fills `fired` with the rules that applied, and `misses` with those that nearly did.
  Graph run(std::map<std::string, int, std::less<>>& fired, std::vector<NearMiss>& misses) {
    misses_ = &misses;
    for (int32_t i = 0; i < r_.size(); ++i) {
      if (const Rule* rule = apply(i, r_.node(i))) {
        ++fired[std::string(rule->name)];
        continue;
      }
      r_.keep(i);
      uses_.push_back(old_uses_[static_cast<size_t>(i)]);
    }
    return r_.finish();
  }

 private:
  static std::vector<int> count_uses(const Graph& g) {
    std::vector<int> uses(g.nodes.size(), 0);
    for (const Node& n : g.nodes)
      for (Value v : n.in) ++uses[static_cast<size_t>(v.node)];
    for (Value v : g.outputs) ++uses[static_cast<size_t>(v.node)];
    for (const Update& u : g.updates) ++uses[static_cast<size_t>(u.value.node)];
    return uses;
  }

  const Rule* apply(int32_t i, const Node& n) {
    const size_t misses_before = misses_->size();
    for (const Rule* rule : rules_.of(*n.op)) {
      Match m(r_.graph(), n, options_.fast_math, uses_, r_.updates());
      if (!m.run(rule->pattern)) continue;
      if (rule->condition && !rule->condition(m)) {
        if (!m.refusal().empty()) misses_->push_back(miss(*rule, i, n, m.refusal()));
        continue;
      }
      Builder& b = r_.builder();
      r_.stamp(n);
      Match in_new(b.graph(), n, options_.fast_math, uses_,
                   r_.updates());  // which the first change makes
      in_new.run(rule->pattern);
      const size_t before = b.graph().nodes.size();
      Values values = rule->replace(b, in_new);
      if (!keeps_types(n, *rule, values)) {
        b.mutable_graph().nodes.resize(before);
        continue;
      }
      replace(i, n, std::move(values));
      misses_->resize(misses_before);
      return rule;
    }
    return nullptr;
  }

  static NearMiss miss(const Rule& rule, int32_t i, const Node& n, const std::string& why) {
    std::string node = fmt::format("%{} {}", i, n.op->name);
    if (!n.origin.label.empty()) node += " @ " + n.origin.label.str();
    return {std::string(rule.name), std::move(node), why};
  }

  // Whether the values are of the node's types or broadcast to them. Else they come out as another one of two symbols
  // that stand for one size, or for 1 and more: then the rule does not apply.
  bool keeps_types(const Node& n, const Rule& rule, const Values& values) {
    const Builder& b = r_.builder();
    check(values.size() == n.out.size(), "rule {}: {} results for {}", rule.name, values.size(),
          n.out.size());
    for (size_t k = 0; k < values.size(); ++k) {
      const Type &have = b.type(values[k]), &want = n.out[k];
      if (have.dtype == want.dtype && broadcast_shapes(have.shape, want.shape) == want.shape)
        continue;
      check(have.dtype == want.dtype && may_broadcast(have.shape, want.shape),
            "rule {}: {} {} replaced by {}", rule.name, n.op->name, want, have);
      return false;
    }
    return true;
  }

  void replace(int32_t i, const Node& n, Values values) {
    Builder& b = r_.builder();
    for (size_t k = 0; k < values.size(); ++k)
      values[k] = broadcast_to(b, values[k], n.out[k].shape);
    uses_.resize(b.graph().nodes.size(), 1);
    for (Value v : values)
      uses_[static_cast<size_t>(v.node)] += old_uses_[static_cast<size_t>(i)] - 1;
    r_.replace(i, values);
  }

  RuleIndex& rules_;
  const RewriteOptions& options_;
  std::vector<int> old_uses_,
      uses_;  // readers of each node of the old graph, and of the new one as expected
  Rebuild r_;
  std::vector<NearMiss>* misses_ = nullptr;
};

}  // namespace

Graph rewrite(Graph g, const RuleSet& rules, const RewriteOptions& options, RewriteStats* stats) {
  RuleIndex index(rules);
  for (int sweep = 0;; ++sweep) {
    std::map<std::string, int, std::less<>> fired;
    std::vector<NearMiss> misses;
    g = Sweep(std::move(g), index, options).run(fired, misses);
    if (stats) ++stats->sweeps;
    if (stats)
      for (const auto& [rule, count] : fired) stats->hits[rule] += count;
    if (fired.empty()) {
      if (stats) std::move(misses.begin(), misses.end(), std::back_inserter(stats->misses));
      return g;
    }
    if (sweep + 1 >= options.max_sweeps) {
      std::string names;
      for (const auto& [rule, count] : fired) names += (names.empty() ? "" : ", ") + rule;
      check(false, "{}: does not settle after {} sweeps; still firing: {}", options.pass,
            options.max_sweeps, names);
    }
  }
}

}  // namespace rlx
