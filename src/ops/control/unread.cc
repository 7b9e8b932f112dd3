#include "rlx/ops/control/unread.h"

#include <algorithm>
#include <map>

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

// What stays of a node with bodies: operands and results.
struct Kept {
  Flags operands, results;
  bool all() const {
    return std::find(operands.begin(), operands.end(), false) == operands.end() &&
           std::find(results.begin(), results.end(), false) == results.end();
  }
};

// What a graph reads of itself, and bodies in it of theirs; each question is answered once. The graph stays as it is.
class Reads {
 public:
  // Which inputs of the body the flagged outputs need.
  Flags inputs(const Graph& body, const Flags& outputs) {
    const auto [it, fresh] = known_.try_emplace({&body, outputs});
    if (fresh) {
      Walk w = walk(body, marked(body, outputs));
      for (Value v : body.inputs()) it->second.push_back(!w.read[at(v.node)].empty());
    }
    return it->second;
  }

  struct Walk {
    std::vector<Flags> read;                // results that are read; empty: none
    std::vector<std::optional<Kept>> kept;  // of nodes that lose something
  };
  Walk walk(const Graph& g, std::vector<Flags> read) {
    Walk w{std::move(read), std::vector<std::optional<Kept>>(g.nodes.size())};
    for (int32_t i = g.size(); i-- > 0;) {
      const Node& n = g.node(i);
      if (w.read[at(i)].empty()) continue;
      std::optional<Kept> k = kept_of(n, w.read[at(i)]);
      for (size_t j = 0; j < n.in.size(); ++j)
        if (!k || k->operands[j]) mark(g, n.in[j], w.read);
      if (k && !k->all()) w.kept[at(i)] = std::move(k);
    }
    return w;
  }
  static void mark(const Graph& g, Value v, std::vector<Flags>& read) {
    read[at(v.node)].resize(g.node(v).out.size(), false);
    read[at(v.node)][at(v.index)] = true;
  }

 private:
  static std::vector<Flags> marked(const Graph& g, const Flags& outputs) {
    std::vector<Flags> read(g.nodes.size());
    for (size_t k = 0; k < outputs.size(); ++k)
      if (outputs[k]) mark(g, g.outputs[k], read);
    return read;
  }

  // Carries stay where something that stays reads them.
  void keep_carries(const Graph& body, int64_t carries, Kept& k) {
    for (bool grew = true; grew;) {
      grew = false;
      k.operands = either(std::move(k.operands), inputs(body, k.results));
      for (int64_t c = 0; c < carries; ++c) {
        if (k.results[at(c)] && !k.operands[at(c)])
          k.operands[at(c)] = true;  // its first value is a result
        if (k.operands[at(c)] && !k.results[at(c)]) k.results[at(c)] = grew = true;
      }
    }
  }

  std::optional<Kept> kept_of(const Node& n, const Flags& read) {
    if (n.op == &op::scan) {
      const auto& s = n.get<ScanAttrs>();
      Kept k{Flags(n.in.size(), false), read};
      keep_carries(*s.body, s.num_carries, k);
      return k;
    }
    // Stacked results go; the carries, which are given as they enter steps, stay.
    if (n.op == &op::scan_snapshots) {
      const auto& s = n.get<ScanSnapshotsAttrs>();
      Kept k{Flags(n.in.size(), true), read};
      for (size_t i = 0; i < k.results.size(); ++i)
        if (i < at(s.num_carries) || i >= s.body->outputs.size()) k.results[i] = true;
      return k;
    }
    if (n.op == &op::while_loop) {
      const auto& w = n.get<WhileAttrs>();
      Kept k{inputs(*w.cond, {true}), read};
      for (int64_t c = 0; c < w.num_carries; ++c)
        if (k.operands[at(c)]) k.results[at(c)] = true;
      keep_carries(*w.body, w.num_carries, k);
      return k;
    }
    if (n.op == &op::cond) {
      const auto& c = n.get<CondAttrs>();
      const Flags both = either(inputs(*c.then_body, read), inputs(*c.else_body, read));
      Kept k{{true}, read};
      k.operands.insert(k.operands.end(), both.begin(), both.end());
      return k;
    }
    return std::nullopt;
  }

  std::map<std::pair<const Graph*, Flags>, Flags> known_;
};

int64_t count(const Flags& flags, int64_t begin, int64_t end) {
  return std::count(flags.begin() + begin, flags.begin() + end, true);
}

// The attributes of a node of which that stays.
Attrs attrs_of(const Node& n, const Kept& k) {
  if (n.op == &op::scan) {
    ScanAttrs s = n.get<ScanAttrs>();
    s.body = narrowed(*s.body, k.operands, k.results);
    const int64_t carries = s.num_carries;
    s.num_xs = count(k.operands, carries, carries + s.num_xs);
    s.num_carries = count(k.operands, 0, carries);
    return Attrs(s);
  }
  if (n.op == &op::scan_snapshots) {
    ScanSnapshotsAttrs s = n.get<ScanSnapshotsAttrs>();
    const auto results = static_cast<int64_t>(s.body->outputs.size());
    s.body = narrowed(*s.body, k.operands, Flags(k.results.begin(), k.results.begin() + results));
    return Attrs(s);
  }
  if (n.op == &op::while_loop) {
    WhileAttrs w = n.get<WhileAttrs>();
    w.cond = narrowed(*w.cond, k.operands, {true});
    w.body = narrowed(*w.body, k.operands, k.results);
    w.num_carries = count(k.operands, 0, w.num_carries);
    return Attrs(w);
  }
  CondAttrs c = n.get<CondAttrs>();
  const Flags inputs(k.operands.begin() + 1, k.operands.end());
  c.then_body = narrowed(*c.then_body, inputs, k.results);
  c.else_body = narrowed(*c.else_body, inputs, k.results);
  return Attrs(c);
}

// The bodies of a node that keeps all of itself, without what nobody reads in them; nullopt: they are so.
std::optional<Attrs> pruned(const Node& n) {
  const bool known = n.op == &op::scan || n.op == &op::scan_snapshots || n.op == &op::while_loop ||
                     n.op == &op::cond;
  bool changes = false;
  const auto prune = [&](const Body& body) {
    if (!has_loops(*body)) return body;
    Graph after = drop_unread(*body);
    if (after == *body) return body;
    changes = true;
    return Body(std::move(after));
  };
  if (!known) return std::nullopt;
  Attrs attrs = map_bodies(n.attrs, prune);
  return changes ? std::optional(std::move(attrs)) : std::nullopt;
}

}  // namespace

Graph drop_unread(Graph g, bool in_bodies) {
  g = drop_dead(std::move(g), true);
  if (!has_loops(g)) return g;
  std::vector<Flags> read(g.nodes.size());
  for (Value v : g.outputs) Reads::mark(g, v, read);
  for (const Update& u : g.updates) Reads::mark(g, u.value, read);
  const Reads::Walk w = Reads().walk(g, std::move(read));
  std::vector<std::optional<Attrs>> attrs(g.nodes.size());
  bool changes = false;
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    if (w.read[at(i)].empty()) continue;
    if (w.kept[at(i)])
      attrs[at(i)] = attrs_of(n, *w.kept[at(i)]);
    else if (in_bodies)
      attrs[at(i)] = pruned(n);
    changes |= attrs[at(i)].has_value();
  }
  if (!changes) return g;
  return drop_dead(rebuild(g,
                           [&](Builder& b, int32_t i, Operands in) -> Values {
                             const Node& n = g.node(i);
                             if (w.read[at(i)].empty() && n.op->kind != Kind::leaf)
                               return Values(n.out.size(), kNone);  // it may read what is gone
                             if (!attrs[at(i)]) return b.clone(n, in);
                             if (!w.kept[at(i)]) return b.emit(*n.op, *attrs[at(i)], in);
                             const Kept& k = *w.kept[at(i)];
                             Values operands, out(n.out.size(), kNone);
                             for (size_t j = 0; j < in.size(); ++j)
                               if (k.operands[j]) operands.push_back(in[j]);
                             const Values made = b.emit(*n.op, *attrs[at(i)], operands);
                             for (size_t j = 0, next = 0; j < out.size(); ++j)
                               if (k.results[j]) out[j] = made[next++];
                             return out;
                           }),
                   true);
}

}  // namespace rlx
