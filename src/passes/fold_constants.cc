#include <algorithm>
#include <cmath>

#include "rlx/ops/evaluate.h"
#include "rlx/ops/linalg.h"
#include "rlx/ops/nn.h"
#include "rlx/passes/passes.h"

namespace rlx {

namespace {

// A folded result may be this large, or as large as what it is made of.
constexpr size_t kFoldBytes = 64 * 1024;
// The most scalar operations that one node may cost the compiler: a tenth of a second or so.
constexpr double kFoldWork = 1e7;

// Broadcasts are views: a stored copy would only be larger. How long bodies run is not known.
bool foldable(const Node& n) {
  if (n.in.empty() || n.op == &op::broadcast || n.op->kind == Kind::control) return false;
  for (const Type& t : n.out)
    if (!t.shape.is_static()) return false;
  return true;
}

// No fewer than the scalar operations that the node's value takes.
double work(const Node& n, const Tensors& in) {
  double sum = 0, product = 1;
  auto add = [&](double elements) { sum += elements, product *= elements; };
  for (const Tensor& t : in) add(static_cast<double>(t.elements()));
  for (const Type& t : n.out) add(static_cast<double>(t.shape.elements().value()));
  // A product over batch b: sqrt(bmk * bkn * bmn) >= bmkn.
  if (n.op == &op::matmul || n.op == &op::dot_general) return std::sqrt(product);
  // Every query meets every key.
  if (n.op == &op::attention || n.op == &op::attention_backward || n.op == &op::attention_gradient)
    return static_cast<double>(in[0].elements()) * static_cast<double>(in[1].elements());
  return sum;
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
// no value (an index out of range, say): then the run will say so.
std::optional<Tensors> fold(const Graph& now, const Node& n) {
  Tensors in;
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
    limit += in.back().bytes();
  }
  try {
    for (const Type& t : n.out) size += static_cast<size_t>(t.bytes());
    if (size > std::max(limit, kFoldBytes) || work(n, in) > kFoldWork) return std::nullopt;
    return evaluate_node(n, in);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::resource) throw;
    return std::nullopt;
  }
}

Graph run_fold(const Graph& g, const PassOptions&) {
  Rebuild r(g, "fold_constants");
  for (int32_t i = 0; i < g.size(); ++i) {
    Node n = r.remapped(i);
    std::optional<Tensors> values;
    if (foldable(n)) values = fold(r.builder().graph(), n);
    if (!values) {
      r.push(i, std::move(n));
      continue;
    }
    r.stamp(n);
    Values results;
    for (Tensor& t : *values) results.push_back(r.builder().constant(std::move(t)));
    r.replace(i, std::move(results));
  }
  return r.finish();
}

}  // namespace

constinit const Pass pass::fold_constants{"fold_constants",
                                          "Evaluates nodes whose operands are constants or have no "
                                          "elements, up to 64 KiB or the size of the operands, and "
                                          "ten million operations; no control flow.",
                                          run_fold};

}  // namespace rlx
