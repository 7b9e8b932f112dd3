#include <algorithm>
#include <unordered_map>

#include "rlx/passes/passes.h"

namespace rlx {

namespace {

// What makes two nodes the same expression; operands of commutative ops in one order.
uint64_t key_of(const Node& n) {
  uint64_t h = mix(reinterpret_cast<uintptr_t>(n.op), n.attrs.hash());
  for (Value v : n.in)
    h = mix(h, static_cast<uint64_t>(v.node) << 8 | static_cast<uint64_t>(v.index));
  return h;
}

bool same(const Node& a, const Node& b) {
  return a.op == b.op && a.in == b.in && a.out == b.out && a.attrs == b.attrs;
}

// The node as it is looked up. Ops with two or more interchangeable operands that follow each
// other: all of them.
Node canonical(Node n) {
  if (n.op->commutative) std::sort(n.in.begin(), n.in.end());
  return n;
}

// Every op is pure: random numbers are functions of a key. Only leaves with a name are themselves.
bool mergeable(const Node& n) { return n.op != &op::input && n.op != &op::param; }

Graph run_cse(const Graph& g, const PassOptions&) {
  Rebuild r(g);
  std::vector<Node> kept;  // canonical forms
  std::vector<Values> results;
  std::unordered_multimap<uint64_t, size_t> seen;
  for (int32_t i = 0; i < g.size(); ++i) {
    Node n = r.remapped(i);
    if (!mergeable(n)) {
      r.push(i, std::move(n));
      continue;
    }
    Node form = canonical(n);
    const uint64_t key = key_of(form);
    auto [at, end] = seen.equal_range(key);
    at = std::find_if(at, end, [&](const auto& entry) { return same(kept[entry.second], form); });
    if (at != end) {
      r.replace(i, results[at->second]);
      continue;
    }
    r.push(i, std::move(n));
    seen.emplace(key, kept.size());
    kept.push_back(std::move(form));
    Values values;
    for (size_t k = 0; k < kept.back().out.size(); ++k)
      values.push_back(r.at({i, static_cast<int32_t>(k)}));
    results.push_back(std::move(values));
  }
  return r.finish();
}

}  // namespace

constinit const Pass pass::cse{
    "cse", "Computes equal expressions once; equal constants become one.", run_cse};

}  // namespace rlx
