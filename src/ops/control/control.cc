// Control flow: scan and cond. Their derivative and batching rules transform the bodies through
// control_hooks.h.
#include "rlx/ops/control/control.h"

#include <algorithm>
#include <cstring>

#include "rlx/ops/control/body_rules.h"
#include "rlx/ops/control/scan_checkpoints.h"
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/evaluate.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/rules.h"

namespace rlx {
namespace {

// ---- scan

// How a scan's operands (carries, xs, consts) and its body's outputs (carries, ys) divide.
struct ScanParts {
  size_t carries, xs, consts, ys;
  explicit ScanParts(const Node& n)
      : carries(static_cast<size_t>(n.get<ScanAttrs>().num_carries)),
        xs(static_cast<size_t>(n.get<ScanAttrs>().num_xs)),
        consts(n.in.size() - carries - xs),
        ys(n.out.size() - carries) {}
  size_t first_const() const { return carries + xs; }
  size_t operands() const { return carries + xs + consts; }
};

Types infer_scan(const InferArgs& a) {
  const auto& s = a.get<ScanAttrs>();
  const int64_t operands = static_cast<int64_t>(a.in.size());
  if (s.num_carries < 0 || s.num_xs < 0 || s.num_carries > operands ||
      s.num_xs > operands - s.num_carries)
    bad_operands(a, "scan-operands",
                 fmt::format("{} carries and {} stacked inputs do not fit {} operands",
                             s.num_carries, s.num_xs, operands));
  if (s.length.is_static() && s.length.value() < 0)
    bad_operands(a, "scan-length", fmt::format("the length cannot be {}", s.length));
  if (s.checkpoints < 0 || (s.binomial && s.checkpoints < 2))
    bad_operands(
        a, "scan-checkpoints",
        fmt::format("{} checkpoints; {} are allowed", s.checkpoints,
                    s.binomial ? "two or more, where they are binomial," : "none or more"));
  Types given(a.in.begin(), a.in.end());
  for (int64_t i = s.num_carries; i < s.num_carries + s.num_xs; ++i) {
    Type& x = given[static_cast<size_t>(i)];
    if (x.rank() == 0 || !(x.shape[0] == s.length))
      bad_operands(a, "scan-length",
                   fmt::format("{} is stacked and must be [{}, ..] but is {}",
                               a.name(static_cast<size_t>(i)), s.length, x));
    x.shape = without_front(x.shape);
  }
  check_body_inputs(a, "body", *s.body, given);
  const Types out = s.body->output_types();
  if (static_cast<int64_t>(out.size()) < s.num_carries)
    bad_operands(a, "body-outputs",
                 fmt::format("the body has {} outputs, fewer than the {} carries", out.size(),
                             s.num_carries));
  Types results;
  for (size_t i = 0; i < out.size(); ++i) {
    const bool carry = static_cast<int64_t>(i) < s.num_carries;
    if (carry && !(out[i] == given[i]))
      bad_operands(a, "body-outputs",
                   fmt::format("carry {} is {} but the body returns {}", i, given[i], out[i]));
    results.push_back(carry ? out[i] : Type{out[i].dtype, with_front(s.length, out[i].shape)});
  }
  return results;
}

Tensor row_of(const Tensor& x, int64_t row) {
  Tensor out(x.dtype(), Ints(x.sizes().begin() + 1, x.sizes().end()));
  if (out.bytes())
    std::memcpy(out.mutable_raw(), x.raw() + static_cast<size_t>(row) * out.bytes(), out.bytes());
  return out;
}

void set_row(Tensor& x, int64_t row, const Tensor& value) {
  if (value.bytes())
    std::memcpy(x.mutable_raw() + static_cast<size_t>(row) * value.bytes(), value.raw(),
                value.bytes());
}

Tensors eval_scan(const EvalArgs& e) {
  const auto& s = e.get<ScanAttrs>();
  const ScanParts parts(e.node);
  const int64_t length = s.length.value();
  Tensors state(e.in.begin(), e.in.begin() + s.num_carries), ys;
  for (size_t i = 0; i < parts.ys; ++i) ys.push_back(e.make(static_cast<int>(parts.carries + i)));
  for (int64_t step = 0; step < length; ++step) {
    const int64_t row = s.reverse ? length - 1 - step : step;
    for (size_t i = parts.carries; i < e.in.size(); ++i)
      state.push_back(i < parts.first_const() ? row_of(e.in[i], row) : e.in[i]);
    state = e.evaluate(*s.body, state);
    for (size_t i = 0; i < parts.ys; ++i) set_row(ys[i], row, state[parts.carries + i]);
    state.resize(parts.carries);
  }
  state.insert(state.end(), ys.begin(), ys.end());
  return state;
}

// The scan of (values, tangents). A carry has a tangent when its initial value has one or the body
// gives it one.
Values jvp_scan(Builder& b, const JvpArgs& a) {
  const auto& s = a.node.get<ScanAttrs>();
  const ScanParts parts(a.node);
  Flags has = valid_flags(a.tangents);
  BodyJvp step;
  for (bool grew = true; grew;) {
    grew = false;
    step = transforms(a.bodies, a.node).jvp(*s.body, has);
    for (size_t i = 0; i < parts.carries; ++i)
      if (step.has_tangent[i] && !has[i]) has[i] = grew = true;
  }

  BodyMaker body(s.body->name + "_jvp");
  const Values leaves = s.body->inputs();
  Values values, tangents;
  auto add_inputs = [&](size_t end) {  // values of one part, then their tangents
    const size_t begin = values.size();
    for (size_t i = begin; i < end; ++i)
      values.push_back(body.input(a.in[i], s.body->type(leaves[i])));
    for (size_t i = begin; i < end; ++i)
      if (has[i])
        tangents.push_back(body.input(or_zeros(b, a.tangents[i], derivative_type(b.type(a.in[i]))),
                                      derivative_type(s.body->type(leaves[i]))));
    return body.size();
  };
  ScanAttrs attrs = s;
  attrs.num_carries = add_inputs(parts.carries);
  attrs.num_xs = add_inputs(parts.first_const()) - attrs.num_carries;
  add_inputs(parts.operands());

  Values bound = values;
  append_valid(bound, tangents);
  const Values results = body.inner.inline_graph(step.graph, bound);
  Values outputs(results.begin(), results.begin() + s.num_carries);
  for (size_t i = 0, next = s.body->outputs.size(); i < s.body->outputs.size(); ++i) {
    const Value t = step.has_tangent[i] ? results[next++] : kNone;
    if (i < parts.carries && has[i])
      outputs.push_back(or_zeros(body.inner, t, derivative_type(body.inner.type(values[i]))));
    else if (t.valid())
      outputs.push_back(t);
  }
  attrs.body = body.finish(outputs);
  const Values scanned = b.emit(*a.node.op, attrs, body.operands);
  Values out(a.node.out.size(), kNone);
  for (size_t i = 0, next = parts.carries; i < out.size(); ++i)
    if (i < parts.carries ? has[i] : step.has_tangent[i]) out[i] = scanned[next++];
  return out;
}

// The scan again, with the carries that enter each step, or some of them, stacked as further outputs.
Values scan_with_residuals(Builder& b, const Node& n, Operands in) {
  ScanAttrs s = n.get<ScanAttrs>();
  if (is_thinned(s)) return scan_that_keeps(b, s, in);
  Graph body = *s.body;
  const Values inputs = body.inputs();
  body.outputs.insert(body.outputs.end(), inputs.begin(), inputs.begin() + s.num_carries);
  s.body = Body(std::move(body));
  return b.emit(*n.op, s, in);
}

// For each output of a body: which inputs can influence it through differentiable values.
std::vector<Flags> influences(const Graph& g) {
  const Values inputs = g.inputs();
  std::vector<Flags> of_node(g.nodes.size(), Flags(inputs.size(), false));
  for (size_t i = 0; i < inputs.size(); ++i) of_node[static_cast<size_t>(inputs[i].node)][i] = true;
  auto merge = [&](Flags& into, Value v) {
    for (size_t i = 0; i < into.size(); ++i)
      if (of_node[static_cast<size_t>(v.node)][i]) into[i] = true;
  };
  for (size_t n = 0; n < g.nodes.size(); ++n)
    if (g.nodes[n].op->not_differentiable.empty())
      for (Value v : g.nodes[n].in)
        if (carries(*g.nodes[n].op, g.type(v).dtype)) merge(of_node[n], v);
  std::vector<Flags> out;
  for (Value v : g.outputs) {
    out.emplace_back(inputs.size(), false);
    if (may_carry(g.type(v).dtype)) merge(out.back(), v);
  }
  return out;
}

// What the reverse sweep computes: a cotangent for each operand that is wanted and each carry that
// takes part, from those of the body's outputs that have one. A carry takes part when it depends on
// a wanted operand and influences something that has a cotangent.
struct ScanSweep {
  Flags wanted;         // one per operand
  Flags has_cotangent;  // one per output of the body
};

ScanSweep plan_sweep(const Builder& b, const VjpArgs& a, const ScanParts& parts) {
  const std::vector<Flags> by = influences(*a.node.get<ScanAttrs>().body);
  ScanSweep sweep{a.wanted, Flags(by.size(), false)};
  for (size_t i = 0; i < a.in.size(); ++i)
    if (!may_carry(b.type(a.in[i]).dtype)) sweep.wanted[i] = false;
  Flags moves = sweep.wanted;  // depends on a wanted operand
  auto moved = [&](size_t output) {
    for (size_t k = 0; k < moves.size(); ++k)
      if (moves[k] && by[output][k]) return true;
    return false;
  };
  for (bool grew = true; grew;) {
    grew = false;
    for (size_t c = 0; c < parts.carries; ++c)
      if (!moves[c] && moved(c)) moves[c] = grew = true;
  }
  for (size_t j = 0; j < by.size(); ++j)
    sweep.has_cotangent[j] = a.cotangents[j].valid() && (j < parts.carries ? moves[j] : moved(j));
  for (bool grew = true; grew;) {
    grew = false;
    for (size_t c = 0; c < parts.carries; ++c)
      for (size_t j = 0; j < by.size(); ++j)
        if (!sweep.has_cotangent[c] && moves[c] && sweep.has_cotangent[j] && by[j][c])
          sweep.has_cotangent[c] = grew = true;
  }
  for (size_t c = 0; c < parts.carries; ++c) sweep.wanted[c] = sweep.has_cotangent[c];
  return sweep;
}

bool reads_inputs(const Graph& body, size_t begin, size_t end) {
  const Values inputs = body.inputs();
  const auto is_one = [&](Value v) {
    return std::find(inputs.begin() + static_cast<int64_t>(begin),
                     inputs.begin() + static_cast<int64_t>(end),
                     v) != inputs.begin() + static_cast<int64_t>(end);
  };
  return std::any_of(body.outputs.begin(), body.outputs.end(), is_one) ||
         std::any_of(body.nodes.begin(), body.nodes.end(),
                     [&](const Node& n) { return std::any_of(n.in.begin(), n.in.end(), is_one); });
}

// The body without inputs that nobody reads.
Body without_inputs(const Graph& body, size_t begin, size_t count) {
  Builder b(body.name);
  std::vector<Value> bound;
  const Values inputs = body.inputs();
  for (size_t i = 0; i < inputs.size(); ++i)
    bound.push_back(
        i >= begin && i < begin + count
            ? kNone
            : b.input(body.node(inputs[i]).get<LeafAttrs>().name, body.type(inputs[i])));
  for (Value v : b.inline_graph(body, bound)) b.output(v);
  return Body(b.finish());
}

// One scan in the opposite direction. It carries the cotangents of the carries and the sums of
// those of the constants, reads the carries that entered each step, the stacked inputs and the
// cotangents of the stacked outputs, and stacks the cotangents of the stacked inputs.
Values vjp_scan(Builder& b, const VjpArgs& a) {
  const auto& s = a.node.get<ScanAttrs>();
  const ScanParts parts(a.node);
  const ScanSweep sweep = plan_sweep(b, a, parts);
  Values out(a.in.size(), kNone);
  if (!any(sweep.has_cotangent)) return out;
  const bool thinned = is_thinned(s);
  check(thinned || a.out.size() == a.node.out.size() + parts.carries,
        "scan: the vjp needs the results of with_residuals");
  const Graph step = transforms(a.bodies, a.node).vjp(*s.body, sweep.wanted, sweep.has_cotangent);

  BodyMaker body(s.body->name + "_vjp");
  const Values leaves = s.body->inputs();
  auto leaf_type = [&](size_t i) -> const Type& { return s.body->type(leaves[i]); };
  auto slope_type = [&](size_t i) { return derivative_type(leaf_type(i)); };
  Values cotangents, sums, values;
  for (size_t i = 0; i < parts.carries; ++i)
    if (sweep.has_cotangent[i])
      cotangents.push_back(body.input(or_zeros(b, a.cotangents[i], slope_type(i)), slope_type(i)));
  for (size_t i = parts.first_const(); i < parts.operands(); ++i)
    if (sweep.wanted[i]) sums.push_back(body.input(full(b, slope_type(i), 0), slope_type(i)));
  BackScan back;
  ScanAttrs& attrs = back.attrs;
  attrs = s;
  attrs.checkpoints = 0, attrs.binomial = false;
  attrs.reverse = !s.reverse;
  attrs.num_carries = body.size();
  for (size_t i = 0; i < parts.carries; ++i)
    values.push_back(body.input(thinned ? kNone : a.out[a.node.out.size() + i], leaf_type(i)));
  for (size_t i = parts.carries; i < parts.first_const(); ++i)
    values.push_back(body.input(a.in[i], leaf_type(i)));
  for (size_t j = parts.carries; j < a.node.out.size(); ++j)
    if (sweep.has_cotangent[j])
      cotangents.push_back(
          body.input(a.cotangents[j], derivative_type(s.body->type(s.body->outputs[j]))));
  attrs.num_xs = body.size() - attrs.num_carries;
  for (size_t i = parts.first_const(); i < parts.operands(); ++i)
    values.push_back(body.input(a.in[i], leaf_type(i)));

  append_valid(values, cotangents);
  const Values results = body.inner.inline_graph(step, values);
  Values outputs, stacked;
  std::vector<size_t> owners, stacked_owners;  // the operands whose cotangents these are
  for (size_t i = 0, next = 0, sum = 0; i < parts.operands(); ++i) {
    if (!sweep.wanted[i]) continue;
    const bool is_x = i >= parts.carries && i < parts.first_const();
    const Value d = results[next++];
    (is_x ? stacked : outputs)
        .push_back(i < parts.first_const() ? d : op::add(body.inner, sums[sum++], d));
    (is_x ? stacked_owners : owners).push_back(i);
  }
  append_valid(outputs, stacked);
  owners.insert(owners.end(), stacked_owners.begin(), stacked_owners.end());
  attrs.body = body.finish(outputs);
  Values swept;
  const size_t first = at(attrs.num_carries);
  if (thinned && !reads_inputs(*attrs.body, first, first + parts.carries)) {
    // Linear in its carries: there is nothing to compute again.
    attrs.body = without_inputs(*attrs.body, first, parts.carries);
    attrs.num_xs -= static_cast<int64_t>(parts.carries);
    body.operands.erase(body.operands.begin() + attrs.num_carries,
                        body.operands.begin() + attrs.num_carries + s.num_carries);
    swept = b.emit(*a.node.op, attrs, body.operands);
  } else if (thinned) {
    const Operands all = body.operands;
    const size_t xs = first + parts.carries, end = at(attrs.num_carries + attrs.num_xs);
    const auto part = [&](size_t begin, size_t end) {
      return Values(all.begin() + static_cast<int64_t>(begin),
                    all.begin() + static_cast<int64_t>(end));
    };
    back.carries = part(0, first);
    back.xs = part(xs, xs + parts.xs);
    back.cotangents = part(xs + parts.xs, end);
    back.constants = part(end, all.size());
    swept = sweep_over_kept(b, s, back, a.out.subspan(a.node.out.size()));
  } else {
    swept = b.emit(*a.node.op, attrs, body.operands);
  }
  for (size_t k = 0; k < owners.size(); ++k)
    if (a.wanted[owners[k]]) out[owners[k]] = swept[k];
  return out;
}

// [p, q, *] -> [q, p, *]
Value swap_leading(Builder& b, Value x) {
  Ints perm(static_cast<size_t>(b.type(x).rank()));
  for (size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<int64_t>(i);
  std::swap(perm[0], perm[1]);
  return op::transpose(b, x, {perm});
}

// The scan of the batched body. A carry is batched when its initial value is or the body makes it
// so; what is not batched stays shared. Inside, stacked values keep the step axis in front:
// [length, batch, *].
Values vmap_scan(Builder& b, const VmapArgs& a) {
  const auto& s = a.node.get<ScanAttrs>();
  const ScanParts parts(a.node);
  Flags batched = a.batched;
  BodyVmap step;
  for (bool grew = true; grew;) {
    grew = false;
    Flags force(s.body->outputs.size(), false);
    std::copy_n(batched.begin(), parts.carries, force.begin());
    step = transforms(a.bodies, a.node).vmap(*s.body, batched, a.size, force);
    for (size_t i = 0; i < parts.carries; ++i)
      if (step.batched[i] && !batched[i]) batched[i] = grew = true;
  }
  Values in;
  for (size_t i = 0; i < a.in.size(); ++i) {
    if (i < parts.carries && batched[i] && !a.batched[i])
      in.push_back(batch_operand(b, a.in[i], a.size));
    else if (i >= parts.carries && i < parts.first_const() && batched[i])
      in.push_back(swap_leading(b, a.in[i]));
    else
      in.push_back(a.in[i]);
  }
  ScanAttrs attrs = s;
  attrs.body = Body(std::move(step.graph));
  Values out = b.emit(*a.node.op, attrs, in);
  for (size_t i = 0; i < out.size(); ++i) {
    if (!step.batched[i])
      out[i] = batch_operand(b, out[i], a.size);
    else if (i >= parts.carries)
      out[i] = swap_leading(b, out[i]);
  }
  return out;
}

// ---- cond

Types infer_cond(const InferArgs& a) {
  const auto& c = a.get<CondAttrs>();
  if (a.in[0].rank() != 0)
    bad_operands(a, "cond-predicate", "the predicate must be a bool of rank 0");
  check_body_inputs(a, "then body", *c.then_body, a.in.subspan(1));
  check_body_inputs(a, "else body", *c.else_body, a.in.subspan(1));
  const Types yes = c.then_body->output_types(), no = c.else_body->output_types();
  if (yes != no)
    bad_operands(a, "body-outputs",
                 fmt::format("the bodies return different types: [{}] and [{}]",
                             fmt::join(yes, ", "), fmt::join(no, ", ")));
  return yes;
}

Tensors eval_cond(const EvalArgs& e) {
  const auto& c = e.get<CondAttrs>();
  return e.evaluate(e.in[0].get_int(0) ? *c.then_body : *c.else_body, e.in.subspan(1));
}

// The body that returns the tangents (zeros where a body has none but the other does).
Body tangents_of(const BodyJvp& jvp, const Graph& body, const Flags& wanted) {
  Builder inner(body.name + "_jvp");
  Values in;
  for (Value v : jvp.graph.inputs())
    in.push_back(inner.input(fmt::format("x{}", in.size()), jvp.graph.type(v)));
  const Values results = inner.inline_graph(jvp.graph, in);
  for (size_t i = 0, next = body.outputs.size(); i < body.outputs.size(); ++i) {
    const Value t = jvp.has_tangent[i] ? results[next++] : kNone;
    if (wanted[i]) inner.output(or_zeros(inner, t, derivative_type(body.type(body.outputs[i]))));
  }
  return drop_dead(inner.finish());
}

Values jvp_cond(Builder& b, const JvpArgs& a) {
  const auto& c = a.node.get<CondAttrs>();
  const Flags has = valid_flags(a.tangents.subspan(1));
  const BodyTransforms& t = transforms(a.bodies, a.node);
  const BodyJvp yes = t.jvp(*c.then_body, has), no = t.jvp(*c.else_body, has);
  Flags wanted = yes.has_tangent;
  for (size_t i = 0; i < wanted.size(); ++i)
    if (no.has_tangent[i]) wanted[i] = true;
  Values out(a.node.out.size(), kNone);
  if (!any(wanted)) return out;
  Values in(a.in.begin(), a.in.end());
  append_valid(in, a.tangents.subspan(1));
  const Values tangents = b.emit(
      *a.node.op,
      CondAttrs{tangents_of(yes, *c.then_body, wanted), tangents_of(no, *c.else_body, wanted)}, in);
  for (size_t i = 0, next = 0; i < out.size(); ++i)
    if (wanted[i]) out[i] = tangents[next++];
  return out;
}

Values vjp_cond(Builder& b, const VjpArgs& a) {
  const auto& c = a.node.get<CondAttrs>();
  Flags wanted(a.wanted.begin() + 1, a.wanted.end());
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!may_carry(b.type(a.in[i + 1]).dtype)) wanted[i] = false;
  Values out(a.in.size(), kNone);
  if (!any(wanted)) return out;
  const Flags has = valid_flags(a.cotangents);
  const BodyTransforms& t = transforms(a.bodies, a.node);
  Values in(a.in.begin(), a.in.end());
  append_valid(in, a.cotangents);
  const Values grads =
      b.emit(*a.node.op,
             CondAttrs{t.vjp(*c.then_body, wanted, has), t.vjp(*c.else_body, wanted, has)}, in);
  for (size_t i = 0, next = 0; i < wanted.size(); ++i)
    if (wanted[i]) out[i + 1] = grads[next++];
  return out;
}

// With one predicate for all, a cond of the batched bodies; with a predicate each, both bodies run
// and select chooses.
Values vmap_cond(Builder& b, const VmapArgs& a) {
  const auto& c = a.node.get<CondAttrs>();
  const Flags batched(a.batched.begin() + 1, a.batched.end());
  const Flags force(a.node.out.size(), !a.batched[0]);
  const BodyTransforms& t = transforms(a.bodies, a.node);
  BodyVmap yes = t.vmap(*c.then_body, batched, a.size, force),
           no = t.vmap(*c.else_body, batched, a.size, force);
  if (!a.batched[0])
    return b.emit(*a.node.op, CondAttrs{std::move(yes.graph), std::move(no.graph)}, a.in);
  const Values on_true = b.inline_graph(yes.graph, a.in.subspan(1)),
               on_false = b.inline_graph(no.graph, a.in.subspan(1));
  Values out;
  for (size_t i = 0; i < a.node.out.size(); ++i) {
    Shape shape(a.node.out[i].shape.size() + 1, Dim(1));
    shape[0] = a.size;
    out.push_back(op::select(b, reshape_to(b, a.in[0], shape), on_true[i], on_false[i]));
  }
  return out;
}

}  // namespace

namespace op {

constinit const Op<ScanAttrs> scan = OpDef{
    .name = "scan",
    .doc =
        "Runs the body `length` times. Operands: carries, stacked inputs [length, *], constants; "
        "the body takes the "
        "carries, one slice of each stacked input and the constants and returns the next carries "
        "and one slice of each "
        "stacked output. Results: the last carries, the stacked outputs [length, *]. With reverse "
        "the steps run from the "
        "last slice to the first and slices keep their places. With 0 < checkpoints < length, "
        "reverse mode keeps the "
        "carries that enter so many segments of steps, computes those of one segment at a time "
        "again, and gives the "
        "same bits; with binomial it keeps `checkpoints` carries at once and computes the others "
        "at "
        "the fewest evaluations.",
    .reference = "Scan",
    .kind = Kind::control,
    .arity = kVariadic,
    .operands = "xs..",
    .variadic_results = true,
    .passes_codes = true,
    .infer = infer_scan,
    .eval = eval_scan,
    .jvp = jvp_scan,
    .vjp = vjp_scan,
    .with_residuals = scan_with_residuals,
    .vmap = vmap_scan,
    .cost =
        [](const Node& n, std::span<const Type>) {
          const auto& a = n.get<ScanAttrs>();
          return 1 + element_count({DType::F32, {a.length}}) * (1 + evaluation_cost(*a.body));
        },
};

constinit const Op<CondAttrs> cond = OpDef{
    .name = "cond",
    .doc =
        "Runs then_body or else_body on the operands after the predicate (bool, rank 0). Only the "
        "chosen body runs. Under vmap with a predicate per element both bodies run for every "
        "element and the values are selected: what the body not chosen raises (an index out of "
        "range, say) ends the run, too, and where its derivative is infinite, gradients taken "
        "outside of the vmap are NaN.",
    .reference = "If",
    .kind = Kind::control,
    .arity = kVariadic,
    .min_arity = 1,
    .operands = "predicate, xs..",
    .dtypes = kBools,
    .variadic_results = true,
    .passes_codes = true,
    .infer = infer_cond,
    .eval = eval_cond,
    .jvp = jvp_cond,
    .vjp = vjp_cond,
    .vmap = vmap_cond,
    .cost =
        [](const Node& n, std::span<const Type>) {
          const auto& a = n.get<CondAttrs>();
          return 1 + std::max(evaluation_cost(*a.then_body), evaluation_cost(*a.else_body));
        },
};

}  // namespace op

namespace {
constexpr const OpDef* kControlOps[] = {&op::scan, &op::cond};
}  // namespace
constinit const Family kControl{"control", kControlOps};

}  // namespace rlx
