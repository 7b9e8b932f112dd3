#include "rlx/passes/live_bytes.h"

#include <algorithm>

#include "rlx/ops/control/checkpoint.h"
#include "rlx/ops/control/loops.h"
#include "rlx/ops/control/scan_checkpoints.h"
#include "rlx/ops/core.h"

namespace rlx {

bool is_view(const OpDef& op) {
  static const OpDef* const views[] = {&op::reshape,   &op::transpose, &op::slice,
                                       &op::broadcast, &op::reverse,   &op::barrier};
  return std::find(std::begin(views), std::end(views), &op) != std::end(views);
}

int64_t result_bytes(const Node& n) {
  if (n.op->kind == Kind::leaf || is_view(*n.op)) return 0;
  int64_t sum = 0;
  for (const Type& t : n.out) sum += t.bytes();
  return sum;
}

namespace {

// What the bodies of control flow need while they run.
int64_t body_bytes(const Node& n) {
  if (n.op->kind != Kind::control) return 0;
  int64_t most = 0, carried = 0;
  for (const NamedBody& b : bodies(n.attrs)) most = std::max(most, LiveBytes(b.graph).peak);
  int64_t carries = 0, copies = 1;  // of each carry, besides the result
  if (n.op == &op::scan) carries = n.get<ScanAttrs>().num_carries;
  if (n.op == &op::scan_snapshots) carries = n.get<ScanSnapshotsAttrs>().num_carries;
  if (n.op == &op::while_loop) carries = n.get<WhileAttrs>().num_carries, copies = 2;
  if (n.op == &op::scan_sweep) {
    const auto& s = n.get<ScanSweepAttrs>();
    carries = s.num_carries;
    // The snapshots that are given lie in their operand's place.
    const int64_t rows = s.slots + 1 - static_cast<int64_t>(s.times.size());
    const Values inputs = s.forward->inputs();
    for (int64_t c = 0; c < s.num_entering; ++c)
      carried += (rows + 2) * s.forward->type(inputs[static_cast<size_t>(c)]).bytes();
  }
  for (int64_t c = 0; c < carries; ++c) carried += copies * n.out[static_cast<size_t>(c)].bytes();
  return most + carried;
}

// A result that is planned: what it takes, and who reads it last.
struct Life {
  int64_t bytes = 0;
  int32_t last = -1;
};

}  // namespace

LiveBytes::LiveBytes(const Graph& g) : at(g.nodes.size(), 0) {
  ResultMap<std::vector<Value>> roots(g);
  ResultMap<std::vector<Life>> lives(g);
  const auto life = [&](Value v) -> Life& { return lives[v.node][static_cast<size_t>(v.index)]; };
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    const bool planned = n.op->kind != Kind::leaf && !is_view(*n.op);
    for (size_t k = 0; k < n.out.size(); ++k) {
      const Value self{i, static_cast<int32_t>(k)};
      roots[i].push_back(is_view(*n.op) ? roots.at(n.in[0]) : self);
      lives[i].push_back({planned ? n.out[k].bytes() : 0, i});
    }
    for (Value v : n.in) life(roots.at(v)).last = i;
  }
  const auto written =
      [&](Value v) {  // in memory of the caller or of a parameter; views are copied there
        const Value root = roots.at(v);
        if (root == v)
          life(root).bytes = 0;
        else
          life(root).last = g.size();
      };
  for (Value v : g.outputs) written(v);
  for (const Update& u : g.updates) written(u.value);

  int64_t live = 0;
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    if (n.op->kind == Kind::leaf || is_view(*n.op)) {
      at[static_cast<size_t>(i)] = live;
      continue;
    }
    std::vector<Value> dying;
    for (Value v : n.in) {
      const Value root = roots.at(v);
      if (life(root).last == i && life(root).bytes > 0 &&
          std::find(dying.begin(), dying.end(), root) == dying.end())
        dying.push_back(root);
    }
    int64_t freed = 0;
    for (const Life& l : lives[i]) {
      const auto place = std::find_if(dying.begin(), dying.end(),
                                      [&](Value v) { return life(v).bytes == l.bytes; });
      if (n.op == &op::region && place != dying.end())
        dying.erase(place);  // its memory is the result's from now on
      else
        live += l.bytes;
      if (l.last == i) freed += l.bytes;
    }
    at[static_cast<size_t>(i)] = live + body_bytes(n);
    if (at[static_cast<size_t>(i)] > peak) peak = at[static_cast<size_t>(i)], fullest = i;
    for (Value v : dying) freed += life(v).bytes;
    live -= freed;
  }
}

}  // namespace rlx
