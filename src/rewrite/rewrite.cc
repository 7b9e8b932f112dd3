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

// What a rule made in the place of a node. It is looked at again, node by node, before it stands in the graph.
struct Made {
  int32_t first;  // where its nodes stood; values before that are of the graph
  std::vector<Node> nodes;
  std::vector<int> uses;    // readers of each
  std::vector<Values> now;  // the results of those that have their place, in the graph
  Values values;            // of the node that is replaced

  Value at(Value v) const {
    return v.node < first ? v
                          : now[static_cast<size_t>(v.node - first)][static_cast<size_t>(v.index)];
  }
};

// One walk over the graph. Operands are rewritten before their users, and what a rule made before what comes behind it,
// so chains settle in one walk: towards the results, and towards the operands.
class Sweep {
 public:
  // `looks`: how many more of the nodes that rules made may be replaced in their turn, before the next walk.
  Sweep(Graph g, RuleIndex& rules, const RewriteOptions& options, int64_t& looks)
      : rules_(rules), options_(options), looks_(looks), r_(std::move(g), options.pass) {
    count_uses(r_.graph());
  }

  // Fills `fired` with the rules that applied, and `misses` with those that nearly did.
  Graph run(std::map<std::string, int, std::less<>>& fired, std::vector<NearMiss>& misses) {
    fired_ = &fired;
    misses_ = &misses;
    for (int32_t i = 0; i < r_.size(); ++i) {
      const auto k = static_cast<size_t>(i);
      const Node* reader = readers_[k] < 0 ? nullptr : &r_.unvisited(readers_[k]);
      if (apply(i, r_.node(i), old_uses_[k], reader)) {
        r_.replace(i, settled());
        continue;
      }
      r_.keep(i);
      uses_.push_back(old_uses_[k]);
    }
    return r_.finish();
  }

 private:
  static constexpr int32_t kNobody = -1;

  void count_uses(const Graph& g) {
    old_uses_.assign(g.nodes.size(), 0);
    readers_.assign(g.nodes.size(), kNobody);
    const auto count = [&](Value v, int32_t reader) {
      const auto k = static_cast<size_t>(v.node);
      readers_[k] = ++old_uses_[k] == 1 ? reader : kNobody;
    };
    for (int32_t i = 0; i < g.size(); ++i)
      for (Value v : g.node(i).in) count(v, i);
    for (Value v : g.outputs) count(v, kNobody);
    for (const Update& u : g.updates) count(u.value, kNobody);
  }

  Walk walk() { return {options_.fast_math, uses_, r_.updates(), notes_}; }

  // Whether a rule applied; what it made is then the last of made_.
  bool apply(int32_t i, const Node& n, int uses, const Node* reader) {
    const size_t misses_before = misses_->size();
    for (const Rule* rule : rules_.of(*n.op)) {
      Match m(r_.graph(), n, walk(), reader);
      if (!m.run(rule->pattern)) continue;
      if (rule->condition && !rule->condition(m)) {
        if (!m.refusal().empty()) misses_->push_back(miss(*rule, i, n, m.refusal()));
        continue;
      }
      Builder& b = r_.builder();
      r_.stamp(n);
      Match in_new(b.graph(), n, walk(), reader);  // which the first change makes
      in_new.run(rule->pattern);
      const size_t before = b.graph().nodes.size();
      Values values = rule->replace(b, in_new);
      if (!keeps_types(n, *rule, values)) {
        b.mutable_graph().nodes.resize(before);
        continue;
      }
      for (size_t k = 0; k < values.size(); ++k)
        values[k] = broadcast_to(b, values[k], n.out[k].shape);
      take(before, std::move(values), n, uses);
      misses_->resize(misses_before);
      ++(*fired_)[std::string(rule->name)];
      return true;
    }
    return false;
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

  // Takes the nodes from `before` on out of the graph, which were made in the place of n.
  void take(size_t before, Values values, const Node& n, int uses) {
    std::vector<Node>& all = r_.builder().mutable_graph().nodes;
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(before);
    Made made{static_cast<int32_t>(before),
              {std::make_move_iterator(from), std::make_move_iterator(all.end())},
              {},
              {},
              std::move(values)};
    all.resize(before);
    made.uses.assign(made.nodes.size(), 0);
    for (const Node& in : made.nodes) read(in.in, made, 1);
    for (size_t k = 0; k < made.values.size(); ++k)
      if (k == 0 || made.values[k].node != made.values[k - 1].node)
        read({&made.values[k], 1}, made, uses);
    release(n);
    made_.push_back(std::move(made));
  }

  void read(Operands values, Made& made, int times) {
    for (Value v : values)
      (v.node < made.first ? uses_[static_cast<size_t>(v.node)]
                           : made.uses[static_cast<size_t>(v.node - made.first)]) += times;
  }

  // n reads its operands no longer, nor do those of them that nobody reads then.
  void release(const Node& n) {
    Values open = n.in;
    while (!open.empty()) {
      const auto k = static_cast<size_t>(open.back().node);
      open.pop_back();
      if (--uses_[k] != 0) continue;
      const Values& in = r_.graph().nodes[k].in;
      open.insert(open.end(), in.begin(), in.end());
    }
  }

  // Puts what rules made into the graph, and what they make of that; the values in the place of the node of the walk.
  Values settled() {
    for (;;) {
      Made& made = made_.back();
      const size_t k = made.now.size();
      if (k == made.nodes.size()) {
        Values values = made.values;
        for (Value& v : values) v = made.at(v);
        made_.pop_back();
        if (made_.empty()) return values;
        made_.back().now.push_back(std::move(values));
        continue;
      }
      Node& n = made.nodes[k];
      for (Value& v : n.in) v = made.at(v);
      Graph& g = r_.builder().mutable_graph();
      if (made.uses[k] > 0 && looks_ > 0 && apply(g.size(), n, made.uses[k], nullptr)) {
        --looks_;
        continue;
      }
      made.now.emplace_back();
      for (int32_t j = 0; j < static_cast<int32_t>(n.out.size()); ++j)
        made.now.back().push_back({g.size(), j});
      uses_.push_back(made.uses[k]);
      g.nodes.push_back(std::move(n));
    }
  }

  RuleIndex& rules_;
  const RewriteOptions& options_;
  int64_t& looks_;
  std::vector<int> old_uses_,
      uses_;  // readers of each node of the old graph, and of the new one as expected
  std::vector<int32_t> readers_;  // of each node of the old graph the only one
  Rebuild r_;
  std::vector<Made> made_;  // each in the place of a node of the one before
  std::unordered_map<int32_t, Shape> notes_;
  std::map<std::string, int, std::less<>>* fired_ = nullptr;
  std::vector<NearMiss>* misses_ = nullptr;
};

}  // namespace

Graph rewrite(Graph g, const RuleSet& rules, const RewriteOptions& options, RewriteStats* stats) {
  // So many replacements of what was made by a rule are a few for each node, and too many to be meant.
  constexpr int64_t kLooksByNode = 64;
  int64_t looks = kLooksByNode * (g.size() + 1);
  RuleIndex index(rules);
  for (int sweep = 0;; ++sweep) {
    std::map<std::string, int, std::less<>> fired;
    std::vector<NearMiss> misses;
    g = Sweep(std::move(g), index, options, looks).run(fired, misses);
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
