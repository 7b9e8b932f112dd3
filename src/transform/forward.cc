#include "rlx/transform/forward.h"

#include <algorithm>

#include "rlx/ops/rules.h"
#include "rlx/transform/reverse.h"
#include "rlx/transform/walk.h"

namespace rlx {

namespace {

Values forward_range(Builder& b, Range range, Operands outputs, Operands wrt, Operands tangents);

// A linear op moves tangents as it moves values.
Values through_itself(Builder& b, const JvpArgs& a) {
  Values in;
  for (size_t i = 0; i < a.tangents.size(); ++i)
    in.push_back(a.tangents[i].valid() ? a.tangents[i] : zero_derivative(b, b.type(a.in[i])));
  return b.emit(*a.node.op, a.node.attrs, in);
}

// A definition says which codes are only moved.
bool moves_codes(const Graph& g, const JvpArgs& a) {
  for (size_t i = 0; i < a.in.size(); ++i)
    if (a.tangents[i].valid() && !is_differentiable(g.type(a.in[i]).dtype)) return true;
  return false;
}

Values through_decomposition(Builder& b, const JvpArgs& a) {
  const int32_t begin = b.graph().size();
  const Values outputs = b.expand(a.node, a.in);
  return forward_range(b, {begin, b.graph().size()}, outputs, a.in, a.tangents);
}

Values apply_jvp(Builder& b, const JvpArgs& a) {
  const OpDef& op = *a.node.op;
  if (op.jvp)
    if (Values t = op.jvp(b, a); !t.empty()) return t;
  if (op.derivative) return jvp_elementwise(b, a);
  if (op.linear && !(op.decompose && moves_codes(b.graph(), a))) return through_itself(b, a);
  if (op.decompose) return through_decomposition(b, a);
  no_rule("jvp", a.node);
}

}  // namespace

Values tangents_of_node(Builder& b, int32_t i, Operands tangents) {
  const OpDef& op = *b.graph().node(i).op;
  const auto moves = [](Value v) { return v.valid(); };
  const auto differentiable = [&](const Type& t) { return carries(op, t.dtype); };
  Values in(tangents.begin(), tangents.end());
  for (size_t k = 0; k < in.size(); ++k)
    if (in[k].valid() && !differentiable(b.type(b.graph().node(i).in[k]))) in[k] = kNone;
  if (std::none_of(in.begin(), in.end(), moves) || blocks(b.graph().node(i))) return {};
  const Node n = b.graph().node(i);  // a copy: rules append to the graph
  if (std::none_of(n.out.begin(), n.out.end(), differentiable)) return {};
  Values out;
  for (size_t k = 0; k < n.out.size(); ++k) out.push_back({i, static_cast<int32_t>(k)});
  Values found = apply_jvp(b, JvpArgs{n, n.in, out, in, &kBodies});
  check(found.size() == out.size(), "{}: the forward rule gave {} tangents for {} results",
        n.op->name, found.size(), out.size());
  for (size_t k = 0; k < found.size(); ++k)
    if (!differentiable(n.out[k]))
      found[k] = kNone;
    else if (found[k].valid())
      found[k] = settle(b, found[k], derivative_type(n.out[k]), *n.op, "the tangent of result", k);
  return found;
}

namespace {

// One walk from the first node to the last.
class ForwardWalk {
 public:
  explicit ForwardWalk(Builder& b) : b_(b), origin_(b, "jvp") {}

  void seed(Value v, Value tangent) {
    if (v.valid() && tangent.valid()) tangents_[v] = tangent;
  }
  Value tangent(Value v) const { return find(tangents_, v); }

  void visit(int32_t i) {
    Values in;
    for (Value v : b_.graph().node(i).in) in.push_back(tangent(v));
    origin_.of(b_.graph().node(i));
    const Values found = tangents_of_node(b_, i, in);
    for (size_t k = 0; k < found.size(); ++k) seed({i, static_cast<int32_t>(k)}, found[k]);
  }

 private:
  Builder& b_;
  ValueMap tangents_;
  OriginScope origin_;
};

Values forward_range(Builder& b, Range range, Operands outputs, Operands wrt, Operands tangents) {
  check(wrt.size() == tangents.size(), "forward: {} values, {} tangents", wrt.size(),
        tangents.size());
  const std::vector<bool> needed = needed_nodes(b.graph(), outputs, range.begin, range.end);
  ForwardWalk walk(b);
  for (size_t i = 0; i < wrt.size(); ++i) walk.seed(wrt[i], tangents[i]);
  for (int32_t i = range.begin; i < range.end; ++i)
    if (needed[static_cast<size_t>(i - range.begin)]) walk.visit(i);
  Values found;
  for (Value v : outputs) found.push_back(v.valid() ? walk.tangent(v) : kNone);
  return found;
}

}  // namespace

Values forward(Builder& b, Operands outputs, Operands wrt, Operands tangents) {
  for (size_t i = 0; i < std::min(wrt.size(), tangents.size()); ++i)
    if (tangents[i].valid())
      user_check(b.type(tangents[i]) == derivative_type(b.type(wrt[i])), "tangent-type",
                 "jvp: the tangent of {} is {}, it must be {}", describe(b.graph(), wrt[i]),
                 b.type(tangents[i]), derivative_type(b.type(wrt[i])));
  return forward_range(b, range_between(b.graph(), wrt, outputs), outputs, wrt, tangents);
}

namespace {

Graph jvp_graph(const Graph& g, const std::vector<std::string>& names) {
  const Values wrt = find_leaves(g, names, "jvp");
  check_differentiable(g, wrt, "jvp");
  Builder b = builder_of(g, "_jvp");
  Values tangents;
  for (size_t i = 0; i < wrt.size(); ++i)
    tangents.push_back(b.input(free_name(b, "tangent_" + names[i]), g.type(wrt[i])));
  const Values found = forward(b, g.outputs, wrt, tangents);
  OriginScope origin(b, "jvp");
  for (Value v : g.outputs) b.output(v);
  for (size_t i = 0; i < found.size(); ++i) {
    const Type& type = g.type(g.outputs[i]);
    if (is_differentiable(type.dtype)) b.output(found[i].valid() ? found[i] : zeros(b, type));
  }
  return drop_dead(b.finish(), true);
}

}  // namespace

Graph jvp(const Graph& g, const std::vector<std::string>& names) {
  return within_memory([&] { return jvp_graph(g, names); });
}

Graph hvp(const Graph& g, const std::vector<std::string>& wrt) {
  return jvp(value_and_grad(g, wrt, {.zero_missing = true}), wrt);
}

}  // namespace rlx
