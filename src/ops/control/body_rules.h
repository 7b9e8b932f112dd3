// What the rules of ops with bodies share.
#pragma once

#include "rlx/ir/builder.h"
#include "rlx/ops/control/control_hooks.h"
#include "rlx/ops/rules.h"

namespace rlx {

using Flags = std::vector<bool>;

// The transforms that the rule was given; a rule of an op with bodies always gets them.
const BodyTransforms& transforms(const BodyTransforms* bodies, const Node& n);

bool any(const Flags& flags);
Flags valid_flags(Operands values);
void append_valid(Values& to, Operands from);
Value or_zeros(Builder& b, Value v, const Type& type);
Shape without_front(const Shape& s);
Shape with_front(const Dim& front, const Shape& s);

// A body under construction: each of its inputs stands for an operand of the node to be.
struct BodyMaker {
  Builder inner;
  Values operands;  // in the outer graph

  explicit BodyMaker(std::string name) : inner(std::move(name)) {}
  Value input(Value operand, const Type& type);
  int64_t size() const { return static_cast<int64_t>(operands.size()); }
  // What the outputs do not need goes away; the inputs stay.
  Body finish(Operands outputs);
};

// Raises "body-inputs" unless the body takes exactly these types.
void check_body_inputs(const InferArgs& a, std::string_view body, const Graph& g,
                       std::span<const Type> given);

}  // namespace rlx
