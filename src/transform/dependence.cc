#include "rlx/transform/dependence.h"

#include <algorithm>

#include "rlx/ops/control/checkpoint.h"
#include "rlx/ops/control/control.h"
#include "rlx/ops/control/loops.h"
#include "rlx/ops/control/scan_checkpoints.h"
#include "rlx/ops/rules.h"

namespace rlx {

namespace {

using Marks = std::vector<bool>;

bool some(const Marks& f) { return std::find(f.begin(), f.end(), true) != f.end(); }

Marks part_of(const Marks& f, size_t first, size_t count) {
  return {f.begin() + static_cast<int64_t>(first), f.begin() + static_cast<int64_t>(first + count)};
}

void join(Marks& into, const Marks& more) {
  for (size_t i = 0; i < into.size(); ++i) into[i] = into[i] || more[i];
}

Marks outputs_of(const Graph& body, const Marks& inputs) {
  size_t next = 0;
  const ResultFlags all = dependence(body, [&](const Node&) { return inputs[next++]; });
  Marks out;
  for (Value v : body.outputs) out.push_back(all[at(v.node)][at(v.index)]);
  return out;
}

// What a loop's carries depend on in the end, `in` what the body's inputs do at first; the body's outputs besides.
struct Looped {
  Marks carries, outputs;
};
Looped looped(const Graph& body, Marks in, size_t carries) {
  while (true) {
    const Marks out = outputs_of(body, in);
    Marks now = part_of(in, 0, carries);
    join(now, part_of(out, 0, carries));
    if (now == part_of(in, 0, carries)) return {now, out};
    std::copy(now.begin(), now.end(), in.begin());
  }
}

Marks of_scan(const Graph& body, const Marks& in, int64_t carries) {
  const Looped l = looped(body, in, at(carries));
  Marks out = l.carries;
  out.insert(out.end(), l.outputs.begin() + carries, l.outputs.end());
  return out;
}

// And the carries that it keeps, once or twice.
Marks of_keeping_scan(const Node& n, const Graph& body, const Marks& in, int64_t num_carries) {
  Marks out = of_scan(body, in, num_carries);
  const Marks carries = part_of(out, 0, at(num_carries));
  while (out.size() < n.out.size()) out.insert(out.end(), carries.begin(), carries.end());
  return out;
}

Marks of_sweep(const ScanSweepAttrs& s, Marks in) {
  const size_t swept = at(s.num_carries), entering = at(s.num_entering), xs = at(s.num_xs),
               cotangents = at(s.num_cotangents);
  Marks forward = part_of(in, swept, entering + xs);
  const Marks constants = part_of(in, swept + entering + xs + cotangents,
                                  in.size() - swept - entering - xs - cotangents);
  forward.insert(forward.end(), constants.begin(), constants.end());
  const Marks entered = looped(*s.forward, forward, entering).carries;
  std::copy(entered.begin(), entered.end(), in.begin() + s.num_carries);
  return of_scan(*s.back, in, s.num_carries);
}

Marks results_of(const Node& n, const Marks& in) {
  if (!some(in)) return Marks(n.out.size(), false);
  if (n.op == &op::scan.def) {
    const auto& s = n.get<ScanAttrs>();
    return of_scan(*s.body, in, s.num_carries);
  }
  if (n.op == &op::scan_kept.def) {
    const auto& s = n.get<ScanKeptAttrs>();
    return of_keeping_scan(n, *s.body, in, s.num_carries);
  }
  if (n.op == &op::scan_snapshots.def) {
    const auto& s = n.get<ScanSnapshotsAttrs>();
    return of_keeping_scan(n, *s.body, in, s.num_carries);
  }
  if (n.op == &op::scan_sweep.def) return of_sweep(n.get<ScanSweepAttrs>(), in);
  if (n.op == &op::checkpoint.def) return outputs_of(*n.get<CheckpointAttrs>().body, in);
  if (n.op == &op::cond.def && !in[0]) {
    const auto& c = n.get<CondAttrs>();
    const Marks arguments = part_of(in, 1, in.size() - 1);
    Marks out = outputs_of(*c.then_body, arguments);
    join(out, outputs_of(*c.else_body, arguments));
    return out;
  }
  if (n.op == &op::while_loop.def) {
    const auto& w = n.get<WhileAttrs>();
    const Looped l = looped(*w.body, in, at(w.num_carries));
    Marks arguments = in;
    std::copy(l.carries.begin(), l.carries.end(), arguments.begin());
    if (!some(outputs_of(*w.cond, arguments))) return l.carries;
  }
  return Marks(n.out.size(), true);
}

}  // namespace

ResultFlags dependence(const Graph& g, FunctionRef<bool(const Node& leaf)> on) {
  ResultFlags out(g.nodes.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const Node& n = g.nodes[i];
    if (n.op == &op::input || n.op == &op::param) {
      out[i] = {on(n)};
      continue;
    }
    Marks in;
    for (Value v : n.in) in.push_back(out[at(v.node)][at(v.index)]);
    out[i] = results_of(n, in);
  }
  return out;
}

}  // namespace rlx
