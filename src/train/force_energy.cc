#include "rlx/train/force_energy.h"

#include <numeric>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/rules.h"
#include "rlx/transform/reverse.h"
#include "rlx/transform/walk.h"

namespace rlx {

namespace {

Value sum_all(Builder& b, Value x) {
  Ints axes(static_cast<size_t>(b.type(x).rank()));
  std::iota(axes.begin(), axes.end(), 0);
  return axes.empty() ? x : sum_axes(b, x, axes);
}

// The number of elements of a shape, as a value.
Value count_in(Builder& b, const Shape& shape, DType dtype) {
  Ints axes(shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  return dim_value(b, count_of(shape, axes), dtype);
}

Value new_input(Builder& b, const std::string& name, const Type& type) {
  user_check(!name.empty() && !b.find_leaf(name).valid(), "leaf-name",
             "build_force_energy_loss: the name \"{}\" is {}", name,
             name.empty() ? "empty" : "taken");
  return b.input(name, type);
}

}  // namespace

Graph build_force_energy_loss(const Graph& g, const std::vector<std::string>& positions,
                              const std::vector<std::string>& forces, const std::string& energy_ref,
                              const ForceEnergyLossWeights& weights) {
  user_check(!g.outputs.empty(), "output-index",
             "build_force_energy_loss: graph \"{}\" has no output", g.name);
  user_check(!positions.empty() && positions.size() == forces.size() &&
                 (weights.atoms.empty() || weights.atoms.size() == positions.size()),
             "force-names",
             "build_force_energy_loss: {} positions, {} forces and {} weights of atoms",
             positions.size(), forces.size(), weights.atoms.size());
  const Values x = find_leaves(g, positions, "build_force_energy_loss");
  const Value e = g.outputs[0];
  const Type& energy = g.type(e);
  user_check(
      kFloats.has(energy.dtype) && energy.rank() <= 1, "energy-type",
      "build_force_energy_loss: the energy is {}; it must be a real scalar or a vector of them",
      energy);
  Builder b = builder_of(g, "_mlip_loss");
  const Values slopes = gradients(b, sum_all(b, e), x, {.zero_missing = true});
  Value squares = kNone, count = kNone;
  for (size_t i = 0; i < x.size(); ++i) {
    const Type& type = g.type(x[i]);
    const Value wanted = new_input(b, forces[i], type);
    Value off = op::square(b, op::add(b, slopes[i], wanted));
    Value counted = count_in(b, type.shape, type.dtype);
    if (!weights.atoms.empty()) {
      user_check(type.rank() > 0, "force-names",
                 "build_force_energy_loss: \"{}\" is a scalar and has no atoms", positions[i]);
      Shape atoms = type.shape, beside = type.shape;
      atoms.pop_back();
      beside.back() = 1;
      const Value mask = reshape_to(b, new_input(b, weights.atoms[i], {type.dtype, atoms}), beside);
      off = op::mul(b, off, mask);
      counted = sum_all(b, broadcast_to(b, mask, type.shape));
    }
    squares = add_maybe(b, squares, cast_to(b, sum_all(b, off), energy.dtype));
    count = add_maybe(b, count, cast_to(b, counted, energy.dtype));
  }
  const Value reference = new_input(b, energy_ref, energy);
  const Value away = sum_all(b, op::square(b, op::sub(b, e, reference)));
  const Value in_force =
      op::mul(b, op::div(b, squares, count), b.constant(energy.dtype, weights.force));
  const Value in_energy = op::mul(b, op::div(b, away, count_in(b, energy.shape, energy.dtype)),
                                  b.constant(energy.dtype, weights.energy));
  b.output(op::add(b, in_force, in_energy));
  return drop_dead(b.finish(), true);
}

}  // namespace rlx
