// Elementwise regions by name: marked, expanded again, clipped. The region grower (fuse_regions.h) makes others too.
#include <charconv>
#include <map>
#include <set>

#include "rlx/ops/core.h"
#include "rlx/passes/named_passes.h"
#include "rlx/passes/passes.h"

namespace rlx {

namespace {

// Operands that a kernel over `shape` reads by counting: all of it, one element, or its last axes.
bool reads_by_counting(const Shape& operand, const Shape& shape) {
  if (operand == shape || operand.elements() == Dim(1)) return true;
  return operand.size() <= shape.size() &&
         std::equal(operand.rbegin(), operand.rend(), shape.rbegin());
}

bool is_step(const Graph& g, const Node& n) {
  if (n.op->kind != Kind::elementwise || !n.op->scalar || n.out.size() != 1) return false;
  return std::all_of(n.in.begin(), n.in.end(),
                     [&](Value v) { return reads_by_counting(g.type(v).shape, n.type().shape); });
}

// For each node the region it is in, by the node of the region's result; -1: none.
class RegionMarker {
 public:
  RegionMarker(const Graph& g, const RegionLimits& limits)
      : g_(g), uses_(g), limits_(limits), tail_(g.nodes.size(), -1) {
    for (int32_t i = g.size(); i-- > 0;)
      if (tail_[static_cast<size_t>(i)] < 0 && is_step(g, g.node(i))) grow(i);
  }
  int32_t tail(int32_t i) const { return tail_[static_cast<size_t>(i)]; }

 private:
  // From the result upwards: readers come after what they read, so all readers of a node are known when it is asked.
  void grow(int32_t tail) {
    std::vector<int32_t> members{tail};
    std::set<Value> outside(g_.node(tail).in.begin(), g_.node(tail).in.end());
    std::set<int32_t, std::greater<>> next;
    tail_[static_cast<size_t>(tail)] = tail;
    for (Value v : g_.node(tail).in) next.insert(v.node);
    while (!next.empty()) {
      const int32_t i = *next.begin();
      next.erase(next.begin());
      std::set<Value> reads = outside;
      reads.erase({i, 0});
      reads.insert(g_.node(i).in.begin(), g_.node(i).in.end());
      for (int32_t m : members) reads.erase({m, 0});
      if (!joins(i, tail) || static_cast<int64_t>(members.size()) >= limits_.steps ||
          static_cast<int64_t>(reads.size()) > limits_.inputs)
        continue;
      tail_[static_cast<size_t>(i)] = tail;
      members.push_back(i);
      outside = std::move(reads);
      for (Value v : g_.node(i).in) next.insert(v.node);
    }
    if (members.size() < 2 || static_cast<int64_t>(outside.size()) > limits_.inputs)
      for (int32_t m : members) tail_[static_cast<size_t>(m)] = -1;
  }

  bool joins(int32_t i, int32_t tail) const {
    const Node& n = g_.node(i);
    if (tail_[static_cast<size_t>(i)] >= 0 || !is_step(g_, n) || uses_.is_output(i)) return false;
    if (n.type().shape != g_.node(tail).type().shape) return false;
    const auto users = uses_.users(i);
    return std::all_of(users.begin(), users.end(),
                       [&](int32_t u) { return tail_[static_cast<size_t>(u)] == tail; });
  }

  const Graph& g_;
  Uses uses_;
  RegionLimits limits_;
  std::vector<int32_t> tail_;
};

// The region of these nodes of g, ascending; the last is the result. `at` gives values of the new graph.
Values emit_region(Builder& b, const Graph& g, const std::vector<int32_t>& members,
                   FunctionRef<Value(Value)> at) {
  Builder body("region");
  std::map<Value, Value> inside;
  Values operands;
  for (int32_t m : members) {
    Values in;
    for (Value v : g.node(m).in) {
      auto found = inside.find(v);
      if (found == inside.end()) {
        const Value leaf = body.input(fmt::format("x{}", operands.size()), g.type(v));
        found = inside.emplace(v, leaf).first;
        operands.push_back(at(v));
      }
      in.push_back(found->second);
    }
    inside[{m, 0}] = body.clone(g.node(m), in)[0];
  }
  body.output(inside.at({members.back(), 0}));
  const Shape domain = g.node(members.back()).type().shape;
  return b.emit(op::region.def, RegionAttrs{body.finish(), RegionKind::elementwise, domain, {}},
                operands);
}

int64_t limit_of(const PassOptions& o, std::string_view name) {
  const std::string text = o.argument(name);
  if (text.empty()) return INT64_MAX;
  int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  user_check(status == std::errc() && end == text.data() + text.size() && value > 0, "pass-option",
             "mark_elementwise_regions: {} is a positive number, not {}", name, quote(text));
  return value;
}

constexpr PassArgument kRegionLimits[] = {{"steps", "the most nodes of a region; any"},
                                          {"inputs", "the most operands of a region; any"}};

int64_t steps_of(const Graph& body) {
  return std::count_if(body.nodes.begin(), body.nodes.end(),
                       [](const Node& n) { return n.op->kind != Kind::leaf; });
}

}  // namespace

Graph mark_elementwise_regions(const Graph& g, const RegionLimits& limits) {
  const RegionMarker marked(g, limits);
  std::map<int32_t, std::vector<int32_t>> members;  // by their tail
  for (int32_t i = 0; i < g.size(); ++i)
    if (marked.tail(i) >= 0) members[marked.tail(i)].push_back(i);
  if (members.empty()) return g;
  ResultMap<Values> map(g);
  return drop_dead(rebuild(g, [&](Builder& b, int32_t i, Operands in) {
    const auto region = members.find(i);
    if (region == members.end()) return map[i] = b.clone(g.node(i), in);
    b.set_pass("mark_elementwise_regions");
    return map[i] = emit_region(b, g, region->second, [&](Value v) { return map.at(v); });
  }));
}

Graph unfuse_elementwise_regions(Graph g) {
  return decompose_composites(std::move(g), "unfuse_elementwise_regions",
                              [](const Node& n, const Graph&) { return n.op != &op::region; });
}

Graph clip_elementwise_regions(Graph g, const RegionLimits& limits) {
  return decompose_composites(
      std::move(g), "clip_elementwise_regions", [&](const Node& n, const Graph&) {
        return n.op != &op::region || (static_cast<int64_t>(n.in.size()) <= limits.inputs &&
                                       steps_of(*n.get<RegionAttrs>().body) <= limits.steps);
      });
}

constinit const Pass pass::mark_elementwise_regions{
    .name = "mark_elementwise_regions",
    .doc = "Elementwise nodes that only each other read become regions.",
    .run =
        [](Graph&& g, const PassOptions& o) {
          return rlx::mark_elementwise_regions(g, {limit_of(o, "steps"), limit_of(o, "inputs")});
        },
    .in_bodies = false,
    .arguments = kRegionLimits};

constinit const Pass pass::unfuse_elementwise_regions{
    "unfuse_elementwise_regions", "Regions become the nodes of their bodies.",
    [](Graph&& g, const PassOptions&) { return rlx::unfuse_elementwise_regions(std::move(g)); }};

}  // namespace rlx
