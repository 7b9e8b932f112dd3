#include "rlx/ops/control/unread.h"

#include <algorithm>

#include "rlx/ir/builder.h"
#include "rlx/ops/control/body_rules.h"
#include "rlx/ops/control/control.h"
#include "rlx/ops/control/loops.h"
#include "rlx/ops/control/scan_checkpoints.h"

namespace rlx {

namespace {

bool has_loops(const Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(),
                     [](const Node& n) { return !bodies(n.attrs).empty(); });
}

Graph with_outputs(const Graph& body, const Flags& outputs) {
  Graph g = body;
  g.outputs.clear();
  for (size_t k = 0; k < outputs.size(); ++k)
    if (outputs[k]) g.outputs.push_back(body.outputs[k]);
  return g;
}

// Which inputs of a body the flagged outputs depend on. Of loops in it these may need a part alone.
Flags inputs_read(const Graph& body, const Flags& outputs) {
  const bool all = std::find(outputs.begin(), outputs.end(), false) == outputs.end();
  if (!all && has_loops(body)) {
    const Graph part = drop_unread(with_outputs(body, outputs));
    Flags read;
    const Uses uses(part);
    for (Value v : part.inputs()) read.push_back(uses.count(v.node) > 0 || uses.is_output(v.node));
    return read;
  }
  std::vector<bool> needed(body.nodes.size(), false);
  for (size_t k = 0; k < body.outputs.size(); ++k)
    if (outputs[k]) needed[at(body.outputs[k].node)] = true;
  for (int32_t i = body.size(); i-- > 0;)
    if (needed[at(i)])
      for (Value v : body.node(i).in) needed[at(v.node)] = true;
  Flags out;
  for (Value v : body.inputs()) out.push_back(needed[at(v.node)]);
  return out;
}

Flags either(Flags a, const Flags& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (b[i]) a[i] = true;
  return a;
}

// The body with the flagged inputs and outputs alone.
Body narrowed(const Graph& body, const Flags& inputs, const Flags& outputs) {
  Graph g = drop_unread(with_outputs(body, outputs));
  const Values leaves = g.inputs();
  std::vector<bool> gone(g.nodes.size(), false);
  for (size_t i = 0; i < inputs.size(); ++i) gone[at(leaves[i].node)] = !inputs[i];
  std::vector<int32_t> number(g.nodes.size(), -1);
  Graph out;
  out.name = g.name;
  for (int32_t i = 0; i < g.size(); ++i) {
    if (gone[at(i)]) continue;
    number[at(i)] = out.size();
    out.nodes.push_back(std::move(g.nodes[at(i)]));
    for (Value& v : out.nodes.back().in) v.node = number[at(v.node)];
  }
  for (Value v : g.outputs) out.outputs.push_back({number[at(v.node)], v.index});
  return Body(std::move(out));
}

// What stays of a node: operands, results, and the attributes that say so.
struct Kept {
  Flags operands, results;
  Attrs attrs;
  bool in_bodies = false;  // something goes there, too
  bool all() const {
    return !in_bodies && std::find(operands.begin(), operands.end(), false) == operands.end() &&
           std::find(results.begin(), results.end(), false) == results.end();
  }
};

// The body without what nobody reads of the loops in it, where that is wanted.
void prune(Body& body, bool wanted, bool& changes) {
  if (!wanted || !has_loops(*body)) return;
  Graph after = drop_unread(*body);
  if (after == *body) return;
  body = Body(std::move(after));
  changes = true;
}

int64_t count(const Flags& flags, int64_t begin, int64_t end) {
  return std::count(flags.begin() + begin, flags.begin() + end, true);
}

// Carries stay where something that stays reads them.
void keep_carries(const Graph& body, int64_t carries, Flags& outputs, Flags& operands) {
  for (bool grew = true; grew;) {
    grew = false;
    operands = either(std::move(operands), inputs_read(body, outputs));
    for (int64_t c = 0; c < carries; ++c) {
      if (outputs[at(c)] && !operands[at(c)])
        operands[at(c)] = true;  // its first value is a result
      if (operands[at(c)] && !outputs[at(c)]) outputs[at(c)] = grew = true;
    }
  }
}

Kept kept_of_scan(const Node& n, const Flags& read, bool prunes) {
  ScanAttrs s = n.get<ScanAttrs>();
  Kept k{Flags(n.in.size(), false), read, {}};
  prune(s.body, prunes, k.in_bodies);
  keep_carries(*s.body, s.num_carries, k.results, k.operands);
  if (k.all()) return k;
  s.body = narrowed(*s.body, k.operands, k.results);
  const int64_t carries = s.num_carries;
  s.num_xs = count(k.operands, carries, carries + s.num_xs);
  s.num_carries = count(k.operands, 0, carries);
  k.attrs = Attrs(s);
  return k;
}

// Stacked results go; the carries, which are given as they enter steps, stay.
Kept kept_of_snapshots(const Node& n, const Flags& read, bool prunes) {
  ScanSnapshotsAttrs s = n.get<ScanSnapshotsAttrs>();
  Kept k{Flags(n.in.size(), true), read, {}};
  prune(s.body, prunes, k.in_bodies);
  const size_t results = s.body->outputs.size();
  for (size_t i = 0; i < k.results.size(); ++i)
    if (i < at(s.num_carries) || i >= results) k.results[i] = true;
  if (k.all()) return k;
  s.body = narrowed(*s.body, k.operands,
                    Flags(k.results.begin(), k.results.begin() + static_cast<int64_t>(results)));
  k.attrs = Attrs(s);
  return k;
}

Kept kept_of_while(const Node& n, const Flags& read, bool prunes) {
  WhileAttrs w = n.get<WhileAttrs>();
  bool in_bodies = false;
  prune(w.cond, prunes, in_bodies), prune(w.body, prunes, in_bodies);
  Kept k{inputs_read(*w.cond, {true}), read, {}, in_bodies};
  for (int64_t c = 0; c < w.num_carries; ++c)
    if (k.operands[at(c)]) k.results[at(c)] = true;
  keep_carries(*w.body, w.num_carries, k.results, k.operands);
  if (k.all()) return k;
  w.cond = narrowed(*w.cond, k.operands, {true});
  w.body = narrowed(*w.body, k.operands, k.results);
  w.num_carries = count(k.operands, 0, w.num_carries);
  k.attrs = Attrs(w);
  return k;
}

Kept kept_of_cond(const Node& n, const Flags& read, bool prunes) {
  CondAttrs c = n.get<CondAttrs>();
  bool in_bodies = false;
  prune(c.then_body, prunes, in_bodies), prune(c.else_body, prunes, in_bodies);
  const Flags inputs = either(inputs_read(*c.then_body, read), inputs_read(*c.else_body, read));
  Kept k{{true}, read, {}, in_bodies};
  k.operands.insert(k.operands.end(), inputs.begin(), inputs.end());
  if (k.all()) return k;
  c.then_body = narrowed(*c.then_body, inputs, read);
  c.else_body = narrowed(*c.else_body, inputs, read);
  k.attrs = Attrs(c);
  return k;
}

// `prunes`: bodies as well.
std::optional<Kept> kept_of(const Node& n, const Flags& read, bool prunes) {
  if (n.op == &op::scan) return kept_of_scan(n, read, prunes);
  if (n.op == &op::scan_snapshots) return kept_of_snapshots(n, read, prunes);
  if (n.op == &op::while_loop) return kept_of_while(n, read, prunes);
  if (n.op == &op::cond) return kept_of_cond(n, read, prunes);
  return std::nullopt;
}

}  // namespace

Graph drop_unread(Graph g, bool in_bodies) {
  g = drop_dead(std::move(g), true);
  if (!has_loops(g)) return g;
  std::vector<Flags> read(g.nodes.size());
  std::vector<std::optional<Kept>> kept(g.nodes.size());
  const auto mark = [&](Value v) {
    read[at(v.node)].resize(g.node(v).out.size(), false);
    read[at(v.node)][at(v.index)] = true;
  };
  for (Value v : g.outputs) mark(v);
  for (const Update& u : g.updates) mark(u.value);
  bool changes = false;
  for (int32_t i = g.size(); i-- > 0;) {
    const Node& n = g.node(i);
    if (read[at(i)].empty()) continue;
    std::optional<Kept> k = kept_of(n, read[at(i)], in_bodies);
    if (k && k->all()) k.reset();
    for (size_t j = 0; j < n.in.size(); ++j)
      if (!k || k->operands[j]) mark(n.in[j]);
    changes |= k.has_value();
    kept[at(i)] = std::move(k);
  }
  if (!changes) return g;
  Graph fewer = rebuild(g, [&](Builder& b, int32_t i, Operands in) -> Values {
    const Node& n = g.node(i);
    if (read[at(i)].empty() && n.op->kind != Kind::leaf)
      return Values(n.out.size(), kNone);  // it may read what is gone
    if (!kept[at(i)]) return b.clone(n, in);
    const Kept& k = *kept[at(i)];
    Values operands, out(n.out.size(), kNone);
    for (size_t j = 0; j < in.size(); ++j)
      if (k.operands[j]) operands.push_back(in[j]);
    const Values made = b.emit(*n.op, k.attrs, operands);
    for (size_t j = 0, next = 0; j < out.size(); ++j)
      if (k.results[j]) out[j] = made[next++];
    return out;
  });
  return drop_unread(std::move(fewer), in_bodies);
}

}  // namespace rlx
