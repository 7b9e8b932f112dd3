#include "rlx/transform/linear.h"

#include <algorithm>

#include "rlx/ops/control/unread.h"
#include "rlx/ops/rules.h"
#include "rlx/transform/dependence.h"
#include "rlx/transform/forward.h"
#include "rlx/transform/reverse.h"
#include "rlx/transform/walk.h"

namespace rlx {

namespace {

bool is_leaf(const Node& n) { return n.op == &op::input || n.op == &op::param; }

// Which nodes depend on one of these; a node depends on itself.
std::vector<bool> dependents(const Graph& g, FunctionRef<bool(const Node&)> on) {
  std::vector<bool> out(g.nodes.size(), false);
  for (size_t i = 0; i < out.size(); ++i) {
    const Node& n = g.nodes[i];
    out[i] = on(n) || std::any_of(n.in.begin(), n.in.end(),
                                  [&](Value v) { return out[static_cast<size_t>(v.node)]; });
  }
  return out;
}

bool is_named(const Node& n, const std::vector<std::string>& names) {
  return is_leaf(n) &&
         std::find(names.begin(), names.end(), n.get<LeafAttrs>().name) != names.end();
}

// Copies nodes of a graph into a builder.
class Copier {
 public:
  Copier(Builder& b, const Graph& g) : b_(b), g_(g), made_(g.nodes.size()) {}
  void copy(int32_t i) {
    const Node& n = g_.node(i);
    Values in;
    for (Value v : n.in) in.push_back(at(v));
    b_.set_origin(n.origin);
    made_[static_cast<size_t>(i)] = b_.clone(n, in);
  }
  void bind(Value v, Value to) {
    Values& made = made_[static_cast<size_t>(v.node)];
    if (made.empty()) made = Values(g_.node(v).out.size(), kNone);
    made[static_cast<size_t>(v.index)] = to;
  }
  Value at(Value v) const {
    return made_[static_cast<size_t>(v.node)][static_cast<size_t>(v.index)];
  }

 private:
  Builder& b_;
  const Graph& g_;
  std::vector<Values> made_;
};

Linearized split(const Graph& g, const std::vector<std::string>& names) {
  const Graph moved = jvp(g, names);
  const auto is_tangent = [&](const Node& n) {
    return is_leaf(n) && !g.find_leaf(n.get<LeafAttrs>().name).valid();
  };
  const std::vector<bool> moves = dependents(moved, is_tangent);
  const std::vector<bool> varies =  // the others are made of constants
      dependents(moved, [](const Node& n) { return is_leaf(n); });
  const auto depends = [&](Value v) { return moves[static_cast<size_t>(v.node)]; };
  const auto constant = [&](Value v) { return !varies[static_cast<size_t>(v.node)]; };

  const Operands outputs(moved.outputs.begin(), moved.outputs.size());
  const Operands ys = outputs.first(g.outputs.size()), slopes = outputs.subspan(ys.size());
  Values residuals;
  const auto read = [&](Value v) {
    if (!depends(v) && !constant(v) &&
        std::find(residuals.begin(), residuals.end(), v) == residuals.end())
      residuals.push_back(v);
  };
  for (int32_t i = 0; i < moved.size(); ++i)
    if (moves[static_cast<size_t>(i)])
      for (Value v : moved.node(i).in) read(v);
  for (Value v : slopes) read(v);

  Linearized out;
  out.residuals = residuals.size();
  Builder value(g.name + "_value"), tangent(g.name + "_tangent");
  Copier forward(value, moved), linear(tangent, moved);
  for (size_t i = 0; i < residuals.size(); ++i)
    linear.bind(residuals[i],
                tangent.input(fmt::format("residual_{}", i), moved.type(residuals[i])));
  for (int32_t i = 0; i < moved.size(); ++i) {
    const auto at = static_cast<size_t>(i);
    if (!moves[at]) forward.copy(i);
    if (moves[at] || !varies[at]) linear.copy(i);
  }
  for (Value v : ys) value.output(forward.at(v));
  for (Value v : residuals) value.output(forward.at(v));
  for (const Update& u : moved.updates) value.update(u.param, forward.at(u.value));
  for (Value v : slopes) tangent.output(linear.at(v));
  out.value = drop_dead(value.finish(), true);
  out.tangent = drop_dead(tangent.finish(), true);
  return out;
}

Graph transposed(const Graph& g, const std::vector<std::string>& names) {
  Graph back = vjp(g, names, {.zero_missing = true});
  back.outputs.erase(back.outputs.begin(),
                     back.outputs.begin() + static_cast<int64_t>(g.outputs.size()));
  back.updates.clear();
  // What a loop hands to its derivative, in case that reads it: a linear one's does not.
  back = drop_unread(std::move(back));
  const ResultFlags bent = dependence(back, [&](const Node& n) { return is_named(n, names); });
  const auto is_bent = [&](Value v) {
    return bent[static_cast<size_t>(v.node)][static_cast<size_t>(v.index)];
  };
  for (Value v : back.outputs) {
    user_check(!is_bent(v) || !is_leaf(back.node(v)), "not-linear",
               "linear_transpose: \"{}\" is not linear in {}: a cotangent is {}", g.name,
               fmt::join(names, ", "), describe(back, v));
    for (int32_t i = 0; is_bent(v) && i < back.size(); ++i)
      user_check(
          is_leaf(back.node(i)) || !std::ranges::count(bent[static_cast<size_t>(i)], true),
          "not-linear",
          "linear_transpose: \"{}\" is not linear in {}: its derivative depends on it (%{} {})",
          g.name, fmt::join(names, ", "), i, back.node(i).op->name);
  }
  // What the results do not depend on may still be carried along beside what they do: there the leaves are zeros.
  Builder b(g.name + "_transpose");
  Copier copier(b, back);
  for (int32_t i = 0; i < back.size(); ++i) {
    if (is_named(back.node(i), names))
      copier.bind({i, 0}, zeros(b, back.node(i).type()));
    else
      copier.copy(i);
  }
  for (Value v : back.outputs) b.output(copier.at(v));
  return drop_dead(b.finish(), true);
}

}  // namespace

Linearized linearize(const Graph& g, const std::vector<std::string>& wrt) {
  return within_memory([&] { return split(g, wrt); });
}

Graph linear_transpose(const Graph& g, const std::vector<std::string>& wrt) {
  return within_memory([&] { return transposed(g, wrt); });
}

}  // namespace rlx
