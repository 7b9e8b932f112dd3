// Definitions that were written out, as exporters of models do, become the ops that they define, which have kernels,
// well-conditioned derivatives and names of their own. Rules expect the forms that simplify leaves.
#include <cmath>

#include "rlx/ops/reduce/reduce_rules.h"
#include "rlx/passes/passes.h"
#include "rlx/passes/recognise_rules.h"

namespace rlx {

const Node* made_by(const Graph& g, Value v, OpRef op) {
  const Node& n = g.node(v);
  return n.op == op.op ? &n : nullptr;
}

bool is_about(DType dtype, double have, double wanted) {
  const double unit = std::ldexp(1.0, 1 - info(dtype).digits);
  return std::fabs(have - wanted) <= 2 * unit * std::fabs(wanted);
}

std::optional<double> real_splat(const Graph& g, Value v) {
  const auto value = splat_value(g, v);
  return value && value->imag() == 0 ? std::optional(value->real()) : std::nullopt;
}

Value beside(const Graph& g, const Node& n, double wanted) {
  for (size_t i : {0, 1})
    if (const auto c = real_splat(g, n.in[i]); c && is_about(n.type().dtype, *c, wanted))
      return n.in[1 - i];
  return kNone;
}

namespace {

constexpr size_t kMostFactors = 8, kMostProducts = 16;  // the second with constants too

}  // namespace

Product product_of(const Graph& g, const Node& n) {
  Product p;
  // A walk with the values still to be looked at; what is no product is a factor.
  Values open;
  const auto open_up = [&](const Node& product) {
    if (product.op == &op::mul) {
      open.insert(open.end(), {product.in[1], product.in[0]});
      return true;
    }
    if (product.op != &op::div) return false;
    const auto divisor = real_splat(g, product.in[1]);
    if (!divisor || *divisor == 0) return false;
    p.scale /= *divisor;
    open.push_back(product.in[0]);
    return true;
  };
  open_up(n);
  for (size_t opened = 1; !open.empty();) {
    const Value v = open.back();
    open.pop_back();
    if (const auto constant = real_splat(g, v))
      p.scale *= *constant;
    else if (p.factors.size() + open.size() < kMostFactors && opened < kMostProducts &&
             open_up(g.node(v)))
      ++opened;
    else
      p.factors.push_back(v);
  }
  return p;
}

Product product_of(const Graph& g, Value v) {
  const Node& n = g.node(v);
  const bool is_product = n.op == &op::mul || (n.op == &op::div && real_splat(g, n.in[1]));
  return is_product ? product_of(g, n) : Product{1, {v}};
}

std::optional<Fold> fold_beside(const Graph& g, Value v, OpRef reduction) {
  const Node* n = &g.node(v);
  if (n->op == &op::broadcast && g.type(n->in[0]).rank() == n->type().rank()) n = &g.node(n->in[0]);
  const Shape& lies = n->type().shape;
  if (n->op == &op::reshape) n = &g.node(n->in[0]);
  if (n->op != reduction.op) return std::nullopt;
  const Ints& axes = n->get<ReduceAttrs>().axes;
  const Value x = n->in[0];
  if (axes.size() != 1 || lies != reduced_shape(g.type(x).shape, axes, true)) return std::nullopt;
  return Fold{x, axes[0]};
}

const RuleSet& recognise_rules() {
  static const RuleSet rules = activation_recognisers() + norm_recognisers() +
                               attention_recognisers() + rope_recognisers() + label_recognisers();
  return rules;
}

constinit const Pass pass::recognise{"recognise",
                                     "Definitions that are written out (softmax, norms, gelu, "
                                     "attention, ..) become the ops they define.",
                                     [](Graph&& g, const PassOptions& o) {
                                       return rewrite(std::move(g), recognise_rules(),
                                                      {.pass = "recognise"}, o.stats);
                                     }};

Graph recognised(const Graph& g) {
  Graph out = g;
  const auto outputs = static_cast<int64_t>(g.outputs.size());
  for (Value v : g.params()) out.outputs.push_back(v);  // so that they stay
  RewriteStats stats;
  double work = kPassWork;
  PassOptions options;
  options.work = &work;
  for (const Pass* p : {&pass::simplify, &pass::fold_constants, &pass::cse})
    out = run_pass(std::move(out), *p, options);
  options.stats = &stats;
  out = run_pass(std::move(out), pass::recognise, options);
  out.outputs.erase(out.outputs.begin() + outputs, out.outputs.end());
  return stats.hits.empty() ? g : out;
}

}  // namespace rlx
