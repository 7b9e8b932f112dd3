#include "rlx/explain/graph_json.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <unordered_map>

#include "rlx/base/hash.h"
#include "rlx/ops/core.h"

namespace rlx::explaining {

namespace {

constexpr int64_t kShownElements = 8;  // of a constant
constexpr size_t kShownLetters = 400;  // of an attribute

std::string field_text(const FieldInfo& f, const Attrs& attrs) {
  if (const auto* t = f.get<Tensor>(attrs.data()); t && t->elements() > kShownElements)
    return fmt::format("{} elements", t->elements());
  Printer p;
  f.print(p, attrs.data());
  if (p.out.size() > kShownLetters) {
    p.out.resize(kShownLetters);
    p.out += " ...";
  }
  return std::move(p.out);
}

// Those that differ from what the op has by default; of leaves the name stands beside.
Json attributes_json(const Node& n) {
  Json out = Json::object();
  if (n.op == &op::input || n.op == &op::param) return out;
  const std::shared_ptr<void> standard = n.attrs.type()->make();
  for (const FieldInfo& f : n.attrs.fields())
    if (!f.is<Body>() && !f.equal(n.attrs.data(), standard.get()))
      out[std::string(f.name)] = field_text(f, n.attrs);
  return out;
}

Json node_json(const Node& n) {
  Json out = {{"op", n.op->name}};
  if (n.op == &op::input || n.op == &op::param) out["name"] = n.get<LeafAttrs>().name;
  if (!n.in.empty()) {
    out["in"] = Json::array();
    for (Value v : n.in) out["in"].push_back(value_json(v));
  }
  out["out"] = types_json(n.out);
  if (Json attributes = attributes_json(n); !attributes.empty())
    out["attrs"] = std::move(attributes);
  if (!n.origin.label.empty()) out["label"] = n.origin.label.str();
  if (!n.origin.pass.empty()) out["pass"] = n.origin.pass.str();
  for (const NamedBody& body : bodies(n.attrs))
    out["bodies"].push_back({{"field", body.field}, {"graph", graph_json(body.graph)}});
  return out;
}

// ---- changes

uint64_t shallow_hash(const Node& n) {
  uint64_t h = mix(hash_text(n.op->name), hash_text(n.origin.label.str()));
  for (const Type& t : n.out) h = mix(h, hash_text(t.to_string()));
  return h;
}

// Finds the nodes of one graph in another.
class Matching {
 public:
  Matching(const Graph& before, const Graph& after)
      : before_(before),
        after_(after),
        partner_(after.nodes.size(), -1),
        taken_(before.nodes.size()) {
    match_equal();
    for (const Node& n : before.nodes) attrs_.push_back(n.attrs.hash());
    for (int32_t i = 0; i < before.size(); ++i)
      if (!taken_[static_cast<size_t>(i)]) open_[shallow_hash(before.node(i))].push_back(i);
    for (int32_t i = 0; i < after.size(); ++i)
      if (partner_[static_cast<size_t>(i)] < 0) match_near(i);
  }
  int32_t partner(int32_t i) const { return partner_[static_cast<size_t>(i)]; }
  bool is_rewritten(int32_t i) const { return rewritten_.contains(i); }
  bool is_taken(int32_t i) const { return taken_[static_cast<size_t>(i)]; }

 private:
  // Equal expressions, down to the leaves.
  void match_equal() {
    std::unordered_map<uint64_t, std::deque<int32_t>> known;
    const auto old = deep_hashes(before_), now = deep_hashes(after_);
    for (size_t i = 0; i < old.size(); ++i) known[old[i]].push_back(static_cast<int32_t>(i));
    for (size_t i = 0; i < now.size(); ++i) {
      const auto found = known.find(now[i]);
      if (found == known.end() || found->second.empty()) continue;
      pair(static_cast<int32_t>(i), found->second.front());
      found->second.pop_front();
    }
  }
  static std::vector<uint64_t> deep_hashes(const Graph& g) {
    std::vector<uint64_t> out;
    for (const Node& n : g.nodes) {
      uint64_t h = mix(shallow_hash(n), n.attrs.hash());
      for (Value v : n.in)
        h = mix(mix(h, out[static_cast<size_t>(v.node)]), static_cast<uint64_t>(v.index));
      out.push_back(h);
    }
    return out;
  }

  // A node that is the same but for what it reads or for its attributes; one that is the same in all goes first.
  void match_near(int32_t i) {
    const Node& n = after_.node(i);
    const auto found = open_.find(shallow_hash(n));
    if (found == open_.end() || found->second.empty()) return;
    auto& candidates = found->second;
    const uint64_t attrs = n.attrs.hash();
    const auto same = std::find_if(candidates.begin(), candidates.end(), [&](int32_t c) {
      return attrs_[static_cast<size_t>(c)] == attrs && reads_the_same(n, before_.node(c));
    });
    const auto chosen = same == candidates.end() ? candidates.begin() : same;
    if (same == candidates.end()) rewritten_.insert(i);
    pair(i, *chosen);
    candidates.erase(chosen);
  }
  bool reads_the_same(const Node& n, const Node& old) const {
    return std::equal(
        n.in.begin(), n.in.end(), old.in.begin(), old.in.end(),
        [&](Value a, Value b) { return partner(a.node) == b.node && a.index == b.index; });
  }
  void pair(int32_t now, int32_t old) {
    partner_[static_cast<size_t>(now)] = old;
    taken_[static_cast<size_t>(old)] = true;
  }

  const Graph &before_, &after_;
  std::vector<int32_t> partner_;
  std::vector<bool> taken_;
  std::vector<uint64_t> attrs_;
  std::unordered_map<uint64_t, std::deque<int32_t>> open_;
  std::set<int32_t> rewritten_;
};

// How many there are of each op and type.
class Tally {
 public:
  void add(const Node& n) {
    ++total_;
    ++counts_[{std::string(n.op->name), n.out.empty() ? "" : n.out[0].to_string()}];
  }
  Json json() const {
    Json list = Json::array();
    for (const auto& [key, count] : counts_) list.push_back({key.first, key.second, count});
    return {{"count", total_}, {"nodes", std::move(list)}};
  }

 private:
  int total_ = 0;
  std::map<std::pair<std::string, std::string>, int> counts_;
};

}  // namespace

Json value_json(Value v) {
  return v.index == 0 ? Json(v.node) : Json(fmt::format("{}:{}", v.node, v.index));
}

Json types_json(const Types& types) {
  Json out = Json::array();
  for (const Type& t : types) out.push_back(t.to_string());
  return out;
}

Json graph_json(const Graph& g) {
  Json out = {{"name", g.name}, {"nodes", Json::array()}, {"outputs", Json::array()}};
  for (const Node& n : g.nodes) out["nodes"].push_back(node_json(n));
  for (Value v : g.outputs) out["outputs"].push_back(value_json(v));
  for (const Update& u : g.updates)
    out["updates"].push_back({{"param", u.param}, {"value", value_json(u.value)}});
  return out;
}

Json changes_json(const Graph& before, const Graph& after) {
  const Matching m(before, after);
  Tally added, removed, rewritten;
  int kept = 0;
  for (int32_t i = 0; i < after.size(); ++i) {
    if (m.partner(i) < 0)
      added.add(after.node(i));
    else if (m.is_rewritten(i))
      rewritten.add(after.node(i));
    else
      ++kept;
  }
  for (int32_t i = 0; i < before.size(); ++i)
    if (!m.is_taken(i)) removed.add(before.node(i));
  return {{"kept", kept},
          {"rewritten", rewritten.json()},
          {"added", added.json()},
          {"removed", removed.json()}};
}

}  // namespace rlx::explaining
