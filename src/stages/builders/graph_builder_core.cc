// Core: nodes, edits, analysis; any op; custom ops.
#include <algorithm>

#include "rlx/ops/custom.h"
#include "rlx/stages/builders/graph_builder.h"
#include "rlx/stages/inspect.h"
#include "rlx/stages/module.h"

namespace rlx {

GraphBuilder::GraphBuilder(Graph g) : b_(g.name) { b_.mutable_graph() = std::move(g); }

NodeId GraphBuilder::emit(const OpDef& op, Attrs attrs, const Values& in, const Declared& declared,
                          int32_t result) {
  const Values results = b_.emit(op, std::move(attrs), in);
  const Value out = results[static_cast<size_t>(result)];
  if (declared && !(*declared == b_.type(out))) {
    const Type inferred = b_.type(out);
    b_.mutable_graph().nodes.pop_back();
    fail(ErrorKind::user, "declared-shape", "{}: the result is {}, not {} as declared", op.name,
         inferred, *declared);
  }
  return out;
}

const Node& GraphBuilder::node(NodeId id) const {
  b_.type(id);  // raises for what is not a value of this graph
  return b_.node(id);
}

Node& GraphBuilder::node_mut(NodeId id) {
  b_.type(id);
  return b_.mutable_graph().node(id.node);
}

void GraphBuilder::set_outputs(Values outputs) {
  for (Value v : outputs) b_.type(v);
  b_.mutable_graph().outputs = std::move(outputs);
}

void GraphBuilder::set_inputs(NodeId id, Values inputs) {
  Node& n = node_mut(id);
  Types types;
  for (Value v : inputs) {
    types.push_back(b_.type(v));
    user_check(v.node < id.node, "operand-order", "set_inputs: {} does not come before {}", v, id);
  }
  const int count = static_cast<int>(inputs.size());
  user_check(count == static_cast<int>(n.in.size()) || n.op->arity == kVariadic, "arity",
             "set_inputs: {} has {} operands, not {}", id, n.in.size(), count);
  const Types results = infer_types(*n.op, n.attrs, types);
  user_check(results == n.out, "rewire-type", "set_inputs: {} {} would become [{}] from [{}]", id,
             n.op->name, fmt::join(results, ", "), fmt::join(n.out, ", "));
  n.in = std::move(inputs);
}

NodeId GraphBuilder::append_node(const AnyOp& op, const Values& inputs, const Declared& shape,
                                 std::string name) {
  if (name.empty()) return emit(*op.def, op.attrs, inputs, shape);
  const Label label(b_, std::move(name));
  return emit(*op.def, op.attrs, inputs, shape);
}

Values GraphBuilder::users(NodeId id) const {
  b_.type(id);
  Values out;
  for (int32_t i = id.node + 1; i < b_.graph().size(); ++i)
    for (Value v : b_.graph().node(i).in)
      if (v.node == id.node) {
        out.push_back({i, 0});
        break;
      }
  return out;
}

size_t GraphBuilder::use_count(NodeId id) const { return users(id).size(); }

Values GraphBuilder::topo_order() const {
  Values out;
  for (int32_t i = 0; i < b_.graph().size(); ++i) out.push_back({i, 0});
  return out;
}

Values GraphBuilder::reverse_topo() const {
  Values out = topo_order();
  return {out.rbegin(), out.rend()};
}

GraphModule GraphBuilder::define(std::string name, FunctionRef<HirNodeId(HirModule&)> build) {
  return GraphModule::define(std::move(name), build);
}
GraphModule GraphBuilder::hir(std::string name) { return GraphModule::hir(std::move(name)); }
GraphModule GraphBuilder::module() { return GraphModule::from_graph(finish()); }
MirModule GraphBuilder::to_mir() { return MirModule(finish()); }
Graph GraphBuilder::from_hir(const HirModule& hir) { return hir.lower_to_mir().into_graph(); }
Graph GraphBuilder::from_lir(const LirModule& lir) { return lir.into_graph(); }
std::string GraphBuilder::inspect() const { return inspect_graph(b_.graph()); }
std::vector<std::string> GraphBuilder::dynamic_symbols() const {
  std::vector<std::string> out = b_.graph().symbols();
  std::sort(out.begin(), out.end());
  return out;
}
std::string GraphBuilder::inspect_module(const GraphModule& module) { return module.inspect(); }

NodeId GraphBuilder::custom_op(const std::string& name, const std::string& attrs,
                               const Values& inputs) {
  return emit(op::custom.def, CustomAttrs{.name = name, .attrs = attrs}, inputs);
}

NodeId GraphBuilder::custom_op_packed(const std::string& name, const std::string& attrs,
                                      const Values& inputs, const Type& out_shape) {
  return emit(op::custom.def,
              CustomAttrs{name, attrs, /*dtype=*/out_shape.dtype, /*shape=*/out_shape.shape},
              inputs);
}

}  // namespace rlx
