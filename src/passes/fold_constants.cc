#include <algorithm>

#include "rlx/ops/evaluate.h"
#include "rlx/passes/passes.h"

namespace rlx {

namespace {

// A folded result may be this large, or as large as what it is made of.
constexpr size_t kFoldBytes = 64 * 1024;
// Broadcasts are views: a stored copy would only be larger. How long bodies run is not known.
bool foldable(const Node& n) {
  if (n.op == &op::dim_size) return n.get<DimSizeAttrs>().size.is_static();
  if (n.in.empty() || n.op == &op::broadcast || n.op->kind == Kind::control) return false;
  for (const Type& t : n.out)
    if (!t.shape.is_static()) return false;
  return true;
}

bool is_empty(const Type& t) { return t.shape.is_static() && t.shape.elements().value() == 0; }

// The value, when it is known: that of a constant, and all there is of a tensor without elements.
std::optional<Tensor> known(const Graph& now, Value v) {
  if (now.node(v).op == &op::constant) return now.node(v).get<ConstantAttrs>().value;
  const Type& t = now.type(v);
  if (is_empty(t)) return Tensor(t.dtype, t.shape.sizes());
  return std::nullopt;
}

// The values of the node, or nothing when it is not made of constants, too large, too much work, or has
// no value (an index out of range, say): then the run will say so. `work` is what may still be spent.
std::optional<Tensors> fold(const Graph& now, const Node& n, double& work) {
  Tensors in;
  Types types;
  size_t limit = 0, size = 0;
  if (std::all_of(n.out.begin(), n.out.end(), is_empty)) {
    Tensors nothing;
    for (const Type& t : n.out) nothing.emplace_back(t.dtype, t.shape.sizes());
    return nothing;
  }
  for (Value v : n.in) {
    const std::optional<Tensor> value = known(now, v);
    if (!value) return std::nullopt;
    in.push_back(*value);
    types.push_back(value->type());
    limit += in.back().bytes();
  }
  try {
    for (const Type& t : n.out) size += static_cast<size_t>(t.bytes());
    if (size > std::max(limit, kFoldBytes)) return std::nullopt;
    const double cost = evaluation_cost(n, types);
    if (!(cost <= work)) return std::nullopt;
    work -= cost;
    return evaluate_node(n, in);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::resource) throw;
    return std::nullopt;
  }
}

Graph run_fold(Graph&& g, const PassOptions& options) {
  double own = kPassWork, &work = options.work ? *options.work : own;
  Rebuild r(std::move(g), "fold_constants");
  for (int32_t i = 0; i < r.size(); ++i) {
    const Node& n = r.node(i);
    std::optional<Tensors> values;
    if (foldable(n)) values = fold(r.graph(), n, work);
    if (!values) {
      r.keep(i);
      continue;
    }
    r.stamp(n);
    Values results;
    for (Tensor& t : *values) results.push_back(r.builder().constant(std::move(t)));
    r.replace(i, results);
  }
  return r.finish();
}

}  // namespace

constinit const Pass pass::fold_constants{"fold_constants",
                                          "Evaluates nodes whose operands are constants or have no "
                                          "elements, up to 64 KiB or the size of the operands, and "
                                          "ten million operations in a program; no control flow.",
                                          run_fold};

}  // namespace rlx
