#include "rlx/ops/control/body_rules.h"

#include <algorithm>

namespace rlx {

const BodyTransforms& transforms(const BodyTransforms* bodies, const Node& n) {
  check(bodies != nullptr, "{}: the rule was run without the transforms of bodies", n.op->name);
  return *bodies;
}

bool any(const Flags& flags) { return std::find(flags.begin(), flags.end(), true) != flags.end(); }

Flags valid_flags(Operands values) {
  Flags out;
  for (Value v : values) out.push_back(v.valid());
  return out;
}

void append_valid(Values& to, Operands from) {
  for (Value v : from)
    if (v.valid()) to.push_back(v);
}

Value or_zeros(Builder& b, Value v, const Type& type) { return v.valid() ? v : full(b, type, 0); }

Shape without_front(const Shape& s) { return Shape(s.begin() + 1, s.end()); }
Shape with_front(const Dim& front, const Shape& s) {
  Shape out = s;
  out.insert(out.begin(), front);
  return out;
}

Value BodyMaker::input(Value operand, const Type& type) {
  operands.push_back(operand);
  return inner.input(fmt::format("x{}", operands.size() - 1), type);
}

Body BodyMaker::finish(Operands outputs) {
  for (Value v : outputs) inner.output(v);
  return drop_dead(inner.finish());
}

void check_body_inputs(const InferArgs& a, std::string_view body, const Graph& g,
                       std::span<const Type> given) {
  const Values inputs = g.inputs();
  if (inputs.size() != given.size())
    bad_operands(
        a, "body-inputs",
        fmt::format("the {} takes {} inputs but is given {}", body, inputs.size(), given.size()));
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!(g.type(inputs[i]) == given[i]))
      bad_operands(a, "body-inputs",
                   fmt::format("input {} of the {} is {} but is given {}", i, body,
                               g.type(inputs[i]), given[i]));
}

}  // namespace rlx
