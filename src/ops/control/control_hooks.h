// What the rules of control flow ask of the transforms: the derivative or the batched form of a
// body graph.
//
// ops/ lies below transform/, so a rule cannot call a transform by name. Whoever walks a graph
// hands its transforms down in the rule's arguments, as whoever evaluates hands down
// EvalArgs::evaluate:
//
//   // in transform/
//   constexpr BodyTransforms kBodies{.jvp = jvp_of_body, .vjp = vjp_of_body, .vmap = vmap_of_body};
//   op.vjp(b, VjpArgs{node, in, out, cotangents, wanted, &kBodies});
//
// and a rule with bodies reads `a.bodies->vjp(*body, ...)`. Nested control flow works because the
// implementations hand themselves down in the same way.
//
// A body is closed: inputs (bound in order), no parameters, no updates. The graphs that come back
// are closed too, are verified, and have the inputs stated below in this order, all of them even
// when nothing reads one; the names of their inputs are unique and otherwise free.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

struct BodyJvp {
  Graph graph;
  std::vector<bool>
      has_tangent;  // one per output of the body: its tangent is among the outputs of `graph`
};

struct BodyVmap {
  Graph graph;
  std::vector<bool> batched;  // one per output of the body: it has the batch axis, in front
};

struct BodyTransforms {
  // Forward mode. `has_tangent`: one per body input.
  //   inputs:  the body's inputs, then the tangent of each flagged input (its derivative_type)
  //   outputs: the body's outputs, then the tangent of each output whose tangent is not a symbolic
  //            zero (its derivative_type)
  BodyJvp (*jvp)(const Graph& body, const std::vector<bool>& has_tangent) = nullptr;

  // Reverse mode. `wanted`: one per body input; `has_cotangent`: one per body output (the others'
  // cotangents are zero).
  //   inputs:  the body's inputs, then the cotangent of each flagged output (its derivative_type)
  //   outputs: the cotangent of each wanted input (its derivative_type), zeros materialised
  // Callers flag only inputs and outputs that may carry derivatives (rules.h).
  Graph (*vjp)(const Graph& body, const std::vector<bool>& wanted,
               const std::vector<bool>& has_cotangent) = nullptr;

  // `batched`: one per body input, `force`: one per body output.
  //   inputs:  the body's inputs, the flagged ones with the batch axis [size, *] in front
  //   outputs: the body's outputs; those that depend on a batched input, and those forced
  //            (broadcast if need be), have the batch axis in front; the rest are as in the body
  BodyVmap (*vmap)(const Graph& body, const std::vector<bool>& batched, const Dim& size,
                   const std::vector<bool>& force) = nullptr;
};

}  // namespace rlx
