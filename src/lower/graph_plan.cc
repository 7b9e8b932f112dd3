#include "rlx/lower/graph_plan.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "rlx/base/checked.h"
#include "rlx/ir/builder.h"
#include "rlx/lower/arena.h"
#include "rlx/ops/control/checkpoint.h"
#include "rlx/ops/core.h"

namespace rlx {

namespace {

constexpr int64_t kMaxPlanBytes = int64_t{1} << 48;

// Its bytes; 0 where they are not known.
int64_t known_bytes(const Type& t, bool f32_uniform) {
  if (!t.shape.is_static()) return 0;
  return f32_uniform ? mul_or_fail(t.shape.elements().value(), 4, "plan") : t.bytes();
}

bool moves_only_ones(const Shape& shape, const Ints& perm) {
  int64_t last = -1;
  for (int64_t axis : perm) {
    if (shape[static_cast<size_t>(axis)] == Dim(1)) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

// Where in its operand a view begins, in elements; nullopt: it is none.
std::optional<int64_t> view_start(const Graph& g, const Node& n) {
  if (n.op == &op::reshape || n.op == &op::barrier || n.op == &op::checkpoint_name) return 0;
  if (n.in.empty()) return std::nullopt;
  const Type& from = g.type(n.in[0]);
  if (n.op == &op::cast || n.op == &op::broadcast)
    return from == n.type() ? std::optional<int64_t>(0) : std::nullopt;
  if (n.op == &op::transpose)
    return moves_only_ones(from.shape, n.get<TransposeAttrs>().perm) ? std::optional<int64_t>(0)
                                                                     : std::nullopt;
  if (n.op != &op::slice || !from.shape.is_static() || !n.type().shape.is_static())
    return std::nullopt;
  const auto& a = n.get<SliceAttrs>();
  const Ints dims = from.shape.sizes();
  size_t axis = 0;
  while (axis < dims.size() && dims[axis] == 1) ++axis;
  int64_t start = 0, rows = 1;
  for (size_t d = 0; d < dims.size(); ++d) {
    const bool whole = n.type().shape[d] == from.shape[d];
    if (!a.stride.empty() && a.stride[d] != 1) return std::nullopt;
    if (!whole && d != axis) return std::nullopt;
    if (d == axis && !a.start.empty()) {
      if (!a.start[d].is_static()) return std::nullopt;  // only sizes say where
      start = a.start[d].value();
    }
    if (d > axis) rows *= dims[d];
  }
  return start * rows;
}

}  // namespace

bool is_pure_view(const Graph& g, Value node) { return view_start(g, g.node(node)).has_value(); }

std::map<Value, ViewAlias> collect_view_aliases(const Graph& g, bool f32_uniform) {
  std::map<Value, ViewAlias> out;
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    const auto start = view_start(g, n);
    if (!start) continue;
    const int64_t bytes = *start * (f32_uniform ? 4 : size_of(n.type().dtype));
    const auto before = out.find(n.in[0]);
    out[{i, 0}] = before == out.end()
                      ? ViewAlias{n.in[0], bytes}
                      : ViewAlias{before->second.root, before->second.offset + bytes};
  }
  return out;
}

MemoryPlan plan_memory_with_options(const Graph& g, const MemoryPlanOptions& options) {
  user_check(options.alignment > 0 && std::has_single_bit(static_cast<uint64_t>(options.alignment)),
             "plan-alignment", "plan_memory: an alignment is a power of two, not {}",
             options.alignment);
  const auto aliases = collect_view_aliases(g, options.f32_uniform);
  const auto root_of = [&](Value v) {
    const auto it = aliases.find(v);
    return it == aliases.end() ? v : it->second.root;
  };
  ResultMap<std::vector<int32_t>> last(g);
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    last[i].assign(n.out.size(), n.op->kind == Kind::leaf ? g.size() : i);
    for (Value v : n.in) {
      const Value root = root_of(v);
      int32_t& at = last[root.node][static_cast<size_t>(root.index)];
      at = std::max(at, i);
    }
  }
  const auto until_the_end = [&](Value v) {
    const Value root = root_of(v);
    last[root.node][static_cast<size_t>(root.index)] = g.size();
  };
  for (Value v : g.outputs) until_the_end(v);
  for (const Update& u : g.updates) until_the_end(u.value);

  std::set<std::string_view> shared;
  if (options.weights)
    for (const WeightSlot& s : options.weights->slots) shared.insert(s.name);
  const auto is_shared = [&](const Node& n) {
    return n.op == &op::param && shared.contains(n.get<LeafAttrs>().name);
  };
  std::vector<Value> order;
  MemoryPlan plan;
  for (int32_t i = 0; i < g.size(); ++i) {
    plan.schedule.push_back(i);
    const Node& n = g.node(i);
    if ((n.op == &op::param && (!options.allocate_params || is_shared(n))) ||
        (n.op == &op::input && !options.allocate_inputs) ||
        (n.op == &op::constant && !options.allocate_constants))
      continue;
    for (int32_t k = 0; k < static_cast<int32_t>(n.out.size()); ++k)
      if (const Value v{i, k}; root_of(v) == v && known_bytes(g.type(v), options.f32_uniform) > 0)
        order.push_back(v);
  }
  const auto bytes = [&](Value v) { return known_bytes(g.type(v), options.f32_uniform); };
  std::stable_sort(order.begin(), order.end(),
                   [&](Value a, Value b) { return bytes(a) > bytes(b); });

  Arena arena(g.size() + 1);
  if (options.weights && options.weights->arena_size > 0)
    arena.place(0, g.size(), align_up(options.weights->arena_size, options.alignment));
  for (Value v : order) {
    const int64_t size = bytes(v);
    user_check(size <= kMaxPlanBytes && arena.bytes() <= kMaxPlanBytes, "program-too-large",
               "the program needs more than {} bytes at once", kMaxPlanBytes);
    const int32_t first = g.node(v).op->kind == Kind::leaf ? 0 : v.node;
    const int64_t offset = arena.place(first, last.at(v), align_up(size, options.alignment));
    plan.assignments[v] = {offset, size};
    plan.arena_size = std::max(plan.arena_size, offset + size);
  }
  if (options.weights) options.weights->apply_to_plan(g, plan);
  for (const auto& [view, alias] : aliases)
    if (const auto root = plan.assignments.find(alias.root); root != plan.assignments.end())
      plan.assignments[view] = {root->second.offset + alias.offset, bytes(view)};
  return plan;
}

MemoryPlan plan_memory_aligned(const Graph& g, int64_t alignment) {
  return plan_memory_with_options(g, {.alignment = alignment});
}

MemoryPlan plan_memory_f32_uniform(const Graph& g, int64_t alignment) {
  return plan_memory_with_options(g, {.alignment = alignment, .f32_uniform = true});
}

MemoryPlan plan_memory_backward(const Graph& g, int64_t alignment,
                                const SharedWeightLayout& weights) {
  MemoryPlanOptions options = MemoryPlanOptions::backward_activations_only();
  options.alignment = alignment;
  options.weights = &weights;
  MemoryPlan plan = plan_memory_with_options(g, options);
  plan.arena_size = std::max(plan.arena_size, weights.arena_size);
  return plan;
}

int64_t MemoryPlan::total_unshared_bytes() const {
  int64_t sum = 0;
  for (const auto& [value, slot] : assignments) sum += slot.size;
  return sum;
}

int64_t MemoryPlan::bytes_saved() const {
  return std::max<int64_t>(0, total_unshared_bytes() - arena_size);
}

std::string MemoryPlan::report() const {
  std::string out =
      fmt::format("# arena_size={} total_unshared={} saved={}\n# offset\tsize\tnode\n", arena_size,
                  total_unshared_bytes(), bytes_saved());
  std::vector<std::pair<BufferSlot, Value>> rows;
  for (const auto& [value, slot] : assignments) rows.emplace_back(slot, value);
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.first.offset, a.first.size, a.second) <
           std::tuple(b.first.offset, b.first.size, b.second);
  });
  for (const auto& [slot, value] : rows)
    out += fmt::format("{}\t{}\t{}\n", slot.offset, slot.size, value);
  return out;
}

SharedWeightLayout SharedWeightLayout::from_forward(const Graph& g, const MemoryPlan& plan) {
  SharedWeightLayout out;
  for (Value v : g.params()) {
    const auto slot = plan.assignments.find(v);
    if (slot == plan.assignments.end()) continue;
    out.slots.push_back(
        {g.node(v).get<LeafAttrs>().name, v, slot->second.offset, slot->second.size});
    out.arena_size = std::max(out.arena_size, slot->second.offset + slot->second.size);
  }
  std::sort(out.slots.begin(), out.slots.end(),
            [](const WeightSlot& a, const WeightSlot& b) { return a.name < b.name; });
  return out;
}

void SharedWeightLayout::apply_to_plan(const Graph& g, MemoryPlan& plan) const {
  std::map<std::string_view, BufferSlot> by_name;
  for (const WeightSlot& s : slots) by_name[s.name] = {s.offset, s.size};
  for (Value v : g.params())
    if (const auto slot = by_name.find(g.node(v).get<LeafAttrs>().name); slot != by_name.end())
      plan.assignments[v] = slot->second;
  for (const auto& [view, alias] : collect_view_aliases(g))
    if (g.node(alias.root).op == &op::param)
      if (const auto root = plan.assignments.find(alias.root); root != plan.assignments.end())
        plan.assignments[view] = {root->second.offset + alias.offset,
                                  known_bytes(g.type(view), false)};
}

int64_t largest_live_bytes(const Program& p) {
  std::vector<int64_t> moment(p.steps.size());
  for (size_t c = 0; c < p.chains.size(); ++c)
    for (int32_t s = p.chains[c].begin; s < p.chains[c].end; ++s)
      moment[static_cast<size_t>(s)] = static_cast<int64_t>(c);
  std::vector<int64_t> change(p.chains.size() + 1, 0);
  for (const Buffer& b : p.buffers) {
    if (b.place != Place::arena || b.first < 0 || b.shares >= 0) continue;
    const int64_t bytes = align_up(std::max<int64_t>(b.bytes, 1), 64);
    change[static_cast<size_t>(moment[static_cast<size_t>(b.first)])] += bytes;
    change[static_cast<size_t>(moment[static_cast<size_t>(b.last)]) + 1] -= bytes;
  }
  int64_t live = 0, most = 0;
  for (int64_t c : change) most = std::max(most, live += c);
  return most;
}

}  // namespace rlx
