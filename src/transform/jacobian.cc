#include "rlx/transform/jacobian.h"

#include <numeric>

#include "rlx/ops/movement/shaping.h"
#include "rlx/ops/rules.h"
#include "rlx/transform/forward.h"
#include "rlx/transform/reverse.h"
#include "rlx/transform/vmap.h"
#include "rlx/transform/walk.h"

namespace rlx {

namespace {

Dim elements(const Shape& shape) {
  Ints axes(shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  return count_of(shape, axes);
}

// Unit vectors of a type, stacked: [n, *shape].
Value basis(Builder& b, const Type& t) {
  const Dim n = elements(t.shape);
  const Value unit =
      op::eye(b, std::initializer_list<Value>{}, {.rows = n, .columns = n, .dtype = t.dtype});
  return reshape_to(b, unit, prepend(n, t.shape));
}

// m, whose leaves are those of the program in b and more, with `along` running over unit vectors and
// the others of `extra` zero.
std::vector<Batched> over_basis(Builder& b, const Graph& m, const std::vector<std::string>& extra,
                                const std::string& along) {
  std::vector<Batched> leaves;
  Dim size = 1;
  for (const Node& n : m.nodes) {
    if (n.op != &op::input && n.op != &op::param) continue;
    const std::string& name = n.get<LeafAttrs>().name;
    if (name == along) {
      size = elements(n.type().shape);
      leaves.push_back({basis(b, n.type()), true});
    } else if (std::find(extra.begin(), extra.end(), name) != extra.end()) {
      leaves.push_back({zeros(b, n.type()), false});
    } else {
      leaves.push_back({b.find_leaf(name), false});
    }
  }
  return vmap_inline(b, m, leaves, size);
}

Shape joined(const Shape& a, const Shape& b) {
  Shape out = a;
  out.insert(out.end(), b.begin(), b.end());
  return out;
}

// The names of the leaves that a transform added.
std::vector<std::string> added_leaves(const Graph& before, const Graph& after) {
  std::vector<std::string> out;
  for (Value v : after.inputs()) {
    const std::string& name = after.node(v).get<LeafAttrs>().name;
    if (!before.find_leaf(name).valid()) out.push_back(name);
  }
  return out;
}

std::vector<size_t> differentiable_outputs(const Graph& g) {
  std::vector<size_t> out;
  for (size_t i = 0; i < g.outputs.size(); ++i)
    if (is_differentiable(g.type(g.outputs[i]).dtype)) out.push_back(i);
  return out;
}

Graph by_columns(const Graph& g, const std::vector<std::string>& names, std::string_view ending) {
  const Graph moved = jvp(g, names);
  const std::vector<std::string> tangents = added_leaves(g, moved);
  const std::vector<size_t> ys = differentiable_outputs(g);
  Builder b = builder_of(g, ending);
  OriginScope origin(b, "jacfwd");
  std::vector<Values> columns(ys.size());
  for (size_t k = 0; k < names.size(); ++k) {
    const std::vector<Batched> found = over_basis(b, moved, tangents, tangents[k]);
    const Shape& x = g.type(g.find_leaf(names[k])).shape;
    for (size_t i = 0; i < ys.size(); ++i) {
      const Batched& slope = found[g.outputs.size() + i];
      const Type& y = g.type(g.outputs[ys[i]]);
      const Shape shape = joined(y.shape, x);
      columns[i].push_back(slope.batched
                               ? reshape_to(b, swap_blocks(b, slope.value, 0, 1, y.rank()), shape)
                               : zeros(b, {y.dtype, shape}));
    }
  }
  for (const Values& of_output : columns)
    for (Value v : of_output) b.output(v);
  return drop_dead(b.finish(), true);
}

Graph by_rows(const Graph& g, const std::vector<std::string>& names) {
  const Graph back = vjp(g, names, {.zero_missing = true});
  const std::vector<std::string> cotangents = added_leaves(g, back);
  const std::vector<size_t> ys = differentiable_outputs(g);
  Builder b = builder_of(g, "_jacrev");
  OriginScope origin(b, "jacrev");
  for (size_t i = 0; i < ys.size(); ++i) {
    const std::vector<Batched> found = over_basis(b, back, cotangents, cotangents[i]);
    const Shape& y = g.type(g.outputs[ys[i]]).shape;
    for (size_t k = 0; k < names.size(); ++k) {
      const Type& x = g.type(g.find_leaf(names[k]));
      const Batched& slope = found[g.outputs.size() + k];
      const Shape shape = joined(y, x.shape);
      b.output(slope.batched ? reshape_to(b, slope.value, shape) : zeros(b, {x.dtype, shape}));
    }
  }
  return drop_dead(b.finish(), true);
}

}  // namespace

Graph jacfwd(const Graph& g, const std::vector<std::string>& wrt) {
  return within_memory([&] { return by_columns(g, wrt, "_jacfwd"); });
}

Graph jacrev(const Graph& g, const std::vector<std::string>& wrt) {
  return within_memory([&] { return by_rows(g, wrt); });
}

Graph hessian(const Graph& g, const std::vector<std::string>& wrt) {
  return within_memory([&] {
    Graph h = by_columns(grad(g, wrt, {.zero_missing = true}), wrt, "");
    h.name = g.name + "_hessian";
    return h;
  });
}

}  // namespace rlx
