#include "rlx/transform/higher_order.h"

#include <numeric>

#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/rules.h"
#include "rlx/transform/reverse.h"
#include "rlx/transform/walk.h"

namespace rlx {

namespace {

constexpr GradOptions kVanishing{.zero_missing = true};

Value function_of(const Graph& g) {
  user_check(!g.outputs.empty(), "output-index", "grad: graph \"{}\" has no output", g.name);
  return g.outputs[0];
}

Graph finish(Builder& b, Value result) {
  b.output(result);
  return drop_dead(b.finish(), true);
}

}  // namespace

Graph nth_order_grad(const Graph& g, const std::string& wrt, int order) {
  user_check(order >= 0, "order-range", "nth_order_grad: the order cannot be {}", order);
  const Value x = find_leaves(g, {wrt}, "nth_order_grad")[0];
  user_check(
      g.type(x).rank() == 0, "wrt-scalar",
      "nth_order_grad: \"{}\" is {}; it must be a scalar (directional_nth_grad takes tensors)", wrt,
      g.type(x));
  Value f = function_of(g);
  if (order == 0) return g;
  Builder b = builder_of(g, fmt::format("_d{}", order));
  for (int level = 0; level < order; ++level) f = gradients(b, f, {&x, 1}, kVanishing)[0];
  return finish(b, f);
}

Graph directional_nth_grad(const Graph& g, const std::string& wrt,
                           const std::vector<std::string>& directions) {
  const Value x = find_leaves(g, {wrt}, "directional_nth_grad")[0];
  Value f = function_of(g);
  if (directions.empty()) return g;
  Builder b = builder_of(g, fmt::format("_dir_d{}", directions.size()));
  Ints axes(static_cast<size_t>(g.type(x).rank()));
  std::iota(axes.begin(), axes.end(), 0);
  for (size_t level = 0; level < directions.size(); ++level) {
    const std::string name =
        directions[level].empty() ? fmt::format("dir_{}", level) : directions[level];
    user_check(!b.find_leaf(name).valid(), "leaf-name",
               "directional_nth_grad: the name \"{}\" is taken", name);
    const Value direction = b.input(name, g.type(x));
    const Value slope = gradients(b, f, {&x, 1}, kVanishing)[0];
    f = sum_axes(b, op::mul(b, slope, direction), axes);
  }
  return finish(b, f);
}

}  // namespace rlx
