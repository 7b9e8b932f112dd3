#include "random_graph.h"

namespace rlx::testing {

namespace {

// Without the leaves that nothing reads.
RandomProgram without_dead(const RandomProgram& p) {
  const Graph live = drop_dead(p.graph);
  const Uses uses(live);
  RandomProgram out;
  Builder b(live.name);
  std::vector<Values> map(live.nodes.size());
  auto at = [&](Value v) { return map[static_cast<size_t>(v.node)][static_cast<size_t>(v.index)]; };
  for (int32_t i = 0; i < live.size(); ++i) {
    const Node& n = live.nodes[static_cast<size_t>(i)];
    if (n.op == &op::input && uses.count(i) == 0) continue;
    Values in;
    for (Value v : n.in) in.push_back(at(v));
    map[static_cast<size_t>(i)] = b.clone(n, in);
    if (n.op == &op::input || n.op == &op::param)
      out.leaves[n.get<LeafAttrs>().name] = p.leaves.at(n.get<LeafAttrs>().name);
  }
  for (Value v : live.outputs) b.output(at(v));
  for (const Update& u : live.updates) b.update(u.param, at(u.value));
  out.graph = b.finish();
  return out;
}

// The program with node `cut` replaced by inputs that have its values.
RandomProgram cut_at(const RandomProgram& p, int32_t cut) {
  Tensors leaves, values;
  for (const Node& n : p.graph.nodes)
    if (n.op == &op::input || n.op == &op::param)
      leaves.push_back(p.leaves.at(n.get<LeafAttrs>().name));
  evaluate(p.graph, leaves, [&](int32_t node, const Tensors& results) {
    if (node == cut) values = results;
  });
  RandomProgram out{.graph = {}, .leaves = p.leaves};
  Builder b(p.graph.name);
  std::vector<Values> map(p.graph.nodes.size());
  auto at = [&](Value v) { return map[static_cast<size_t>(v.node)][static_cast<size_t>(v.index)]; };
  for (int32_t i = 0; i < p.graph.size(); ++i) {
    const Node& n = p.graph.nodes[static_cast<size_t>(i)];
    Values in;
    for (Value v : n.in) in.push_back(at(v));
    if (i != cut) {
      map[static_cast<size_t>(i)] = b.clone(n, in);
      continue;
    }
    for (size_t k = 0; k < values.size(); ++k) {
      std::string name = fmt::format("cut{}_{}", i, k);
      while (out.leaves.count(name)) name += "_";
      map[static_cast<size_t>(i)].push_back(b.input(name, values[k].type()));
      out.leaves[name] = values[k];
    }
  }
  for (Value v : p.graph.outputs) b.output(at(v));
  for (const Update& u : p.graph.updates) b.update(u.param, at(u.value));
  out.graph = b.finish();
  return without_dead(out);
}

template <class List>
bool drop_one(RandomProgram& p, List Graph::* list, FunctionRef<bool(const RandomProgram&)> fails) {
  for (size_t i = 0; i < (p.graph.*list).size(); ++i) {
    RandomProgram smaller = p;
    (smaller.graph.*list).erase((smaller.graph.*list).begin() + static_cast<int64_t>(i));
    if (smaller.graph.outputs.empty() && smaller.graph.updates.empty()) continue;
    smaller = without_dead(smaller);
    if (!fails(smaller)) continue;
    p = std::move(smaller);
    return true;
  }
  return false;
}

bool cut_one(RandomProgram& p, FunctionRef<bool(const RandomProgram&)> fails) {
  for (int32_t i = p.graph.size() - 1; i >= 0; --i) {
    const Node& n = p.graph.nodes[static_cast<size_t>(i)];
    if (n.op == &op::input || n.op == &op::param) continue;
    RandomProgram smaller = cut_at(p, i);
    if (!fails(smaller)) continue;
    p = std::move(smaller);
    return true;
  }
  return false;
}

}  // namespace

RandomProgram shrink(RandomProgram p, FunctionRef<bool(const RandomProgram&)> fails) {
  for (int round = 0; round < 200; ++round)
    if (!drop_one(p, &Graph::outputs, fails) && !drop_one(p, &Graph::updates, fails) &&
        !cut_one(p, fails))
      break;
  return p;
}

}  // namespace rlx::testing
