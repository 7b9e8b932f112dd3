#include <set>

#include "rlx/passes/passes.h"

namespace rlx {

namespace {
// A composite may be defined by composites; definitions are no deeper than this.
constexpr int kMaxDepth = 32;
}  // namespace

Graph decompose_composites(const Graph& g, std::string_view pass,
                           FunctionRef<bool(const Node&, const Graph&)> keeps) {
  Graph now = g;
  for (int depth = 0;; ++depth) {
    Rebuild r(now, std::string(pass));
    std::set<std::string_view> expanded;
    for (int32_t i = 0; i < now.size(); ++i) {
      Node n = r.remapped(i);
      if (!n.op->decompose || keeps(n, r.builder().graph())) {
        r.push(i, std::move(n));
        continue;
      }
      expanded.insert(n.op->name);
      r.stamp(n);
      r.replace(i, n.op->decompose(r.builder(), n, n.in));
    }
    if (expanded.empty()) return now;
    check(depth < kMaxDepth, "{}: definitions do not end: {}", pass, fmt::join(expanded, ", "));
    now = r.finish();
  }
}

constinit const Pass pass::decompose{
    "decompose", "Replaces every composite by its definition, repeatedly.",
    [](const Graph& g, const PassOptions&) {
      return decompose_composites(g, "decompose", [](const Node&, const Graph&) { return false; });
    }};

}  // namespace rlx
