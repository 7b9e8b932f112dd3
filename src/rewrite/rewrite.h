// Rule sets and the driver that applies them.
//
//   const RuleSet algebra{
//       {"mul-one", pat(op::mul, {x, one}), [](Builder&, const Match& m) { return m[x]; }},
//       {"sub-self", pat(op::sub, {x, x}), exact_or_fast,
//        [](Builder& b, const Match& m) { return full(b, m.type(), 0); }},
//   };
//   RewriteStats stats;
//   Graph h = rewrite(g, algebra, {.pass = "simplify"}, &stats);
//
// One identity, one rule, one kebab-case name. A rule makes the graph smaller or more canonical by
// a stated order; two rules never turn each other's output back. The condition stands next to the
// pattern.
//
// The driver rebuilds the graph node by node until no rule fires. What a rule made is looked at again at once, so that
// rules which move a node towards its operands need one sweep, as those towards its readers do; each sweep takes time in
// proportion to the graph. A replacement has the type of what it replaces; one of a smaller shape is broadcast to it. New
// nodes carry the label of the replaced node and the name of the pass; `input` leaves stay in the signature; types of
// outputs never change. Not settling within max_sweeps, or a replacement of another type, is Error(internal) that names
// the rules.
#pragma once

#include <functional>

#include "rlx/rewrite/pattern.h"

namespace rlx {

struct Rule {
  using Condition = bool (*)(const Match&);
  using Replacement = std::function<Values(Builder&, const Match&)>;

  std::string_view name;
  Pattern pattern;
  Condition condition = nullptr;
  Replacement replace;

  // The replacement returns a Value, or Values for a node with several results.
  template <class F>
  Rule(std::string_view rule, Pattern p, F f) : Rule(rule, std::move(p), nullptr, std::move(f)) {}
  template <class F>
  Rule(std::string_view rule, Pattern p, Condition when, F f)
      : name(rule),
        pattern(std::move(p)),
        condition(when),
        replace([f](Builder& b, const Match& m) -> Values { return {f(b, m)}; }) {}
};

using RuleSet = std::vector<Rule>;
RuleSet operator+(RuleSet a, const RuleSet& b);

struct RewriteOptions {
  std::string pass = "rewrite";  // stamped on new nodes
  bool fast_math = false;        // rules that may change a value apply too
  int max_sweeps = 64;
};

// A rule that found what it looks for but for one condition, where no other rule applied instead (Match::refuse).
struct NearMiss {
  std::string rule, node, why;
};

struct RewriteStats {
  int sweeps = 0;
  std::map<std::string, int, std::less<>> hits;  // by rule
  std::vector<NearMiss> misses;                  // in the graph as it came out
};

Graph rewrite(Graph g, const RuleSet& rules, const RewriteOptions& options = {},
              RewriteStats* stats = nullptr);

// Moves nodes of an old graph into a new one under a map of values. What a pass that walks by
// itself starts from.
//
//   Rebuild r(std::move(g));
//   for (int32_t i = 0; i < r.size(); ++i) {
//     const Node& n = r.node(i);
//     if (...) r.replace(i, values); else r.keep(i);
//   }
//   return r.finish();
//
// A node that stays keeps attributes, types and origin without inferring anew, because replacements
// keep types. It is moved and not copied, for a copy is four allocations; and up to the first change
// nothing is moved at all, for most walks over a large program change nothing.
class Rebuild {
 public:
  explicit Rebuild(Graph g, SharedText pass = {}) : g_(std::move(g)), pass_(std::move(pass)) {}
  int32_t size() const { return g_.size(); }  // of the old graph
  // Node i of the old graph over operands of the new one; once for each, in order, and then one of the two:
  const Node& node(int32_t i);
  // A node that was not asked for yet, over operands of the old graph.
  const Node& unvisited(int32_t i) const { return g_.node(i); }
  void keep(int32_t i);
  // Checks the types; Error(internal) when they differ.
  void replace(int32_t i, const Values& values);

  Value at(Value old) const { return changed_ ? map_[slot(old)] : old; }
  // The new graph, for looking at values that at() gives; another object after the first change.
  const Graph& graph() const { return changed_ ? b_.graph() : g_; }
  bool changed() const { return changed_; }
  std::span<const Update> updates() const { return g_.updates; }  // of the old graph
  // For what replaces the node that was asked for last: a change.
  Builder& builder() {
    if (!changed_) begin_to_change();
    return b_;
  }
  // Nodes that the builder makes from now on carry the label of n and the name of the pass.
  void stamp(const Node& n) { b_.set_origin({n.origin.label, pass_}); }
  Graph finish();  // without what became dead

 private:
  size_t slot(Value old) const {
    return first_[static_cast<size_t>(old.node)] + static_cast<size_t>(old.index);
  }
  void begin_to_change();
  void move(int32_t i);

  Graph g_;
  Builder b_;
  SharedText pass_;
  int32_t now_ = 0;  // the node that was asked for last
  bool changed_ = false;
  std::vector<size_t>
      first_;  // from the first change on: where in map_ the results of an old node begin
  Values map_;
};

}  // namespace rlx
