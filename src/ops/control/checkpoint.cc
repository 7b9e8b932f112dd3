#include "rlx/ops/control/checkpoint.h"

#include <algorithm>

#include "rlx/ops/control/body_rules.h"

namespace rlx {
namespace {

Types infer_checkpoint(const InferArgs& a) {
  const auto& c = a.get<CheckpointAttrs>();
  check_body_inputs(a, "function", *c.body, a.in);
  if (c.again < 0 || c.guarded < 0 || c.guarded > static_cast<int64_t>(a.in.size()))
    bad_operands(a, "checkpoint",
                 fmt::format("again {} and guarded {} do not fit {} operands", c.again, c.guarded,
                             a.in.size()));
  Types results = c.body->output_types();
  if (results.empty()) bad_operands(a, "body-outputs", "the function returns nothing");
  return results;
}

Values decompose_checkpoint(Builder& b, const Node& n, Operands in) {
  const auto& c = n.get<CheckpointAttrs>();
  Values bound(in.begin(), in.end());
  for (size_t i = 0; i < at(c.guarded); ++i)
    if (b.node(bound[i]).op != &op::constant)
      bound[i] = op::barrier(b, bound[i], {.again = c.again});
  return b.inline_graph(*c.body, bound);
}

bool is_product(const OpDef& op) {
  return op.kind == Kind::contraction || op.role == Role::product;
}

// A body in which each saved value is the result of a checkpoint_name with its index.
struct ChosenBody {
  Graph graph;
  Values saved;
};

ChosenBody choose_saved(const CheckpointAttrs& c) {
  ChosenBody out;
  int64_t count = 0;
  out.graph = rebuild(*c.body, [&](Builder& b, int32_t i, Operands in) -> Values {
    const Node& n = c.body->node(i);
    const bool names = n.op == &op::checkpoint_name;
    const std::string name = names ? n.get<CheckpointNameAttrs>().name : "";
    if (names && name.empty()) return {in[0]};  // of a choice before this one
    if (names && c.save == SavePolicy::names &&
        std::find(c.names.begin(), c.names.end(), name) != c.names.end())
      return {op::checkpoint_name(b, in[0], {name, count++})};
    if (names) return {op::checkpoint_name(b, in[0], {name})};
    Values results = b.clone(n, in);
    if (c.save == SavePolicy::products && is_product(*n.op))
      for (Value& v : results)
        if (is_differentiable(b.type(v).dtype)) v = op::checkpoint_name(b, v, {"", count++});
    return results;
  });
  for (int32_t i = 0; i < out.graph.size(); ++i)
    if (const Node& n = out.graph.node(i);
        n.op == &op::checkpoint_name && n.get<CheckpointNameAttrs>().index >= 0)
      out.saved.push_back({i, 0});
  return out;
}

Values checkpoint_with_residuals(Builder& b, const Node& n, Operands in) {
  CheckpointAttrs c = n.get<CheckpointAttrs>();
  ChosenBody chosen = choose_saved(c);
  for (Value v : chosen.saved) chosen.graph.outputs.push_back(v);
  c.body = Body(std::move(chosen.graph));
  return b.emit(*n.op, c, in);
}

// The saved values that the outputs of g need, by index.
Flags needed_saved(const Graph& g, size_t count) {
  Flags out(count, false), needed(g.nodes.size(), false);
  for (Value v : g.outputs) needed[at(v.node)] = true;
  for (size_t i = g.nodes.size(); i-- > 0;) {
    if (!needed[i]) continue;
    const Node& n = g.nodes[i];
    const int64_t index =
        n.op == &op::checkpoint_name ? n.get<CheckpointNameAttrs>().index : int64_t{-1};
    if (index >= 0)
      out[at(index)] = true;
    else
      for (Value v : n.in) needed[at(v.node)] = true;
  }
  return out;
}

Values vjp_checkpoint(Builder& b, const VjpArgs& a) {
  CheckpointAttrs c = a.node.get<CheckpointAttrs>();
  Flags wanted = a.wanted;
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!may_carry(b.type(a.in[i]).dtype)) wanted[i] = false;
  Values out(a.in.size(), kNone);
  const Flags has = valid_flags(a.cotangents);
  if (!any(wanted) || !any(has)) return out;
  const Operands residuals = a.out.subspan(a.node.out.size());
  const Graph back = transforms(a.bodies, a.node).vjp(choose_saved(c).graph, wanted, has);
  const Flags needed = needed_saved(back, residuals.size());

  // Its operands: those of the checkpoint, what was saved, the cotangents.
  BodyMaker body(back.name);
  Values bound, saved(residuals.size(), kNone);
  for (Value v : a.in) bound.push_back(body.input(v, b.type(v)));
  for (size_t k = 0; k < residuals.size(); ++k)
    if (needed[k]) saved[k] = body.input(residuals[k], b.type(residuals[k]));
  c.guarded = body.size();
  for (Value v : a.cotangents)
    if (v.valid()) bound.push_back(body.input(v, b.type(v)));

  ResultMap<Values> map(back);
  size_t next = 0;
  for (int32_t i = 0; i < back.size(); ++i) {
    const Node& n = back.node(i);
    if (n.op == &op::input) {
      map[i] = {bound[next++]};
      continue;
    }
    const int64_t index =
        n.op == &op::checkpoint_name ? n.get<CheckpointNameAttrs>().index : int64_t{-1};
    if (index >= 0 && needed[at(index)]) {
      map[i] = {saved[at(index)]};
      continue;
    }
    body.inner.set_origin(n.origin);
    map[i] = body.inner.clone(n, map.at(n.in));
  }
  c.body = body.finish(map.at(back.outputs));
  ++c.again;
  const Values found = b.emit(*a.node.op, c, body.operands);
  for (size_t i = 0, k = 0; i < out.size(); ++i)
    if (wanted[i]) out[i] = found[k++];
  return out;
}

Values jvp_checkpoint(Builder& b, const JvpArgs& a) {
  CheckpointAttrs c = a.node.get<CheckpointAttrs>();
  BodyJvp moved = transforms(a.bodies, a.node).jvp(*c.body, valid_flags(a.tangents));
  Values out(a.node.out.size(), kNone);
  if (!any(moved.has_tangent)) return out;
  // The tangents alone: the values are those of the checkpoint itself, and equal expressions are computed once.
  Values& outputs = moved.graph.outputs;
  outputs.erase(outputs.begin(), outputs.begin() + static_cast<int64_t>(out.size()));
  c.body = Body(drop_dead(std::move(moved.graph)));
  Values in(a.in.begin(), a.in.end());
  append_valid(in, a.tangents);
  const Values tangents = b.emit(*a.node.op, c, in);
  for (size_t i = 0, next = 0; i < out.size(); ++i)
    if (moved.has_tangent[i]) out[i] = tangents[next++];
  return out;
}

Values vmap_checkpoint(Builder& b, const VmapArgs& a) {
  CheckpointAttrs c = a.node.get<CheckpointAttrs>();
  c.body = Body(transforms(a.bodies, a.node)
                    .vmap(*c.body, a.batched, a.size, Flags(a.node.out.size(), true))
                    .graph);
  return b.emit(*a.node.op, c, a.in);
}

Values pass_tangent(Builder&, const JvpArgs& a) { return {a.tangents[0]}; }
Values pass_cotangent(Builder&, const VjpArgs& a) { return {a.cotangents[0]}; }
Values vmap_as_it_is(Builder& b, const VmapArgs& a) { return b.clone(a.node, a.in); }

}  // namespace

namespace op {

constinit const Op<CheckpointAttrs> checkpoint = OpDef{
    .name = "checkpoint",
    .doc =
        "The body of the operands, whose values reverse mode does not keep: it computes them "
        "again, but for those that "
        "`save` says (products: results of products, convolutions and attention; names: values "
        "that checkpoint_name "
        "gives one of `names`). `again` and `guarded` are reverse mode's own.",
    .arity = kVariadic,
    .operands = "xs..",
    .variadic_results = true,
    .passes_codes = true,
    .infer = infer_checkpoint,
    .decompose = decompose_checkpoint,
    .jvp = jvp_checkpoint,
    .vjp = vjp_checkpoint,
    .with_residuals = checkpoint_with_residuals,
    .vmap = vmap_checkpoint,
};

constinit const Op<CheckpointNameAttrs> checkpoint_name = OpDef{
    .name = "checkpoint_name",
    .doc =
        "x, by a name under which a checkpoint around it may save it. `index` is reverse mode's "
        "own.",
    .passes_codes = true,
    .infer = infer_same,
    .decompose = [](Builder&, const Node&, Operands in) -> Values { return {in[0]}; },
    .jvp = pass_tangent,
    .vjp = pass_cotangent,
    .vmap = vmap_as_it_is,
};

constinit const Op<BarrierAttrs> barrier = OpDef{
    .name = "barrier",
    .doc =
        "x, as a value of its own: expressions of it are not merged with equal ones of x, no "
        "region grows over it and no "
        "rule looks through it. What begins with one is computed when it stands there, though its "
        "values may have been "
        "computed before.",
    .kind = Kind::movement,
    .linear = true,
    .passes_codes = true,
    .infer = infer_same,
    .eval = [](const EvalArgs& e) -> Tensors { return {e.in[0]}; },
    .jvp = pass_tangent,
    .vjp = pass_cotangent,
    .vmap = vmap_as_it_is,
};

}  // namespace op

namespace {
constexpr const OpDef* kCheckpointOps[] = {&op::checkpoint, &op::checkpoint_name, &op::barrier};
}  // namespace
constinit const Family kCheckpoints{"checkpoints", kCheckpointOps};

}  // namespace rlx
