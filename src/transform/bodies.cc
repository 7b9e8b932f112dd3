// The transforms of body graphs, as ops/control/control_hooks.h asks for them.
#include "rlx/ops/rules.h"
#include "rlx/transform/forward.h"
#include "rlx/transform/reverse.h"
#include "rlx/transform/vmap.h"
#include "rlx/transform/walk.h"

namespace rlx {

namespace {

BodyJvp jvp_of_body(const Graph& body, const std::vector<bool>& has_tangent) {
  Builder b = builder_of(body, "_jvp");
  const Values inputs = body.inputs();
  Values tangents;
  for (size_t i = 0; i < inputs.size(); ++i)
    tangents.push_back(has_tangent[i] ? b.input(free_name(b, fmt::format("tangent_{}", i)),
                                                derivative_type(b.type(inputs[i])))
                                      : kNone);
  const Values found = forward(b, body.outputs, inputs, tangents);
  BodyJvp result;
  for (Value v : body.outputs) b.output(v);
  for (Value v : found) {
    result.has_tangent.push_back(v.valid());
    if (v.valid()) b.output(v);
  }
  result.graph = drop_dead(b.finish());
  return result;
}

Graph vjp_of_body(const Graph& body, const std::vector<bool>& wanted,
                  const std::vector<bool>& has_cotangent) {
  Builder b = builder_of(body, "_grad");
  const Values inputs = body.inputs();
  Values cotangents, wrt;
  for (size_t i = 0; i < body.outputs.size(); ++i)
    cotangents.push_back(has_cotangent[i] ? b.input(free_name(b, fmt::format("d_{}", i)),
                                                    derivative_type(b.type(body.outputs[i])))
                                          : kNone);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (wanted[i]) wrt.push_back(inputs[i]);
  const Values found = reverse(b, body.outputs, cotangents, wrt);
  for (size_t i = 0; i < wrt.size(); ++i)
    b.output(found[i].valid() ? found[i] : zero_derivative(b, b.type(wrt[i])));
  return drop_dead(b.finish());
}

BodyVmap vmap_of_body(const Graph& body, const std::vector<bool>& batched, const Dim& size,
                      const std::vector<bool>& force) {
  Builder b(body.name + "_vmap");
  std::vector<Batched> leaves;
  const Values inputs = body.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    LeafAttrs attrs = body.node(inputs[i]).get<LeafAttrs>();
    if (batched[i]) attrs.shape.insert(attrs.shape.begin(), size);
    leaves.push_back({b.input(attrs.name, {attrs.dtype, attrs.shape}), batched[i]});
  }
  BodyVmap result;
  const std::vector<Batched> found = vmap_inline(b, body, leaves, size);
  for (size_t i = 0; i < found.size(); ++i) {
    const bool spread = force[i] && !found[i].batched;
    b.output(spread ? batch_operand(b, found[i].value, size) : found[i].value);
    result.batched.push_back(found[i].batched || spread);
  }
  result.graph = drop_dead(b.finish());
  return result;
}

}  // namespace

constinit const BodyTransforms kBodies{
    .jvp = jvp_of_body, .vjp = vjp_of_body, .vmap = vmap_of_body};

}  // namespace rlx
