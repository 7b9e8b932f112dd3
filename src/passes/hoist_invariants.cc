// Moves what no step changes out of the bodies of scan and while_loop: it is computed once, before them, and comes in as a
// constant operand.
#include <algorithm>
#include <set>

#include "rlx/ir/expression.h"
#include "rlx/ops/control/checkpoint.h"
#include "rlx/ops/control/control.h"
#include "rlx/ops/control/loops.h"
#include "rlx/ops/control/scan_checkpoints.h"
#include "rlx/ops/core.h"
#include "rlx/ops/image/conv.h"
#include "rlx/ops/region.h"
#include "rlx/passes/passes.h"

namespace rlx {

namespace {

size_t slot(int64_t i) { return static_cast<size_t>(i); }

bool is_body_view(const Node& n) {
  return n.op == &op::reshape || n.op == &op::transpose || n.op == &op::slice ||
         n.op == &op::broadcast || n.op == &op::reverse;
}

// ---- what cannot fail

constexpr int kMostExpansions = 64;  // composites inside of one that are looked into

bool cannot_raise(const Node& n, const Graph& g, int& budget) {
  if (n.op->kind == Kind::leaf || n.op->kind == Kind::elementwise || n.op->scalar) return true;
  if (is_body_view(n) || n.op == &op::concat || n.op == &op::pad || n.op == &op::iota ||
      n.op == &op::matmul || n.op == &op::conv || is_region_reduction(n))
    return true;
  if (!n.op->decompose || --budget < 0) return false;
  Builder scratch;
  Values in;
  for (Value v : n.in) in.push_back(scratch.input(std::to_string(in.size()), g.type(v)));
  scratch.expand(n, in);
  const Graph& definition = scratch.graph();
  return std::all_of(definition.nodes.begin(), definition.nodes.end(),
                     [&](const Node& part) { return cannot_raise(part, definition, budget); });
}

// ---- what is worth it

// Views and numbers cost nothing in a body, and what is larger than its operands costs more to read than to make again.
bool is_worth_moving(const Node& n, const Graph& g) {
  if (n.in.empty() || is_body_view(n)) return false;
  if (n.op->kind != Kind::elementwise && n.op->kind != Kind::movement && !n.op->scalar) return true;
  const Type& type = n.type();
  const Dim elements = type.shape.elements();
  if (elements == Dim(1)) return false;
  return std::any_of(n.in.begin(), n.in.end(), [&](Value v) {
    const Type& t = g.type(v);
    if (t.shape.is_static() && type.shape.is_static()) return t.bytes() >= type.bytes();
    return t.shape.elements() == elements && size_of(t.dtype) >= size_of(type.dtype);
  });
}

// ---- one body

// What leaves a body: the values that come in instead, and the nodes that make them.
class Invariants {
 public:
  // `fixed`: per input of the body, no step changes it. `certain`: the body runs at least once.
  Invariants(const Graph& body, const std::vector<bool>& fixed, bool certain)
      : moves_(body.nodes.size(), false) {
    std::vector<bool> stays(body.nodes.size(), true);
    const Values inputs = body.inputs();
    for (size_t i = 0; i < inputs.size(); ++i) stays[slot(inputs[i].node)] = !fixed[i];
    for (int32_t i = 0; i < body.size(); ++i) {
      const Node& n = body.node(i);
      if (n.op == &op::barrier || !is_expression(n)) continue;  // barriers say when
      int budget = kMostExpansions;
      stays[slot(i)] =
          std::any_of(n.in.begin(), n.in.end(), [&](Value v) { return stays[slot(v.node)]; }) ||
          !(certain || cannot_raise(n, body, budget));
    }
    std::set<Value> read(body.outputs.begin(), body.outputs.end());  // by what stays
    for (int32_t i = body.size(); i-- > 0;) {
      const Node& n = body.node(i);
      const auto first = read.lower_bound({i, 0}), end = read.lower_bound({i + 1, 0});
      if (first == end || n.op == &op::input) continue;
      if (!stays[slot(i)] && is_worth_moving(n, body)) {
        boundary_.insert(boundary_.end(), first, end);
        moves_[slot(i)] = true;
      } else {
        read.insert(n.in.begin(), n.in.end());
      }
    }
    for (int32_t i = body.size(); i-- > 0;)
      if (moves_[slot(i)])
        for (Value v : body.node(i).in) moves_[slot(v.node)] = true;
  }

  bool any() const { return !boundary_.empty(); }
  const Values& boundary() const { return boundary_; }     // values of the body that come in
  bool moves(int32_t i) const { return moves_[slot(i)]; }  // is made outside

 private:
  std::vector<bool> moves_;
  Values boundary_;
};

// The body with what leaves it coming in behind its own inputs, and inputs that another body needs before and behind those.
Graph without(const Graph& body, const Invariants& gone, const Types& before, const Types& behind) {
  Builder b(body.name);
  std::vector<Values> made(body.nodes.size());
  for (Value v : body.inputs())
    made[slot(v.node)] = {b.input(body.node(v).get<LeafAttrs>().name, body.type(v))};
  int64_t number = 0;
  const auto come_in = [&](const Type& t) {
    std::string name;
    do name = fmt::format("invariant_{}", number++);
    while (b.find_leaf(name).valid());
    return b.input(name, t);
  };
  for (const Type& t : before) come_in(t);
  for (Value v : gone.boundary()) {
    Values& results = made[slot(v.node)];
    results.resize(body.node(v).out.size(), kNone);
    results[slot(v.index)] = come_in(body.type(v));
  }
  for (const Type& t : behind) come_in(t);
  for (int32_t i = 0; i < body.size(); ++i) {
    const Node& n = body.node(i);
    if (n.op == &op::input || !made[slot(i)].empty()) continue;
    Values in;
    for (Value v : n.in) in.push_back(made[slot(v.node)][slot(v.index)]);
    if (std::find(in.begin(), in.end(), kNone) != in.end()) {
      made[slot(i)].assign(n.out.size(), kNone);  // it left with what it reads
      continue;
    }
    b.set_origin(n.origin);
    made[slot(i)] = b.clone(n, in);
  }
  for (Value v : body.outputs) b.output(made[slot(v.node)][slot(v.index)]);
  return drop_dead(b.finish());
}

// Makes outside what leaves a body whose inputs are these values.
Values made_outside(Rebuild& r, const Graph& body, const Invariants& gone, Operands inputs) {
  Builder& b = r.builder();
  std::vector<Values> made(body.nodes.size());
  const Values leaves = body.inputs();
  for (size_t i = 0; i < leaves.size(); ++i) made[slot(leaves[i].node)] = {inputs[i]};
  for (int32_t i = 0; i < body.size(); ++i) {
    const Node& n = body.node(i);
    if (!gone.moves(i) || n.op == &op::input) continue;
    Values in;
    for (Value v : n.in) in.push_back(made[slot(v.node)][slot(v.index)]);
    r.stamp(n);
    made[slot(i)] = b.clone(n, in);
  }
  Values out;
  for (Value v : gone.boundary()) out.push_back(made[slot(v.node)][slot(v.index)]);
  return out;
}

Types types_of(const Graph& g, Operands values) {
  Types out;
  for (Value v : values) out.push_back(g.type(v));
  return out;
}

// ---- loops

// Which inputs of a body no step changes: the last ones, and carries that it hands on as they are.
std::vector<bool> fixed_inputs(const Graph& body, int64_t carries, int64_t stacked) {
  const Values inputs = body.inputs();
  std::vector<bool> fixed(inputs.size(), true);
  for (int64_t i = 0; i < carries + stacked; ++i)
    fixed[slot(i)] = i < carries && body.outputs[slot(i)] == inputs[slot(i)];
  return fixed;
}

// A: ScanAttrs or ScanSnapshotsAttrs.
template <class A>
bool hoist_from_scan(Rebuild& r, int32_t i, const Node& n) {
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): the node may move while others are made
  const A s = n.get<A>();
  const Dim length(s.length);
  if (length.is_static() && length.value() < 2) return false;  // nothing is computed twice
  const Graph& body = *s.body;
  const Invariants gone(body, fixed_inputs(body, s.num_carries, s.num_xs), length.is_static());
  if (!gone.any()) return false;
  Builder& b = r.builder();
  A attrs = s;
  Values in(n.in);
  const Values more = made_outside(r, body, gone, in);
  in.insert(in.end(), more.begin(), more.end());
  attrs.body = Body(without(body, gone, {}, {}));
  b.set_origin(n.origin);
  r.replace(i, b.emit(*n.op, attrs, in));
  return true;
}

// The constants are the last inputs of both bodies.
bool hoist_from_sweep(Rebuild& r, int32_t i, const Node& n) {
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): the node may move while others are made
  const ScanSweepAttrs s = n.get<ScanSweepAttrs>();
  if (s.length < 2) return false;
  const int64_t before = s.num_carries + s.num_entering + s.num_xs + s.num_cotangents,
                constants = std::ssize(n.in) - before;
  const auto fixed = [&](const Graph& body) {
    std::vector<bool> out(body.inputs().size(), false);
    std::fill(out.end() - constants, out.end(), true);
    return out;
  };
  // The forward body may never run: there may be a snapshot of each step.
  const Invariants of_forward(*s.forward, fixed(*s.forward), false),
      of_back(*s.back, fixed(*s.back), true);
  if (!of_forward.any() && !of_back.any()) return false;
  Builder& b = r.builder();
  ScanSweepAttrs attrs = s;
  const auto outside = [&](const Graph& body, const Invariants& gone) {
    Values inputs(body.inputs().size(), kNone);
    std::copy(n.in.end() - constants, n.in.end(), inputs.end() - constants);
    return made_outside(r, body, gone, inputs);
  };
  Values in(n.in);
  const Values first = outside(*s.forward, of_forward), second = outside(*s.back, of_back);
  in.insert(in.end(), first.begin(), first.end());
  in.insert(in.end(), second.begin(), second.end());
  attrs.forward = Body(without(*s.forward, of_forward, {}, types_of(*s.back, of_back.boundary())));
  attrs.back = Body(without(*s.back, of_back, types_of(*s.forward, of_forward.boundary()), {}));
  b.set_origin(n.origin);
  r.replace(i, b.emit(*n.op, attrs, in));
  return true;
}

bool hoist_from_while(Rebuild& r, int32_t i, const Node& n) {
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): the node may move while others are made
  const WhileAttrs w = n.get<WhileAttrs>();
  if (w.max_iterations && *w.max_iterations < 2) return false;
  const std::vector<bool> fixed = fixed_inputs(*w.body, w.num_carries, 0);
  // The condition is asked at least once.
  const Invariants of_cond(*w.cond, fixed, true), of_body(*w.body, fixed, false);
  if (!of_cond.any() && !of_body.any()) return false;
  Builder& b = r.builder();
  WhileAttrs attrs = w;
  Values in(n.in);
  const Values first = made_outside(r, *w.cond, of_cond, n.in),
               second = made_outside(r, *w.body, of_body, n.in);
  in.insert(in.end(), first.begin(), first.end());
  in.insert(in.end(), second.begin(), second.end());
  attrs.cond = Body(without(*w.cond, of_cond, {}, types_of(*w.body, of_body.boundary())));
  attrs.body = Body(without(*w.body, of_body, types_of(*w.cond, of_cond.boundary()), {}));
  b.set_origin(n.origin);
  r.replace(i, b.emit(op::while_loop.def, attrs, in));
  return true;
}

Graph run_hoist_invariants(Graph&& g, const PassOptions&) {
  Rebuild r(std::move(g), "hoist_invariants");
  for (int32_t i = 0; i < r.size(); ++i) {
    const Node& n = r.node(i);
    const bool moved =
        (n.op == &op::scan && hoist_from_scan<ScanAttrs>(r, i, Node(n))) ||
        (n.op == &op::scan_snapshots && hoist_from_scan<ScanSnapshotsAttrs>(r, i, Node(n))) ||
        (n.op == &op::scan_sweep && hoist_from_sweep(r, i, Node(n))) ||
        (n.op == &op::while_loop && hoist_from_while(r, i, Node(n)));
    if (!moved) r.keep(i);
  }
  return r.finish();
}

}  // namespace

constinit const Pass pass::hoist_invariants{
    "hoist_invariants", "What no step of a scan or a while changes is computed once, before it.",
    run_hoist_invariants};

}  // namespace rlx
