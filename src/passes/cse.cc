#include <algorithm>
#include <unordered_map>

#include "rlx/passes/passes.h"

namespace rlx {

namespace {

// The operands as they are looked up: those of commutative ops in one order. Ops with two or more
// interchangeable operands that follow each other: all of them.
const Values& ordered(const Node& n, Values& storage) {
  if (!n.op->commutative) return n.in;
  storage = n.in;
  std::sort(storage.begin(), storage.end());
  return storage;
}

// What makes two nodes the same expression.
uint64_t key_of(const Node& n) {
  Values storage;
  uint64_t h = mix(reinterpret_cast<uintptr_t>(n.op), n.attrs.hash());
  for (Value v : ordered(n, storage))
    h = mix(h, static_cast<uint64_t>(v.node) << 8 | static_cast<uint64_t>(v.index));
  return h;
}

bool same(const Node& a, const Node& b) {
  if (a.op != b.op || a.out != b.out || !(a.attrs == b.attrs)) return false;
  Values mine, other;
  return ordered(a, mine) == ordered(b, other);
}

// Every op is pure: random numbers are functions of a key. Only leaves with a name are themselves.
bool mergeable(const Node& n) { return n.op != &op::input && n.op != &op::param && !n.out.empty(); }

Graph run_cse(const Graph& g, const PassOptions&) {
  Rebuild r(g);
  std::unordered_multimap<uint64_t, int32_t> seen;  // nodes of g that were kept
  seen.reserve(g.nodes.size());
  for (int32_t i = 0; i < g.size(); ++i) {
    Node n = r.remapped(i);
    if (!mergeable(n)) {
      r.push(i, std::move(n));
      continue;
    }
    const uint64_t key = key_of(n);
    auto [at, end] = seen.equal_range(key);
    at = std::find_if(at, end, [&](const auto& entry) {
      return same(r.builder().node(r.at({entry.second, 0})), n);
    });
    if (at != end) {
      Values values;
      for (size_t k = 0; k < n.out.size(); ++k)
        values.push_back(r.at({at->second, static_cast<int32_t>(k)}));
      r.replace(i, std::move(values));
      continue;
    }
    r.push(i, std::move(n));
    seen.emplace(key, i);
  }
  return r.finish();
}

}  // namespace

constinit const Pass pass::cse{
    "cse", "Computes equal expressions once; equal constants become one.", run_cse};

}  // namespace rlx
