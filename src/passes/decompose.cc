#include <set>

#include "rlx/passes/passes.h"

namespace rlx {

namespace {
// A composite may be defined by composites; definitions are no deeper than this.
constexpr int kMaxDepth = 32;
}  // namespace

Graph decompose_composites(const Graph& g, std::string_view pass,
                           FunctionRef<bool(const Node&, const Graph&)> keeps) {
  Graph made;
  const Graph* now = &g;
  for (int depth = 0;; ++depth) {
    std::vector<bool> expands;
    std::set<std::string_view> expanded;
    for (const Node& n : now->nodes) {
      expands.push_back(n.op->decompose && !keeps(n, *now));
      if (expands.back()) expanded.insert(n.op->name);
    }
    if (expanded.empty()) return *now;
    check(depth < kMaxDepth, "{}: definitions do not end: {}", pass, fmt::join(expanded, ", "));
    Rebuild r(*now, std::string(pass));
    for (int32_t i = 0; i < now->size(); ++i) {
      Node n = r.remapped(i);
      if (!expands[static_cast<size_t>(i)]) {
        r.push(i, std::move(n));
        continue;
      }
      r.stamp(n);
      r.replace(i, r.builder().expand(n, n.in));
    }
    made = r.finish();
    now = &made;
  }
}

constinit const Pass pass::decompose{
    "decompose", "Replaces every composite by its definition, repeatedly.",
    [](const Graph& g, const PassOptions&) {
      return decompose_composites(g, "decompose", [](const Node&, const Graph&) { return false; });
    }};

}  // namespace rlx
