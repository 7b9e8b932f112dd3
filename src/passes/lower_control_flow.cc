// Lowerings by name: control flow to selections, dot_general to matmul, broadcasts made explicit.
#include "rlx/ops/control/loops.h"
#include "rlx/ops/core.h"
#include "rlx/ops/rules.h"
#include "rlx/passes/named_passes.h"
#include "rlx/passes/passes.h"

namespace rlx {

namespace {

Values select_each(Builder& b, Value predicate, Operands yes, Operands no) {
  Values out;
  for (size_t i = 0; i < yes.size(); ++i) out.push_back(op::select(b, predicate, yes[i], no[i]));
  return out;
}

Values both_branches(Builder& b, const Node& n, Operands in) {
  const auto& c = n.get<CondAttrs>();
  const Operands arguments = in.subspan(1);
  const Values yes = b.inline_graph(*c.then_body, arguments),
               no = b.inline_graph(*c.else_body, arguments);
  return select_each(b, in[0], yes, no);
}

// The steps that a loop may take, each chosen while the condition holds.
Values unrolled(Builder& b, const Node& n, Operands in, int32_t i) {
  const auto& w = n.get<WhileAttrs>();
  user_check(w.max_iterations.has_value(), "while-unbounded",
             "unroll_while: %{} while_loop has no bound; say max_iterations, or run it as a loop",
             i);
  const int64_t each = w.cond->size() + w.body->size() + w.num_carries;
  if (*w.max_iterations > kMaxUnrolled / std::max<int64_t>(each, 1))
    fail(ErrorKind::unsupported, "unroll-size",
         "unroll_while: %{} while_loop of {} steps of {} nodes; at most {} nodes are made", i,
         *w.max_iterations, each, kMaxUnrolled);
  const size_t carries = at(w.num_carries);
  Values now(in.begin(), in.end());
  for (int64_t step = 0; step < *w.max_iterations; ++step) {
    // Once it is false the carries stay, and so it stays false.
    const Value holds = b.inline_graph(*w.cond, now)[0];
    const Values next = b.inline_graph(*w.body, now);
    const Values chosen = select_each(b, holds, next, Operands(now).first(carries));
    std::copy(chosen.begin(), chosen.end(), now.begin());
  }
  now.resize(carries);
  return now;
}

using Expansion = FunctionRef<Values(Builder&, const Node&, Operands, int32_t)>;

bool has_op(const Graph& g, const OpDef& op) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [&](const Node& n) {
    if (n.op == &op) return true;
    const auto inside = bodies(n.attrs);
    return std::any_of(inside.begin(), inside.end(),
                       [&](const NamedBody& body) { return has_op(body.graph, op); });
  });
}

// Every node of the op, innermost first.
Graph expand_each(const Graph& g, const OpDef& op, std::string_view pass, Expansion expand) {
  if (!has_op(g, op)) return g;
  return rebuild(g, [&](Builder& b, int32_t i, Operands in) -> Values {
    Node n = g.node(i);
    n.attrs = map_bodies(
        n.attrs, [&](const Body& body) { return Body(expand_each(*body, op, pass, expand)); });
    if (n.op != &op) return b.clone(n, in);
    b.set_pass(std::string(pass));
    return expand(b, n, in, i);
  });
}

constexpr PassArgument kControlArguments[] = {
    {"unbounded", "what a while without a bound meets: refuse (the default), or keep"}};

// ---- broadcasts

// Whether a kernel that counts modulo the operand's size finds the right elements.
bool lines_up(const Type& operand, const Type& result) {
  if (operand.shape == result.shape || operand.shape.elements() == Dim(1)) return true;
  return operand.shape.size() <= result.shape.size() &&
         std::equal(operand.shape.rbegin(), operand.shape.rend(), result.shape.rbegin());
}

}  // namespace

Graph inline_if(const Graph& g) {
  return expand_each(
      g, op::cond.def, "lower_control_flow",
      [](Builder& b, const Node& n, Operands in, int32_t) { return both_branches(b, n, in); });
}

Graph unroll_while(const Graph& g, bool keep_unbounded) {
  return expand_each(g, op::while_loop.def, "lower_control_flow",
                     [&](Builder& b, const Node& n, Operands in, int32_t i) {
                       const bool stays = keep_unbounded && !n.get<WhileAttrs>().max_iterations;
                       return stays ? b.clone(n, in) : unrolled(b, n, in, i);
                     });
}

std::pair<Graph, ResultMap<Values>> legalize_broadcast_with_map(const Graph& g) {
  ResultMap<Values> map(g);
  Graph out = rebuild(g, [&](Builder& b, int32_t i, Operands given) {
    const Node& n = g.node(i);
    Values in(given.begin(), given.end());
    if (n.op->kind == Kind::elementwise)
      for (Value& v : in)
        if (!lines_up(b.type(v), n.type())) {
          b.set_pass("legalize_broadcast");
          v = broadcast_to(b, v, n.type().shape);
        }
    b.set_origin(n.origin);
    return map[i] = b.clone(n, in);
  });
  return {std::move(out), std::move(map)};
}

constinit const Pass pass::lower_control_flow{
    .name = "lower_control_flow",
    .doc = "cond becomes a selection of both bodies' results, while its bound's number of steps.",
    .run =
        [](Graph&& g, const PassOptions& o) {
          const std::string unbounded = o.argument("unbounded", "refuse");
          user_check(unbounded == "refuse" || unbounded == "keep", "pass-option",
                     "lower_control_flow: unbounded is refuse or keep, not {}", quote(unbounded));
          return unroll_while(inline_if(g), unbounded == "keep");
        },
    .in_bodies = false,
    .arguments = kControlArguments};

constinit const Pass pass::lower_dot_general{
    "lower_dot_general", "dot_general becomes transposes, reshapes and matmul.",
    [](Graph&& g, const PassOptions&) {
      return decompose_composites(
          std::move(g), "lower_dot_general",
          [](const Node& n, const Graph&) { return n.op != &op::dot_general; });
    }};

constinit const Pass pass::legalize_broadcast{
    "legalize_broadcast",
    "Operands of elementwise ops that are neither whole, one element nor last axes are broadcast.",
    [](Graph&& g, const PassOptions&) { return legalize_broadcast_with_map(g).first; }};

}  // namespace rlx
