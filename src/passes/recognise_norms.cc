// Softmax and norms that are written out.
#include <string>

#include "rlx/base/format.h"
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/nn/nn.h"
#include "rlx/ops/reduce/reduce_rules.h"
#include "rlx/ops/reduce/statistics.h"
#include "rlx/passes/recognise_rules.h"

namespace rlx {

namespace {

using namespace rule_words;

// ---- softmax

// The x and the axis of a difference x - max(x).
std::optional<Fold> below_the_largest(const Graph& g, Value difference) {
  const Node* sub = made_by(g, difference, op::sub);
  if (!sub) return std::nullopt;
  Value largest = sub->in[1];
  if (const Node* stop = made_by(g, largest, op::stop_gradient)) largest = stop->in[0];
  const auto fold = fold_beside(g, largest, op::reduce_max);
  return fold && fold->x == sub->in[0] && is_float(sub->type().dtype) ? fold : std::nullopt;
}

// exp(d) / sum(exp(d)), d = x - max(x).
std::optional<Fold> softmax_of(const Match& m) {
  const Node* exp = made_by(m.graph(), m[x], op::exp);
  const auto sum = fold_beside(m.graph(), m[y], op::reduce_sum);
  if (!exp || !sum || sum->x != m[x]) return std::nullopt;
  const auto fold = below_the_largest(m.graph(), exp->in[0]);
  if (!fold) return missed(m, "the largest of a row is not subtracted before exp");
  if (fold->axis != sum->axis) return missed(m, "largest and sum are along different axes");
  return fold;
}

// d - log(sum(exp(d))), d = x - max(x).
std::optional<Fold> log_softmax_of(const Match& m) {
  const Graph& g = m.graph();
  const auto fold = below_the_largest(g, m[x]);
  const auto sum = fold_beside(g, m[y], op::reduce_sum);
  const Node* exp = sum ? made_by(g, sum->x, op::exp) : nullptr;
  if (!exp || exp->in[0] != m[x]) return std::nullopt;
  if (!fold) return missed(m, "the largest of a row is not subtracted before exp");
  if (fold->axis != sum->axis) return missed(m, "largest and sum are along different axes");
  return fold;
}

// ---- norms

// The mean of x along an axis, beside x: reduce_mean, or a sum over the number of its terms.
std::optional<Fold> mean_beside(const Graph& g, Value v) {
  if (const auto mean = fold_beside(g, v, op::reduce_mean)) return mean;
  if (const Node* quotient = made_by(g, v, op::div)) {  // by a size that is a symbol
    const Node* count = made_by(g, quotient->in[1], op::dim_size);
    const auto sum = count ? fold_beside(g, quotient->in[0], op::reduce_sum) : std::nullopt;
    if (sum && count->get<DimSizeAttrs>().size == g.type(sum->x).shape[at(sum->axis)]) return sum;
  }
  const Product p = product_of(g, v);
  if (p.factors.size() != 1) return std::nullopt;
  const auto sum = fold_beside(g, p.factors[0], op::reduce_sum);
  if (!sum) return std::nullopt;
  const Dim n = g.type(sum->x).shape[at(sum->axis)];
  const bool is_mean = n.is_static() && n.value() > 0 &&
                       is_about(g.type(v).dtype, p.scale, 1 / static_cast<double>(n.value()));
  return is_mean ? sum : std::nullopt;
}

// x - mean(x).
std::optional<Fold> centred(const Graph& g, Value v) {
  const Node* sub = made_by(g, v, op::sub);
  const auto mean = sub ? mean_beside(g, sub->in[1]) : std::nullopt;
  return mean && mean->x == sub->in[0] ? mean : std::nullopt;
}

// 1e-05 for what f32 makes of it.
double as_written(DType dtype, double v) {
  return dtype == DType::F32 ? std::stod(fmt::format("{}", static_cast<float>(v))) : v;
}

// A quantity q in q + eps, eps a constant, under a root.
struct Rooted {
  Value quantity;
  double eps;
};
std::optional<Rooted> under_root(const Graph& g, Value v, OpRef root) {
  const Node* call = made_by(g, v, root);
  const Node* sum = call ? made_by(g, call->in[0], op::add) : nullptr;
  for (size_t i : {0, 1})
    if (const auto eps = sum ? real_splat(g, sum->in[i]) : std::nullopt; eps && *eps >= 0)
      return Rooted{sum->in[1 - i], as_written(sum->type().dtype, *eps)};
  return std::nullopt;
}

// What v is one over: 1 / x, reciprocal(x).
Value one_over(const Graph& g, Value v) {
  if (const Node* n = made_by(g, v, op::reciprocal)) return n->in[0];
  const Node* quotient = made_by(g, v, op::div);
  return quotient && real_splat(g, quotient->in[0]) == 1 ? quotient->in[1] : kNone;
}

// What is scaled by one over the root of a quantity: v / sqrt(q + eps), v * rsqrt(q + eps), v * (1 / sqrt(q + eps)).
struct Scaled {
  Value v;
  Rooted by;
};
std::vector<Scaled> scalings(const Match& m) {
  std::vector<Scaled> out;
  const Graph& g = m.graph();
  const bool is_quotient = m.root().op == &op::div;
  for (size_t i : {1, 0}) {
    const Value by = m.root().in[i], root = is_quotient ? by : one_over(g, by);
    auto rooted = root.valid() ? under_root(g, root, op::sqrt) : std::nullopt;
    if (!rooted && !is_quotient) rooted = under_root(g, by, op::rsqrt);
    if (rooted) out.push_back({m.root().in[1 - i], *rooted});
    if (is_quotient) break;
  }
  return out;
}

// v / (sqrt(q) + eps), v * (rsqrt(q) + eps), v * (1 / (sqrt(q) + eps)): the eps of none of the norms.
std::optional<Scaled> eps_outside(const Match& m) {
  const Graph& g = m.graph();
  const auto read = [&](Value v, Value sum, OpRef root) -> std::optional<Scaled> {
    const Node* n = sum.valid() ? made_by(g, sum, op::add) : nullptr;
    for (size_t i : {0, 1}) {
      const auto eps = n ? real_splat(g, n->in[i]) : std::nullopt;
      const Node* rooted = eps ? made_by(g, n->in[1 - i], root) : nullptr;
      if (rooted) return Scaled{v, {rooted->in[0], *eps}};
    }
    return std::nullopt;
  };
  const Values& in = m.root().in;
  if (m.root().op == &op::div) return read(in[0], in[1], op::sqrt);
  for (size_t i : {0, 1}) {
    if (const auto s = read(in[1 - i], in[i], op::rsqrt)) return s;
    if (const auto s = read(in[1 - i], one_over(g, in[i]), op::sqrt)) return s;
  }
  return std::nullopt;
}

struct Norm {
  Value x;
  int64_t axis;
  double eps;
};

std::optional<Norm> layer_norm_of(const Match& m) {
  const Graph& g = m.graph();
  for (const Scaled& s : scalings(m)) {
    const auto x_of = centred(g, s.v);
    if (!x_of || g.type(s.v) != m.type() || !is_float(m.type().dtype)) continue;
    if (const Node* variance = made_by(g, s.by.quantity, op::variance)) {
      const auto& a = variance->get<VarianceAttrs>();
      if (variance->in[0] == x_of->x && a.axes == Ints{x_of->axis} && a.keepdims &&
          a.correction == 0)
        return Norm{x_of->x, x_of->axis, s.by.eps};
    }
    const auto squares = mean_beside(g, s.by.quantity);
    const Node* square = squares ? made_by(g, squares->x, op::square) : nullptr;
    const auto same = square ? centred(g, square->in[0]) : std::nullopt;
    if (same && same->x == x_of->x && same->axis == x_of->axis && squares->axis == x_of->axis)
      return Norm{x_of->x, x_of->axis, s.by.eps};
    m.refuse("what stands under the root is not the variance of what is centred, along its axis");
  }
  if (const auto s = eps_outside(m); s && centred(g, s->v))
    m.refuse("eps stands outside of the root");
  return std::nullopt;
}

std::optional<Norm> rms_norm_of(const Match& m) {
  const Graph& g = m.graph();
  for (const Scaled& s : scalings(m)) {
    const auto squares = mean_beside(g, s.by.quantity);
    const Node* square = squares ? made_by(g, squares->x, op::square) : nullptr;
    if (square && square->in[0] == s.v && g.type(s.v) == m.type() && is_float(m.type().dtype))
      return Norm{s.v, squares->axis, s.by.eps};
    if (square && !centred(g, square->in[0]))
      m.refuse("what is scaled is not that whose squares stand under the root");
  }
  if (const auto s = eps_outside(m)) {
    const auto squares = mean_beside(g, s->by.quantity);
    const Node* square = squares ? made_by(g, squares->x, op::square) : nullptr;
    if (square && square->in[0] == s->v) m.refuse("eps stands outside of the root");
  }
  return std::nullopt;
}

Value plain_norm(Builder& b, const Op<NormAttrs>& op, const Norm& n) {
  const Type of = b.type(n.x), line{of.dtype, {of.shape[at(n.axis)]}};
  return op(b, {n.x, full(b, line, 1), full(b, line, 0)}, {n.axis, n.eps});
}

// Whether z has an element for each place along the axis of the norm y, and lies beside it.
bool along_the_axis(const Match& m) {
  const int64_t axis = m.get<NormAttrs>(y).axis, rank = m.type(y).rank();
  const Shape& by = m.shape(z);
  if (m.type(y) != m.type() || m.type(z).dtype != m.type().dtype) return false;
  bool along = by.rank() >= rank - axis && by.rank() <= rank;
  for (int64_t i = 0; along && i < by.rank(); ++i) {
    const bool is_axis = i + rank - by.rank() == axis;
    along = by[at(i)] == (is_axis ? m.shape(y)[at(axis)] : Dim(1));
  }
  if (!along) {  // a value of each element, or one for all, is no factor or term of a norm
    if (by.empty() || by == m.shape(y)) return false;
    return m.refuse("what scales or shifts the norm does not lie along its axis alone");
  }
  return m.single_use(y) || m.refuse("the norm is read elsewhere too");
}

// The norm y on other factors or terms; z as they lie, [D].
template <size_t operand>
Value with_operand(Builder& b, const Match& m) {
  Node n = m.node(y);  // a copy: the graph grows
  n.in[operand] = reshape_to(b, m[z], b.shape(n.in[operand]));
  return b.emit(*n.op, n.attrs, n.in)[0];
}

}  // namespace

RuleSet norm_recognisers() {
  return {
      {"softmax", pat(op::div, {x, y}), [](const Match& m) { return softmax_of(m).has_value(); },
       [](Builder& b, const Match& m) {
         const Fold f = *softmax_of(m);
         return op::softmax(b, f.x, {f.axis});
       }},
      {"log-softmax", pat(op::sub, {x, pat(op::log, {y})}),
       [](const Match& m) { return log_softmax_of(m).has_value(); },
       [](Builder& b, const Match& m) {
         const Fold f = *log_softmax_of(m);
         return op::log_softmax(b, f.x, {f.axis});
       }},
      {"log-softmax-by-logsumexp", pat(op::sub, {x, y}),
       [](const Match& m) {
         const auto f = fold_beside(m.graph(), m[y], op::logsumexp);
         return f && f->x == m[x];
       },
       [](Builder& b, const Match& m) {
         return op::log_softmax(b, m[x], {fold_beside(m.graph(), m[y], op::logsumexp)->axis});
       }},
      {"layer-norm", pat({op::div, op::mul}, {x, y}),
       [](const Match& m) { return layer_norm_of(m).has_value(); },
       [](Builder& b, const Match& m) { return plain_norm(b, op::layer_norm, *layer_norm_of(m)); }},
      {"rms-norm", pat({op::div, op::mul}, {x, y}),
       [](const Match& m) { return rms_norm_of(m).has_value(); },
       [](Builder& b, const Match& m) { return plain_norm(b, op::rms_norm, *rms_norm_of(m)); }},
      {"norm-scale", pat(op::mul, {pat({op::layer_norm, op::rms_norm}, {x, one, zero}).as(y), z}),
       along_the_axis, with_operand<1>},
      {"norm-shift", pat(op::add, {pat({op::layer_norm, op::rms_norm}, {x, c, zero}).as(y), z}),
       along_the_axis, with_operand<2>},
  };
}

}  // namespace rlx
