// Recurrences, scans, branches and functions with bodies.
#include "rlx/ops/control/control.h"
#include "rlx/ops/control/loops.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/region.h"
#include "rlx/ops/rules.h"
#include "rlx/ops/sequence/sequence.h"
#include "rlx/stages/builders/graph_builder.h"

namespace rlx {
namespace {

Values joined(Values a, const Values& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Body or_none(const std::optional<Graph>& g) { return g ? Body(*g) : Body(); }

void check_state(std::string_view name, int64_t state_size, const Type& t) {
  user_check(t.rank() > 0 && t.shape.back() == Dim(state_size), "sequence-shape",
             "{}: a state of {} does not fit {}", name, state_size, t);
}

void check_one_output(std::string_view name, const Graph& body) {
  user_check(body.outputs.size() == 1, "body-outputs", "{}: the body returns {} values, not one",
             name, body.outputs.size());
}

// The body with its inputs (carry, constants.., slices..) in the order (carry, slices.., constants..).
Graph constants_last(const Graph& body, size_t constants) {
  const Values inputs = body.inputs();
  user_check(inputs.size() > constants, "body-inputs",
             "scan: the body takes {} inputs; a carry and {} constants are given", inputs.size(),
             constants);
  Builder b(body.name);
  Values bound(inputs.size());
  auto leaf = [&](size_t i) {
    bound[i] = b.input(body.node(inputs[i]).get<LeafAttrs>().name, body.type(inputs[i]));
  };
  leaf(0);
  for (size_t i = 1 + constants; i < inputs.size(); ++i) leaf(i);
  for (size_t i = 1; i <= constants; ++i) leaf(i);
  for (Value v : b.inline_graph(body, bound)) b.output(v);
  return b.finish();
}

}  // namespace

NodeId GraphBuilder::selective_scan(NodeId x, NodeId delta, NodeId a, NodeId b, NodeId c,
                                    int64_t state_size, const Declared& shape) {
  check_state("selective_scan", state_size, this->shape(a));
  return emit(op::selective_scan.def, NoAttrs{}, {x, delta, a, b, c}, shape);
}

NodeId GraphBuilder::gated_delta_net(NodeId q, NodeId k, NodeId v, NodeId g, NodeId beta,
                                     int64_t state_size, const Declared& shape) {
  check_state("gated_delta_net", state_size, this->shape(q));
  return emit(op::gated_delta_net.def, NoAttrs{}, {q, k, v, g, beta}, shape);
}

NodeId GraphBuilder::gated_delta_net_carry(NodeId q, NodeId k, NodeId v, NodeId g, NodeId beta,
                                           NodeId state, int64_t state_size,
                                           const Declared& shape) {
  check_state("gated_delta_net_carry", state_size, this->shape(q));
  return emit(op::gated_delta_net.def, NoAttrs{}, {q, k, v, g, beta, state}, shape);
}

NodeId GraphBuilder::scan(NodeId init, const Graph& body, int64_t length) {
  return scan_with_xs(init, {}, body, length);
}

NodeId GraphBuilder::scan_with_xs(NodeId init, const Values& xs, const Graph& body,
                                  int64_t length) {
  return scan_with_bcasts_and_xs(init, {}, xs, body, length);
}

NodeId GraphBuilder::scan_with_bcasts_and_xs(NodeId init, const Values& bcasts, const Values& xs,
                                             const Graph& body, int64_t length) {
  check_one_output("scan", body);
  ScanAttrs a{.body = bcasts.empty() ? body : constants_last(body, bcasts.size()),
              .length = length,
              .num_carries = 1,
              .num_xs = static_cast<int64_t>(xs.size())};
  return emit(op::scan.def, std::move(a), joined(joined({init}, xs), bcasts));
}

NodeId GraphBuilder::scan_trajectory(NodeId init, const Graph& body, int64_t length) {
  check_one_output("scan_trajectory", body);
  Graph stacked = body;  // the next carry is also a row of the trajectory
  stacked.outputs.push_back(stacked.outputs[0]);
  return emit(op::scan.def,
              ScanAttrs{.body = std::move(stacked), .length = length, .num_carries = 1}, {init}, {},
              1);
}

NodeId GraphBuilder::scan_checkpointed(NodeId init, const Graph& body, int64_t length,
                                       int64_t num_checkpoints) {
  user_check(num_checkpoints >= 1 && num_checkpoints <= length, "scan-checkpoints",
             "scan_checkpointed: {} checkpoints; 1 to the length {} are allowed", num_checkpoints,
             length);
  return emit(
      op::scan_checkpointed.def,
      ScanCheckpointedAttrs{.body = body, .length = length, .num_checkpoints = num_checkpoints},
      {init});
}

NodeId GraphBuilder::scan_backward(NodeId init, NodeId trajectory, NodeId upstream,
                                   const Values& xs, const Graph& body_vjp, int64_t length,
                                   bool save_trajectory, const Declared& out_shape) {
  return scan_backward_with_checkpoints(init, trajectory, upstream, xs, body_vjp, length,
                                        save_trajectory, 0, {}, out_shape);
}

NodeId GraphBuilder::scan_backward_with_checkpoints(NodeId init, NodeId trajectory, NodeId upstream,
                                                    const Values& xs, const Graph& body_vjp,
                                                    int64_t length, bool save_trajectory,
                                                    int64_t num_checkpoints,
                                                    const std::optional<Graph>& forward_body,
                                                    const Declared& out_shape) {
  return emit(op::scan_backward.def,
              ScanBackwardAttrs{.body_vjp = body_vjp,
                                .forward_body = or_none(forward_body),
                                .length = length,
                                .save_trajectory = save_trajectory,
                                .num_checkpoints = num_checkpoints},
              joined({init, trajectory, upstream}, xs), out_shape);
}

NodeId GraphBuilder::scan_backward_xs(NodeId init, NodeId trajectory, NodeId upstream,
                                      const Values& xs, const Graph& body_vjp, int64_t length,
                                      bool save_trajectory, int64_t xs_idx,
                                      const Declared& out_shape) {
  return scan_backward_xs_with_checkpoints(init, trajectory, upstream, xs, body_vjp, length,
                                           save_trajectory, xs_idx, 0, {}, out_shape);
}

NodeId GraphBuilder::scan_backward_xs_with_checkpoints(
    NodeId init, NodeId trajectory, NodeId upstream, const Values& xs, const Graph& body_vjp,
    int64_t length, bool save_trajectory, int64_t xs_idx, int64_t num_checkpoints,
    const std::optional<Graph>& forward_body, const Declared& out_shape) {
  return emit(op::scan_backward_xs.def,
              ScanBackwardAttrs{.body_vjp = body_vjp,
                                .forward_body = or_none(forward_body),
                                .length = length,
                                .save_trajectory = save_trajectory,
                                .num_checkpoints = num_checkpoints,
                                .xs_index = xs_idx},
              joined({init, trajectory, upstream}, xs), out_shape);
}

NodeId GraphBuilder::custom_fn(const Values& inputs, const Graph& fwd_body,
                               const std::optional<Graph>& vjp_body,
                               const std::optional<Graph>& jvp_body) {
  check_one_output("custom_fn", fwd_body);
  return emit(op::custom_fn.def,
              CustomFnAttrs{.fwd = fwd_body, .vjp = or_none(vjp_body), .jvp = or_none(jvp_body)},
              inputs);
}

MultiOutputHandle GraphBuilder::custom_fn_multi(const Values& inputs, const Graph& fwd_body) {
  const Types types = fwd_body.output_types();
  user_check(!types.empty(), "body-outputs", "custom_fn_multi: the body returns nothing");
  MultiOutputHandle handle{{}, types, {}};
  int64_t elements = 0;
  GraphBuilder packed(fwd_body);
  Values flat;
  for (size_t i = 0; i < types.size(); ++i) {
    user_check(types[i].dtype == types[0].dtype && types[i].shape.is_static(), "body-outputs",
               "custom_fn_multi: output {} is {}; all must be static and {}", i, types[i],
               types[0].dtype);
    handle.offsets.push_back(elements);
    const int64_t count = product(types[i].shape.sizes());
    elements += count;
    flat.push_back(packed.reshape(fwd_body.outputs[i], {count}));
  }
  packed.set_outputs({packed.concat(flat, 0)});
  handle.source = custom_fn(inputs, packed.finish());
  return handle;
}

NodeId MultiOutputHandle::output(GraphBuilder& g, size_t i) const {
  user_check(i < n_outputs(), "output-index", "custom_fn_multi: output {} of {}", i, n_outputs());
  const Type& t = sub_shapes[i];
  const NodeId part = g.narrow_(source, 0, offsets[i], product(t.shape.sizes()));
  return t.rank() == 1 ? part : g.reshape(part, t.shape.sizes(), t);
}

Values GraphBuilder::if_(NodeId predicate, const Values& captures, const Graph& then_branch,
                         const Graph& else_branch) {
  const Type& t = shape(predicate);
  user_check(t.shape.elements() == Dim(1), "cond-predicate",
             "if_: the predicate must have one element, not {}", t);
  const Value flag = cast_to(b_, reshape_to(b_, predicate, {}), DType::Bool);
  return b_.emit(op::cond.def, CondAttrs{then_branch, else_branch}, joined({flag}, captures));
}

Values GraphBuilder::while_(const Values& carried, const Graph& cond, const Graph& body,
                            std::optional<int64_t> max_iterations) {
  return b_.emit(op::while_loop.def,
                 WhileAttrs{.cond = cond,
                            .body = body,
                            .num_carries = static_cast<int64_t>(carried.size()),
                            .max_iterations = max_iterations},
                 carried);
}

Values GraphBuilder::elementwise_region(const Values& inputs, const Graph& body) {
  user_check(!body.outputs.empty(), "body-results", "elementwise_region: the body has no results");
  const Shape& domain = body.type(body.outputs[0]).shape;
  for (const Node& n : body.nodes)
    user_check(n.op->scalar != nullptr || n.op->kind == Kind::leaf, "region-op",
               "elementwise_region: {} is not a function of single elements", n.op->name);
  return b_.emit(op::region.def, RegionAttrs{body, RegionKind::elementwise, domain, {}}, inputs);
}

}  // namespace rlx
