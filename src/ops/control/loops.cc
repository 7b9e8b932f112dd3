#include "rlx/ops/control/loops.h"

#include <algorithm>

#include "rlx/ops/control/body_rules.h"
#include "rlx/ops/control/control.h"
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/reduce/reduce.h"

namespace rlx {
namespace {

Values inputs_for(Builder& b, const Graph& body) {
  Values out;
  for (Value v : body.inputs())
    out.push_back(b.input(fmt::format("x{}", out.size()), body.type(v)));
  return out;
}

// ---- while_loop

Types infer_while(const InferArgs& a) {
  const auto& w = a.get<WhileAttrs>();
  if (w.num_carries < 1 || w.num_carries > static_cast<int64_t>(a.in.size()))
    bad_operands(a, "while-operands",
                 fmt::format("{} carries do not fit {} operands; at least one is wanted",
                             w.num_carries, a.in.size()));
  if (w.max_iterations && *w.max_iterations < 0)
    bad_operands(a, "while-iterations",
                 fmt::format("max_iterations cannot be {}", *w.max_iterations));
  check_body_inputs(a, "condition", *w.cond, a.in);
  check_body_inputs(a, "body", *w.body, a.in);
  const Types predicate = w.cond->output_types();
  if (predicate.size() != 1 || !(predicate[0] == Type{DType::Bool, {}}))
    bad_operands(a, "body-outputs",
                 fmt::format("the condition must return one bool of rank 0, not [{}]",
                             fmt::join(predicate, ", ")));
  const Types carries(a.in.begin(), a.in.begin() + w.num_carries);
  if (w.body->output_types() != carries)
    bad_operands(a, "body-outputs",
                 fmt::format("the carries are [{}] but the body returns [{}]",
                             fmt::join(carries, ", "), fmt::join(w.body->output_types(), ", ")));
  return carries;
}

Tensors eval_while(const EvalArgs& e) {
  const auto& w = e.get<WhileAttrs>();
  Tensors state(e.in.begin(), e.in.end());
  for (int64_t i = 0; !w.max_iterations || i < *w.max_iterations; ++i) {
    if (!e.evaluate(*w.cond, state)[0].get_int(0)) break;
    const Tensors next = e.evaluate(*w.body, state);
    std::copy(next.begin(), next.end(), state.begin());
  }
  state.resize(at(w.num_carries));
  return state;
}

// A body that binds some inputs of its own and passes all to `inner`, in the order `picks` says.
Body rewired(const Graph& inner, const Types& types, const std::vector<size_t>& picks) {
  Builder b(inner.name);
  Values in, bound;
  for (const Type& t : types) in.push_back(b.input(fmt::format("x{}", in.size()), t));
  for (size_t i : picks) bound.push_back(in[i]);
  for (Value v : b.inline_graph(inner, bound)) b.output(v);
  return b.finish();
}

// The loop over (carries, tangents). A carry has a tangent when its first value has one or the body
// gives it one.
Values jvp_while(Builder& b, const JvpArgs& a) {
  const auto& w = a.node.get<WhileAttrs>();
  const size_t carries = at(w.num_carries), operands = a.in.size();
  Flags has = valid_flags(a.tangents);
  BodyJvp step;
  for (bool grew = true; grew;) {
    grew = false;
    step = transforms(a.bodies, a.node).jvp(*w.body, has);
    for (size_t i = 0; i < carries; ++i)
      if (step.has_tangent[i] && !has[i]) has[i] = grew = true;
  }
  // Operands of the new loop: carries, their tangents, constants, their tangents.
  Values in;
  Types types;
  std::vector<size_t> place(operands), tangent_place(operands);
  auto add = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      place[i] = in.size();
      in.push_back(a.in[i]);
    }
    for (size_t i = begin; i < end; ++i)
      if (has[i]) {
        tangent_place[i] = in.size();
        in.push_back(or_zeros(b, a.tangents[i], derivative_type(b.type(a.in[i]))));
      }
    return static_cast<int64_t>(in.size());
  };
  WhileAttrs attrs = w;
  attrs.num_carries = add(0, carries);
  add(carries, operands);
  for (Value v : in) types.push_back(b.type(v));
  attrs.cond = rewired(*w.cond, types, place);

  Builder inner(w.body->name + "_jvp");
  Values leaves, bound;
  for (const Type& t : types) leaves.push_back(inner.input(fmt::format("x{}", leaves.size()), t));
  for (size_t i = 0; i < operands; ++i) bound.push_back(leaves[place[i]]);
  for (size_t i = 0; i < operands; ++i)
    if (has[i]) bound.push_back(leaves[tangent_place[i]]);
  const Values results = inner.inline_graph(step.graph, bound);
  for (size_t i = 0; i < carries; ++i) inner.output(results[i]);
  for (size_t i = 0, next = carries; i < carries; ++i) {
    const Value t = step.has_tangent[i] ? results[next++] : kNone;
    if (has[i]) inner.output(or_zeros(inner, t, derivative_type(types[place[i]])));
  }
  attrs.body = inner.finish();
  const Values looped = b.emit(*a.node.op, attrs, in);
  Values out(carries, kNone);
  for (size_t i = 0; i < carries; ++i)
    if (has[i]) out[i] = looped[tangent_place[i]];
  return out;
}

// The same loop as max_iterations steps of a scan, each of which runs the body only while the
// condition holds.
Graph bounded_loop(const WhileAttrs& w, std::span<const Type> types) {
  Types inner_types{{DType::Bool, {}}};
  inner_types.insert(inner_types.end(), types.begin(), types.end());
  Builder step("step");
  Values in;
  for (const Type& t : inner_types) in.push_back(step.input(fmt::format("x{}", in.size()), t));
  const Values operands(in.begin() + 1, in.end());
  const Value active = op::logical_and(step, in[0], step.inline_graph(*w.cond, operands)[0]);
  Builder keep("keep");
  const Values kept = inputs_for(keep, *w.body);
  for (int64_t i = 0; i < w.num_carries; ++i) keep.output(kept[at(i)]);
  Values arguments{active};
  arguments.insert(arguments.end(), operands.begin(), operands.end());
  step.output(active);
  for (Value v : step.emit(op::cond.def, CondAttrs{w.body, keep.finish()}, arguments))
    step.output(v);

  Builder b("loop");
  Values leaves;
  for (const Type& t : types) leaves.push_back(b.input(fmt::format("x{}", leaves.size()), t));
  Values scanned{b.constant(Tensor::scalar(DType::Bool, 1))};
  scanned.insert(scanned.end(), leaves.begin(), leaves.end());
  ScanAttrs s{.body = step.finish(), .length = *w.max_iterations, .num_carries = w.num_carries + 1};
  const Values out = b.emit(op::scan.def, s, scanned);
  for (int64_t i = 1; i <= w.num_carries; ++i) b.output(out[at(i)]);
  return b.finish();
}

Values vjp_while(Builder& b, const VjpArgs& a) {
  const auto& w = a.node.get<WhileAttrs>();
  user_check(
      w.max_iterations.has_value(), "no-gradient",
      "while_loop: reverse mode keeps every step's carries and needs max_iterations; forward "
      "mode does not");
  Types types;
  Flags wanted = a.wanted;
  for (size_t i = 0; i < a.in.size(); ++i) {
    types.push_back(b.type(a.in[i]));
    if (!may_carry(types.back().dtype)) wanted[i] = false;
  }
  Values out(a.in.size(), kNone), in(a.in.begin(), a.in.end());
  if (!any(wanted)) return out;
  append_valid(in, a.cotangents);
  const Graph sweep =
      transforms(a.bodies, a.node).vjp(bounded_loop(w, types), wanted, valid_flags(a.cotangents));
  const Values grads = b.inline_graph(sweep, in);
  for (size_t i = 0, next = 0; i < out.size(); ++i)
    if (wanted[i]) out[i] = grads[next++];
  return out;
}

// x, where the elements that do not go on have the values of the first one that does: some step goes on with them.
Value of_those_that_go_on(Builder& b, Value x, Value goes_on, const Dim& size) {
  const Value first = op::argmax(b, cast_to(b, goes_on, DType::I32), {.axis = 0});
  const Value other = op::gather(b, x, first, {.axis = 0});
  Shape shape(b.shape(x).size(), Dim(1));
  shape[0] = size;
  return op::select(b, reshape_to(b, goes_on, shape), x, batch_operand(b, other, size));
}

// One condition for all elements: a loop of the batched body. A condition per element: the loop goes
// on while any holds, and elements whose condition is false keep their carries; the body does not see them, as they may be
// what it cannot be run on (an index behind the end, a singular matrix).
Values vmap_while(Builder& b, const VmapArgs& a) {
  const auto& w = a.node.get<WhileAttrs>();
  const size_t carries = at(w.num_carries);
  const BodyTransforms& t = transforms(a.bodies, a.node);
  Flags batched = a.batched;
  BodyVmap step, test;
  for (bool grew = true; grew;) {
    grew = false;
    const Flags force(batched.begin(), batched.begin() + w.num_carries);
    test = t.vmap(*w.cond, batched, a.size, {false});
    step = t.vmap(*w.body, batched, a.size, force);
    for (size_t i = 0; i < carries; ++i)
      if ((step.batched[i] || test.batched[0]) && !batched[i]) batched[i] = grew = true;
  }
  Values in(a.in.begin(), a.in.end());
  for (size_t i = 0; i < carries; ++i)
    if (batched[i] && !a.batched[i]) in[i] = batch_operand(b, in[i], a.size);
  WhileAttrs attrs = w;
  if (test.batched[0]) {
    Builder some("any"), masked(w.body->name);
    const Value each = some.inline_graph(test.graph, inputs_for(some, test.graph))[0];
    some.output(op::gt(some, op::reduce_max(some, cast_to(some, each, DType::I32), {.axes = {0}}),
                       some.constant(Tensor::scalar(DType::I32, 0))));
    const Values now = inputs_for(masked, step.graph);
    const Value goes_on = masked.inline_graph(test.graph, now)[0];
    Values seen = now;
    for (size_t i = 0; i < seen.size(); ++i)
      if (batched[i] && a.size != Dim(0))  // of none, none goes on
        seen[i] = of_those_that_go_on(masked, now[i], goes_on, a.size);
    const Values next = masked.inline_graph(step.graph, seen);
    for (size_t i = 0; i < carries; ++i) {
      Shape shape(masked.shape(now[i]).size(), Dim(1));
      shape[0] = a.size;
      masked.output(op::select(masked, reshape_to(masked, goes_on, shape), next[i], now[i]));
    }
    attrs.cond = some.finish();
    attrs.body = masked.finish();
  } else {
    attrs.cond = std::move(test.graph);
    attrs.body = std::move(step.graph);
  }
  Values out = b.emit(*a.node.op, attrs, in);
  for (size_t i = 0; i < carries; ++i)
    if (!batched[i]) out[i] = batch_operand(b, out[i], a.size);
  return out;
}

// ---- custom_fn

bool is_given(const Body& body) { return !body->outputs.empty(); }

std::string_view leaf_name(const Graph& g, Value v) { return g.node(v).get<LeafAttrs>().name; }

// The inputs of a derivative body: operands in order, then what the named ones ask for; without
// reserved names all of `extra` in order.
struct NamedValues {
  std::map<std::string, Value> named;
  Values extra;
};

Values bind_named(const Graph& body, Operands in, const NamedValues& v) {
  const auto& [named, extra] = v;
  Values out;
  size_t next = 0;
  bool uses_names = false;
  for (Value v : body.inputs()) uses_names |= named.contains(std::string(leaf_name(body, v)));
  for (Value v : body.inputs()) {
    const auto match = named.find(std::string(leaf_name(body, v)));
    if (match != named.end())
      out.push_back(match->second);
    else if (next < in.size())
      out.push_back(in[next++]);
    else if (!uses_names && next - in.size() < extra.size())
      out.push_back(extra[next++ - in.size()]);
    else
      break;
  }
  return out;
}

NamedValues reverse_values(Operands results, Operands cotangents) {
  NamedValues out{{}, Values(results.begin(), results.end())};
  out.extra.insert(out.extra.end(), cotangents.begin(), cotangents.end());
  for (size_t i = 0; i < results.size(); ++i) {
    out.named[fmt::format("primal_output_{}", i)] = results[i];
    out.named[fmt::format("d_output_{}", i)] = cotangents[i];
  }
  out.named["primal_output"] = results[0];
  out.named["d_output"] = cotangents[0];
  return out;
}

NamedValues forward_values(Operands results, Operands tangents) {
  NamedValues out{{}, Values(tangents.begin(), tangents.end())};
  for (size_t i = 0; i < tangents.size(); ++i)
    out.named[fmt::format("tangent_{}", i)] = tangents[i];
  out.named["primal_output"] = results[0];
  return out;
}

// Checks a derivative body by binding it to values of the right types.
void check_derivative(const InferArgs& a, std::string_view what, const Graph& body,
                      const Types& results, bool reverse) {
  Builder b("check");
  Values in, outs, directions;
  auto leaf = [&](const Type& t) { return b.input(fmt::format("v{}", b.graph().size()), t); };
  for (const Type& t : a.in) in.push_back(leaf(t));
  for (const Type& t : results) outs.push_back(leaf(t));
  const Types span(a.in.begin(), a.in.end());
  for (const Type& t : reverse ? results : span) directions.push_back(leaf(t));
  const NamedValues v =
      reverse ? reverse_values(outs, directions) : forward_values(outs, directions);
  const Values bound = bind_named(body, in, v);
  const Values inputs = body.inputs();
  if (bound.size() != inputs.size())
    bad_operands(
        a, "custom-fn",
        fmt::format("the {} takes {} inputs; operands, results and {} are {}", what, inputs.size(),
                    reverse ? "cotangents" : "tangents", a.in.size() + v.extra.size()));
  for (size_t i = 0; i < bound.size(); ++i)
    if (!(body.type(inputs[i]) == b.type(bound[i])))
      bad_operands(a, "custom-fn",
                   fmt::format("input {} of the {} is {} but would be given {}", i, what,
                               body.type(inputs[i]), b.type(bound[i])));
  const Types expected = reverse ? span : results;
  if (body.output_types() != expected)
    bad_operands(a, "custom-fn",
                 fmt::format("the {} returns [{}] where [{}] is wanted", what,
                             fmt::join(body.output_types(), ", "), fmt::join(expected, ", ")));
}

Types infer_custom_fn(const InferArgs& a) {
  const auto& c = a.get<CustomFnAttrs>();
  check_body_inputs(a, "function", *c.fwd, a.in);
  const Types results = c.fwd->output_types();
  if (results.empty()) bad_operands(a, "body-outputs", "the function returns nothing");
  if (is_given(c.vjp)) check_derivative(a, "vjp body", *c.vjp, results, true);
  if (is_given(c.jvp)) check_derivative(a, "jvp body", *c.jvp, results, false);
  return results;
}

// What stated derivatives are given; those by integers are zeros of the integers.
Values zeros_for_none(Builder& b, Operands values, Operands like) {
  Values out;
  for (size_t i = 0; i < values.size(); ++i) {
    const Type type = b.type(like[i]);
    out.push_back(or_zeros(b, is_differentiable(type.dtype) ? values[i] : kNone, type));
  }
  return out;
}

Values jvp_custom_fn(Builder& b, const JvpArgs& a) {
  const auto& c = a.node.get<CustomFnAttrs>();
  if (is_given(c.jvp)) {
    const NamedValues v = forward_values(a.out, zeros_for_none(b, a.tangents, a.in));
    Values out = b.inline_graph(*c.jvp, bind_named(*c.jvp, a.in, v));
    for (size_t i = 0; i < out.size(); ++i)
      if (!is_differentiable(a.node.out[i].dtype)) out[i] = kNone;
    return out;
  }
  const BodyJvp derivative = transforms(a.bodies, a.node).jvp(*c.fwd, valid_flags(a.tangents));
  Values in(a.in.begin(), a.in.end());
  append_valid(in, a.tangents);
  const Values results = b.inline_graph(derivative.graph, in);
  Values out(a.node.out.size(), kNone);
  for (size_t i = 0, next = out.size(); i < out.size(); ++i)
    if (derivative.has_tangent[i]) out[i] = results[next++];
  return out;
}

Values vjp_custom_fn(Builder& b, const VjpArgs& a) {
  const auto& c = a.node.get<CustomFnAttrs>();
  if (!is_given(c.vjp)) return {};
  const NamedValues v = reverse_values(a.out, zeros_for_none(b, a.cotangents, a.out));
  Values out = b.inline_graph(*c.vjp, bind_named(*c.vjp, a.in, v));
  for (size_t i = 0; i < out.size(); ++i)
    if (!is_differentiable(b.type(a.in[i]).dtype)) out[i] = kNone;
  return out;
}

// The batched form of a body, every input and output batched, with the names of its inputs kept.
Body batched_body(const BodyTransforms& t, const Graph& body, const Dim& size) {
  const BodyVmap v =
      t.vmap(body, Flags(body.inputs().size(), true), size, Flags(body.outputs.size(), true));
  Builder b(body.name);
  Values in;
  const Values names = body.inputs(), inputs = v.graph.inputs();
  for (size_t i = 0; i < inputs.size(); ++i)
    in.push_back(b.input(std::string(leaf_name(body, names[i])), v.graph.type(inputs[i])));
  for (Value out : b.inline_graph(v.graph, in)) b.output(out);
  return b.finish();
}

Values vmap_custom_fn(Builder& b, const VmapArgs& a) {
  const auto& c = a.node.get<CustomFnAttrs>();
  const BodyTransforms& t = transforms(a.bodies, a.node);
  Values in;
  for (size_t i = 0; i < a.in.size(); ++i)
    in.push_back(a.batched[i] ? a.in[i] : batch_operand(b, a.in[i], a.size));
  CustomFnAttrs attrs{batched_body(t, *c.fwd, a.size), {}, {}};
  if (is_given(c.vjp)) attrs.vjp = batched_body(t, *c.vjp, a.size);
  if (is_given(c.jvp)) attrs.jvp = batched_body(t, *c.jvp, a.size);
  return b.emit(*a.node.op, attrs, in);
}

// ---- scan_checkpointed

void check_checkpoints(const InferArgs& a, int64_t length, int64_t checkpoints) {
  if (length < 0) bad_operands(a, "scan-length", fmt::format("the length cannot be {}", length));
  if (checkpoints < 0 || checkpoints > length)
    bad_operands(
        a, "scan-checkpoints",
        fmt::format("{} checkpoints; 0 to the length {} are allowed", checkpoints, length));
}

// A scan of one carry over its operands: init, constants, stacked inputs of `length` rows.
Value plain_scan(Builder& b, const Body& body, int64_t length, int64_t constants,
                 int64_t checkpoints, Operands in) {
  // scan has the constants last: the body's inputs are put in that order.
  Types types;
  std::vector<size_t> picks{0};
  const Values inputs = body->inputs();
  const size_t xs = inputs.size() - 1 - at(constants);
  for (size_t i = 0; i < at(constants); ++i) picks.push_back(1 + xs + i);
  for (size_t i = 0; i < xs; ++i) picks.push_back(1 + i);
  types.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) types[picks[i]] = body->type(inputs[i]);
  Values operands{in[0]};
  operands.insert(operands.end(), in.begin() + 1 + constants, in.end());
  operands.insert(operands.end(), in.begin() + 1, in.begin() + 1 + constants);
  return b.emit(op::scan.def,
                ScanAttrs{.body = rewired(*body, types, picks),
                          .length = length,
                          .num_carries = 1,
                          .num_xs = static_cast<int64_t>(xs),
                          .checkpoints = checkpoints},
                operands)[0];
}

Types infer_scan_checkpointed(const InferArgs& a) {
  const auto& s = a.get<ScanCheckpointedAttrs>();
  check_checkpoints(a, s.length, s.num_checkpoints);
  if (s.num_bcast < 0 || s.num_bcast + 1 > static_cast<int64_t>(a.in.size()))
    bad_operands(a, "scan-operands",
                 fmt::format("{} constants do not fit {} operands", s.num_bcast, a.in.size()));
  Types given(a.in.begin(), a.in.end());
  for (size_t i = 1 + at(s.num_bcast); i < given.size(); ++i) {
    if (given[i].rank() == 0 || !(given[i].shape[0] == Dim(s.length)))
      bad_operands(a, "scan-length",
                   fmt::format("{} is stacked and must be [{}, ..] but is {}", a.name(i), s.length,
                               given[i]));
    given[i].shape = without_front(given[i].shape);
  }
  check_body_inputs(a, "body", *s.body, given);
  if (s.body->output_types() != Types{given[0]})
    bad_operands(a, "body-outputs",
                 fmt::format("the carry is {} but the body returns [{}]", given[0],
                             fmt::join(s.body->output_types(), ", ")));
  return {given[0]};
}

// Rows [begin, end) of a stacked value.
Value rows(Builder& b, Value x, int64_t begin, int64_t end) {
  const Shape shape = b.shape(x);
  SliceAttrs s{Shape(shape.size(), Dim(0)), shape};
  s.start[0] = begin;
  s.limit[0] = end;
  return op::slice(b, x, s);
}

Values decompose_scan_checkpointed(Builder& b, const Node& n, Operands in) {
  const auto& s = n.get<ScanCheckpointedAttrs>();
  return {plain_scan(b, s.body, s.length, s.num_bcast, s.num_checkpoints, in)};
}

// ---- scan_backward

bool is_thinned(const ScanBackwardAttrs& s) {
  return s.num_checkpoints > 0 && s.num_checkpoints < s.length;
}

Types infer_scan_backward(const InferArgs& a) {
  const auto& s = a.get<ScanBackwardAttrs>();
  check_checkpoints(a, s.length, s.num_checkpoints);
  const Type& carry = a.in[0];
  const Type full{carry.dtype, with_front(s.length, carry.shape)};
  const Type kept{carry.dtype,
                  with_front(is_thinned(s) ? s.num_checkpoints : s.length, carry.shape)};
  if (!(a.in[1] == kept))
    bad_operands(a, "scan-operands", fmt::format("the trajectory must be {}", kept));
  if (!(a.in[2] == (s.save_trajectory ? full : carry)))
    bad_operands(a, "scan-operands",
                 fmt::format("upstream must be {}", s.save_trajectory ? full : carry));
  Types slices{carry};
  for (size_t i = 3; i < a.in.size(); ++i) {
    if (a.in[i].rank() == 0 || !(a.in[i].shape[0] == Dim(s.length)))
      bad_operands(a, "scan-length",
                   fmt::format("{} is stacked and must be [{}, ..] but is {}", a.name(i), s.length,
                               a.in[i]));
    slices.push_back({a.in[i].dtype, without_front(a.in[i].shape)});
  }
  if (is_thinned(s)) {
    if (!is_given(s.forward_body))
      bad_operands(a, "scan-checkpoints", "a thinned trajectory needs forward_body");
    check_body_inputs(a, "forward body", *s.forward_body, slices);
  }
  const Types got = s.body_vjp->output_types();
  if (got != slices)
    bad_operands(a, "body-outputs",
                 fmt::format("body_vjp returns [{}] where [{}] is wanted", fmt::join(got, ", "),
                             fmt::join(slices, ", ")));
  if (s.body_vjp->inputs().size() != slices.size() + 1 ||
      !s.body_vjp->find_leaf("d_output").valid())
    bad_operands(a, "body-inputs",
                 "body_vjp takes the carry, a slice of each stacked input and "
                 "\"d_output\"");
  return {carry};
}

Types infer_scan_backward_xs(const InferArgs& a) {
  infer_scan_backward(a);
  const int64_t index = a.get<ScanBackwardAttrs>().xs_index;
  if (index < 0 || index + 3 >= static_cast<int64_t>(a.in.size()))
    bad_operands(a, "scan-operands", fmt::format("there is no stacked input {}", index));
  return {a.in[at(index + 3)]};
}

// The carries that enter the steps [begin, end): a scan of the forward body that stacks them.
Value entering(Builder& b, const Body& forward, Value carry, int64_t begin, int64_t end,
               Operands xs) {
  Builder inner("entering");
  const Values in = inputs_for(inner, *forward);
  inner.output(inner.inline_graph(*forward, in)[0]);
  inner.output(in[0]);
  Values operands{carry};
  for (Value x : xs) operands.push_back(rows(b, x, begin, end));
  return b.emit(op::scan.def,
                ScanAttrs{.body = inner.finish(),
                          .length = end - begin,
                          .num_carries = 1,
                          .num_xs = static_cast<int64_t>(xs.size())},
                operands)[1];
}

struct Sweep {
  Value dcarry;
  Values dxs;  // stacked
};

// The reverse sweep over the steps [begin, end), given the carries that enter them.
Sweep sweep_back(Builder& b, const ScanBackwardAttrs& s, Value carries, Value dcarry,
                 Value upstream, int64_t begin, int64_t end, Operands xs) {
  Builder inner("back");
  const Type carry = b.type(dcarry);
  const Value d = inner.input("d", carry), c = inner.input("c", carry);
  Value total = d;
  Values operands{dcarry, carries}, slices;
  if (s.save_trajectory) {
    total = op::add(inner, d, inner.input("u", carry));
    operands.push_back(rows(b, upstream, begin, end));
  }
  for (Value x : xs) {
    const Type t = b.type(x);
    slices.push_back(
        inner.input(fmt::format("x{}", slices.size()), {t.dtype, without_front(t.shape)}));
    operands.push_back(rows(b, x, begin, end));
  }
  Values bound;
  size_t next = 0;
  for (Value v : s.body_vjp->inputs()) {
    if (leaf_name(*s.body_vjp, v) == "d_output")
      bound.push_back(total);
    else
      bound.push_back(next++ == 0 ? c : slices[next - 2]);
  }
  for (Value v : inner.inline_graph(*s.body_vjp, bound)) inner.output(v);
  const Values out = b.emit(op::scan.def,
                            ScanAttrs{.body = inner.finish(),
                                      .length = end - begin,
                                      .num_carries = 1,
                                      .num_xs = static_cast<int64_t>(operands.size()) - 1,
                                      .reverse = true},
                            operands);
  return {out[0], Values(out.begin() + 1, out.end())};
}

// init stacked in front of the carries after all steps but the last.
Value shifted(Builder& b, Value init, Value trajectory, int64_t length) {
  const Value first = reshape_to(b, init, with_front(1, b.shape(init)));
  return op::concat(b, {first, rows(b, trajectory, 0, length - 1)}, {.axis = 0});
}

Sweep whole_sweep(Builder& b, const ScanBackwardAttrs& s, Operands in) {
  const Operands xs = in.subspan(3);
  const Value zero = full(b, b.type(in[0]), 0), start = s.save_trajectory ? zero : in[2];
  if (s.length == 0) return {start, Values(xs.begin(), xs.end())};
  if (!is_thinned(s))
    return sweep_back(b, s, shifted(b, in[0], in[1], s.length), start, in[2], 0, s.length, xs);
  const Ints kept = checkpoint_steps(s.length, s.num_checkpoints);
  Sweep out{start, {}};
  std::vector<Values> parts(xs.size());
  for (size_t k = kept.size(); k-- > 0;) {
    const int64_t begin = k == 0 ? 0 : kept[k - 1] + 1, end = kept[k] + 1;
    Value carry = in[0];
    if (k > 0) {
      const auto row = static_cast<int64_t>(k - 1);
      carry = reshape_to(b, rows(b, in[1], row, row + 1), Shape(b.shape(in[0])));
    }
    const Value carries = entering(b, s.forward_body, carry, begin, end, xs);
    const Sweep part = sweep_back(b, s, carries, out.dcarry, in[2], begin, end, xs);
    out.dcarry = part.dcarry;
    for (size_t i = 0; i < parts.size(); ++i) parts[i].insert(parts[i].begin(), part.dxs[i]);
  }
  for (const Values& p : parts)
    out.dxs.push_back(emit_one(b, op::concat.def, AxisAttrs{.axis = 0}, p));
  return out;
}

Values decompose_scan_backward(Builder& b, const Node& n, Operands in) {
  return {whole_sweep(b, n.get<ScanBackwardAttrs>(), in).dcarry};
}

Values decompose_scan_backward_xs(Builder& b, const Node& n, Operands in) {
  const auto& s = n.get<ScanBackwardAttrs>();
  return {whole_sweep(b, s, in).dxs[at(s.xs_index)]};
}

}  // namespace

Ints checkpoint_steps(int64_t length, int64_t checkpoints) {
  Ints out;
  for (int64_t k = 0; k < checkpoints; ++k)
    out.push_back(
        std::min(ceil_div(mul_or_fail(k + 1, length, "checkpoints"), checkpoints), length) - 1);
  return out;
}

namespace op {

constinit const Op<WhileAttrs> while_loop = OpDef{
    .name = "while_loop",
    .doc =
        "Runs the body on the carries while the condition holds, at most max_iterations times. "
        "Operands: "
        "carries, constants; both bodies take all of them. Results: the carries at the end. "
        "Reverse mode "
        "needs max_iterations, as it keeps the carries of every step; forward mode does not. Under "
        "vmap the "
        "loop runs until no element goes on.",
    .reference = "While",
    .kind = Kind::control,
    .arity = kVariadic,
    .min_arity = 1,
    .operands = "xs..",
    .variadic_results = true,
    .passes_codes = true,
    .infer = infer_while,
    .eval = eval_while,
    .jvp = jvp_while,
    .vjp = vjp_while,
    .vmap = vmap_while,
    .cost =
        [](const Node& n, std::span<const Type>) {
          const auto& a = n.get<WhileAttrs>();
          if (!a.max_iterations) return std::numeric_limits<double>::infinity();
          return 1 + static_cast<double>(*a.max_iterations) *
                         (evaluation_cost(*a.cond) + evaluation_cost(*a.body));
        },
};

constinit const Op<CustomFnAttrs> custom_fn = OpDef{
    .name = "custom_fn",
    .doc =
        "The function `fwd` of the operands, with derivatives as the bodies `vjp` and `jvp` state "
        "them; without "
        "one, `fwd` is differentiated. vmap keeps the stated derivatives.",
    .reference = "CustomFn",
    .arity = kVariadic,
    .operands = "xs..",
    .variadic_results = true,
    .passes_codes = true,
    .infer = infer_custom_fn,
    .decompose = [](Builder& b, const Node& n, Operands in) -> Values {
      return b.inline_graph(*n.get<CustomFnAttrs>().fwd, in);
    },
    .jvp = jvp_custom_fn,
    .vjp = vjp_custom_fn,
    .vmap = vmap_custom_fn,
};

constinit const Op<ScanCheckpointedAttrs> scan_checkpointed = OpDef{
    .name = "scan_checkpointed",
    .doc =
        "The last carry of a scan (init, num_bcast constants, stacked inputs) whose reverse sweep "
        "keeps "
        "num_checkpoints carries between segments and computes the others again; 0 keeps all.",
    .reference = "Scan",
    .arity = kVariadic,
    .min_arity = 1,
    .operands = "init, xs..",
    .infer = infer_scan_checkpointed,
    .decompose = decompose_scan_checkpointed,
};

constinit const Op<ScanBackwardAttrs> scan_backward = OpDef{
    .name = "scan_backward",
    .doc =
        "The reverse sweep of a scan of one carry: the cotangent of init from init, the "
        "trajectory, the "
        "cotangent of the last carry (with save_trajectory: of every carry) and the stacked "
        "inputs.",
    .reference = "ScanBackward",
    .arity = kVariadic,
    .min_arity = 3,
    .operands = "init, trajectory, upstream, xs..",
    .dtypes = kInexact,
    .infer = infer_scan_backward,
    .decompose = decompose_scan_backward,
};

constinit const Op<ScanBackwardAttrs> scan_backward_xs = OpDef{
    .name = "scan_backward_xs",
    .doc =
        "The reverse sweep of a scan of one carry: the cotangents of the stacked input xs_index, "
        "stacked.",
    .reference = "ScanBackwardXs",
    .arity = kVariadic,
    .min_arity = 4,
    .operands = "init, trajectory, upstream, xs..",
    .dtypes = kInexact,
    .infer = infer_scan_backward_xs,
    .decompose = decompose_scan_backward_xs,
};

}  // namespace op

namespace {
constexpr const OpDef* kLoopsOps[] = {&op::while_loop, &op::custom_fn, &op::scan_checkpointed,
                                      &op::scan_backward, &op::scan_backward_xs};
}  // namespace
constinit const Family kLoops{"loops", kLoopsOps};

}  // namespace rlx
