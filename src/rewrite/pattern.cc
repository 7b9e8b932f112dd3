#include "rlx/rewrite/pattern.h"

#include <cstring>

namespace rlx {

namespace {

// What a chain of broadcasts and reshapes starts from.
Value unmoved(const Graph& g, Value v) {
  while (g.node(v).op == &op::broadcast || g.node(v).op == &op::reshape) v = g.node(v).in[0];
  return v;
}

}  // namespace

bool is_splat(const Tensor& t) {
  const auto bytes = static_cast<size_t>(size_of(t.dtype()));
  return t.elements() > 0 && std::memcmp(t.raw(), t.raw() + bytes, t.bytes() - bytes) == 0;
}

Tensor first_element(const Tensor& t) {
  return Tensor::from_bytes(t.dtype(), {}, t.raw(), static_cast<size_t>(size_of(t.dtype())));
}

std::optional<Complex> splat_value(const Graph& g, Value v) {
  const Node& n = g.node(unmoved(g, v));
  if (n.op != &op::constant || !is_splat(n.get<ConstantAttrs>().value)) return std::nullopt;
  return n.get<ConstantAttrs>().value.get_complex(0);
}

bool same_elements(const Graph& g, Value a, Value b) {
  if (a == b) return true;
  const Node *x = &g.node(unmoved(g, a)), *y = &g.node(unmoved(g, b));
  for (const Node* n : {x, y})
    if (n->op != &op::constant || !is_splat(n->get<ConstantAttrs>().value)) return false;
  return first_element(x->get<ConstantAttrs>().value)
      .same_bits(first_element(y->get<ConstantAttrs>().value));
}

Value splat_scalar(Builder& b, Value v) {
  v = unmoved(b.graph(), v);
  return b.type(v).rank() == 0 ? v
                               : b.constant(first_element(b.node(v).get<ConstantAttrs>().value));
}

Pattern pat(OpRef op) {
  Pattern p(Pattern::Form::node);
  p.ops = {op.op};
  return p;
}

Pattern pat(OpRef op, std::vector<Pattern> operands) { return pat({op}, std::move(operands)); }

Pattern pat(std::initializer_list<OpRef> ops) {
  Pattern p(Pattern::Form::node);
  for (const OpRef& o : ops) p.ops.push_back(o.op);
  return p;
}

Pattern pat(std::initializer_list<OpRef> ops, std::vector<Pattern> operands) {
  Pattern p = pat(ops);
  p.operands = std::move(operands);
  return p;
}

Pattern pat(Kind kind) {
  Pattern p(Pattern::Form::node);
  p.kind = kind;
  return p;
}

Pattern constant_splat(Pattern::SplatTest test) {
  Pattern p(Pattern::Form::splat);
  p.test = test;
  return p;
}

bool matches_op(const Pattern& p, const OpDef& op) {
  if (p.form != Pattern::Form::node) return false;
  if (p.ops.empty()) return op.kind == p.kind;
  for (const OpDef* candidate : p.ops)
    if (candidate == &op) return true;
  return false;
}

bool Match::bind(int var, Value v) {
  if (var < 0) return true;
  Value& slot = values_[static_cast<size_t>(var)];
  if (slot.valid()) return slot == v;
  slot = v;
  return true;
}

// Recursion follows the pattern, which is small, not the graph.
bool Match::match_value(const Pattern& p, Value v) {
  if (p.form == Pattern::Form::splat) {
    const std::optional<Complex> value = splat_value(graph_, v);
    if (!value || !p.test(graph_.type(v).dtype, *value)) return false;
  } else if (p.form == Pattern::Form::node) {
    if (v.index != 0 || !matches_op(p, *graph_.node(v).op) || !match_operands(p, graph_.node(v)))
      return false;
  }
  return bind(p.var, v);
}

bool Match::match_operands(const Pattern& p, const Node& n) {
  if (!p.operands) return true;
  const std::vector<Pattern>& want = *p.operands;
  if (want.size() != n.in.size()) return false;
  const auto saved = values_;
  bool all = true;
  for (size_t i = 0; all && i < want.size(); ++i) all = match_value(want[i], n.in[i]);
  if (all) return true;
  values_ = saved;
  if (!n.op->commutative || want.size() != 2) return false;
  if (match_value(want[0], n.in[1]) && match_value(want[1], n.in[0])) return true;
  values_ = saved;
  return false;
}

bool Match::run(const Pattern& p) {
  values_.fill(kNone);
  return matches_op(p, *root_.op) && match_operands(p, root_);
}

}  // namespace rlx
