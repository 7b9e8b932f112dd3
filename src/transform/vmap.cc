#include "rlx/transform/vmap.h"

#include <algorithm>
#include <numeric>

#include "rlx/ops/evaluate.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/rules.h"
#include "rlx/transform/walk.h"

namespace rlx {

namespace {

bool is_leaf(const Node& n) { return n.op == &op::input || n.op == &op::param; }

// The batch axis at another place.
Value move_axis(Builder& b, Value v, int64_t from, int64_t to) {
  if (from == to) return v;
  Ints perm(static_cast<size_t>(b.type(v).rank()));
  std::iota(perm.begin(), perm.end(), 0);
  perm.erase(perm.begin() + from);
  perm.insert(perm.begin() + to, from);
  return op::transpose(b, v, {perm});
}

Shape with_axis(Shape shape, int64_t axis, const Dim& size) {
  shape.insert(shape.begin() + axis, size);
  return shape;
}

Value force_batched(Builder& b, const Batched& v, const Dim& size) {
  return v.batched ? v.value : batch_operand(b, v.value, size);
}

std::vector<Batched> through_decomposition(Builder& b, const Graph& g, const Node& n,
                                           std::span<const Batched> in, const Dim& size) {
  Types types;
  for (Value v : n.in) types.push_back(g.type(v));
  std::vector<Batched> out = vmap_inline(b, decomposed(n, types), in, size);
  for (Batched& v : out) v = {force_batched(b, v, size), true};
  return out;
}

std::vector<Batched> apply_vmap(Builder& b, const Graph& g, const Node& n,
                                std::span<const Batched> in, const Dim& size) {
  const OpDef& op = *n.op;
  Values values;
  std::vector<bool> batched;
  for (const Batched& v : in) values.push_back(v.value), batched.push_back(v.batched);
  const VmapArgs args{n, values, batched, size, &kBodies};
  Values found;
  if (op.vmap)
    found = op.vmap(b, args);
  else if (op.kind == Kind::elementwise)
    found = vmap_elementwise(b, args);
  else if (!op.decompose)
    no_rule("vmap", n);
  if (found.empty() && op.decompose) return through_decomposition(b, g, n, in, size);
  check(found.size() == n.out.size(), "{}: the vmap rule gave {} results for {}", op.name,
        found.size(), n.out.size());
  std::vector<Batched> out;
  for (Value v : found) out.push_back({v, true});
  return out;
}

ResultMap<std::vector<Batched>> vmap_nodes(Builder& b, const Graph& g,
                                           std::span<const Batched> leaves, const Dim& size) {
  OriginScope origin(b, "vmap");
  ResultMap<std::vector<Batched>> map(g);
  size_t next = 0;
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    if (is_leaf(n)) {
      check(next < leaves.size(), "vmap: too few values for the leaves of \"{}\"", g.name);
      map[i] = {leaves[next++]};
      continue;
    }
    const std::vector<Batched> in = map.at(n.in);
    if (std::none_of(in.begin(), in.end(), [](const Batched& v) { return v.batched; })) {
      Values values;
      for (const Batched& v : in) values.push_back(v.value);
      for (Value v : b.clone(n, values)) map[i].push_back({v, false});
      continue;
    }
    origin.of(n);
    map[i] = apply_vmap(b, g, n, in, size);
    for (size_t k = 0; k < n.out.size(); ++k) {
      const Type want{n.out[k].dtype, with_axis(n.out[k].shape, 0, size)};
      map[i][k].value = settle(b, map[i][k].value, want, *n.op, "of the vmap rule, result", k);
    }
  }
  return map;
}

// Declares the leaves of the new graph; batched ones get their axis moved to the front.
std::vector<Batched> declare_leaves(Builder& b, const Graph& g,
                                    const std::map<std::string, int64_t>& axes, const Dim& size) {
  std::vector<Batched> leaves;
  for (const Node& n : g.nodes) {
    if (!is_leaf(n)) continue;
    LeafAttrs attrs = n.get<LeafAttrs>();
    const auto it = axes.find(attrs.name);
    const int64_t axis =
        it == axes.end() ? 0 : normalise_axis(it->second, attrs.shape.rank() + 1, "vmap");
    if (it != axes.end()) attrs.shape = with_axis(attrs.shape, axis, size);
    b.set_origin(n.origin);
    const Value v = b.emit(*n.op, attrs, {})[0];
    leaves.push_back(it == axes.end() ? Batched{v, false} : Batched{v, true});
  }
  b.set_origin({"", "vmap"});
  size_t next = 0;
  for (const Node& n : g.nodes) {
    if (!is_leaf(n)) continue;
    Batched& v = leaves[next++];
    if (v.batched)
      v.value = move_axis(
          b, v.value,
          normalise_axis(axes.at(n.get<LeafAttrs>().name), b.type(v.value).rank(), "vmap"), 0);
  }
  return leaves;
}

}  // namespace

std::vector<Batched> vmap_inline(Builder& b, const Graph& g, std::span<const Batched> leaves,
                                 const Dim& size) {
  return vmap_nodes(b, g, leaves, size).at(g.outputs);
}

namespace {

Graph vmap_graph(const Graph& g, const std::map<std::string, int64_t>& axes, const Dim& size,
                 int64_t out_axis) {
  for (const auto& [name, axis] : axes) find_leaves(g, {name}, "vmap");
  Builder b(g.name + "_vmap");
  const std::vector<Batched> leaves = declare_leaves(b, g, axes, size);
  const auto map = vmap_nodes(b, g, leaves, size);
  b.set_origin({"", "vmap"});
  for (Value v : g.outputs) {
    const Value batched = force_batched(b, map.at(v), size);
    b.output(move_axis(b, batched, 0, normalise_axis(out_axis, b.type(batched).rank(), "vmap")));
  }
  for (const Update& u : g.updates) {
    const auto it = axes.find(u.param);
    Value v = map.at(u.value).value;
    user_check(
        it != axes.end() || !map.at(u.value).batched, "update-batched",
        "vmap: parameter \"{}\" is shared by the batch but would be updated with a batch of values",
        u.param);
    if (it != axes.end()) {
      v = force_batched(b, map.at(u.value), size);
      v = move_axis(b, v, 0, normalise_axis(it->second, b.type(v).rank(), "vmap"));
    }
    b.update(u.param, v);
  }
  return drop_dead(b.finish(), true);
}

}  // namespace

Graph vmap(const Graph& g, const std::map<std::string, int64_t>& axes, const Dim& size,
           int64_t out_axis) {
  return within_memory([&] { return vmap_graph(g, axes, size, out_axis); });
}

}  // namespace rlx
