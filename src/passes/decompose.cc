#include <set>

#include "rlx/passes/passes.h"

namespace rlx {

namespace {
// A composite may be defined by composites; definitions are no deeper than this.
constexpr int kMaxDepth = 32;
}  // namespace

Graph decompose_composites(Graph g, std::string_view pass,
                           FunctionRef<bool(const Node&, const Graph&)> keeps) {
  for (int depth = 0;; ++depth) {
    std::vector<bool> expands;
    std::set<std::string_view> expanded;
    for (const Node& n : g.nodes) {
      expands.push_back(n.op->decompose && !keeps(n, g));
      if (expands.back()) expanded.insert(n.op->name);
    }
    if (expanded.empty()) return g;
    check(depth < kMaxDepth, "{}: definitions do not end: {}", pass, fmt::join(expanded, ", "));
    Rebuild r(std::move(g), std::string(pass));
    for (int32_t i = 0; i < r.size(); ++i) {
      const Node& n = r.node(i);
      if (!expands[static_cast<size_t>(i)]) {
        r.keep(i);
        continue;
      }
      r.stamp(n);
      r.replace(i, r.builder().expand(n, n.in));
    }
    g = r.finish();
  }
}

constinit const Pass pass::decompose{
    "decompose", "Replaces every composite by its definition, repeatedly.",
    [](Graph&& g, const PassOptions&) {
      return decompose_composites(std::move(g), "decompose",
                                  [](const Node&, const Graph&) { return false; });
    }};

}  // namespace rlx
