#include "rlx/transform/reverse.h"

#include <algorithm>

#include "rlx/ops/rules.h"
#include "rlx/transform/forward.h"
#include "rlx/transform/walk.h"

namespace rlx {

namespace {

Values reverse_range(Builder& b, Range range, Operands outputs, Operands cotangents, Operands wrt);

// Swaps node i for the form of it that saves residuals, when that is one node on the same operands.
void save_residuals(Builder& b, int32_t i) {
  const Node n = b.graph().node(i);
  Builder scratch;
  scratch.set_origin(n.origin);
  Values in;
  for (size_t k = 0; k < n.in.size(); ++k)
    in.push_back(scratch.input(std::to_string(k), b.type(n.in[k])));
  n.op->with_residuals(scratch, n, in);
  Node saved = scratch.graph().nodes.back();
  check(scratch.graph().size() == static_cast<int32_t>(in.size()) + 1 && saved.in == in,
        "{}: with_residuals shall emit one node on the operands", n.op->name);
  check(
      saved.out.size() >= n.out.size() && std::equal(n.out.begin(), n.out.end(), saved.out.begin()),
      "{}: with_residuals shall keep the results", n.op->name);
  saved.in = n.in;
  b.mutable_graph().node(i) = std::move(saved);
}

// The reverse rule of a node from its forward rule: jvp is linear in the tangents, so walking back
// over the nodes it emits for placeholder tangents gives the transpose. {} when that would need the
// rule it is meant to supply.
Values transpose_of_jvp(Builder& b, const VjpArgs& a) {
  Builder s("transpose");
  s.set_origin({a.node.origin.label, "grad"});
  Values bound;  // what each input of the scratch graph stands for
  auto placeholder = [&](Value v, const Type& type) {
    bound.push_back(v);
    return s.input(std::to_string(bound.size()), type);
  };
  Values in, out, cotangents, tangents, seeds, results, wanted;
  for (Value v : a.in) in.push_back(placeholder(v, b.type(v)));
  for (Value v : a.out) out.push_back(placeholder(v, b.type(v)));
  for (Value v : a.cotangents) cotangents.push_back(v.valid() ? placeholder(v, b.type(v)) : kNone);
  for (size_t i = 0; i < a.in.size(); ++i) {
    tangents.push_back(a.wanted[i] ? placeholder(kNone, derivative_type(b.type(a.in[i]))) : kNone);
    if (a.wanted[i]) wanted.push_back(tangents.back());
  }
  const Values moved = a.node.op->jvp(s, JvpArgs{a.node, in, out, tangents, a.bodies});
  const auto moving = active_values(s.graph(), wanted, 0, s.graph().size());
  for (const Node& n : s.graph().nodes)
    if (n.op == a.node.op &&
        std::any_of(n.in.begin(), n.in.end(), [&](Value v) { return moving.contains(v); }))
      return {};
  for (size_t j = 0; j < moved.size(); ++j)
    if (moved[j].valid() && cotangents[j].valid())
      results.push_back(moved[j]), seeds.push_back(cotangents[j]);
  const Values found = reverse(s, results, seeds, wanted);
  for (Value v : found)
    if (v.valid()) s.output(v);
  const Values inlined = b.inline_graph(drop_dead(s.graph()), bound);
  Values gradients(a.in.size(), kNone);
  size_t next = 0, given = 0;
  for (size_t i = 0; i < a.in.size(); ++i)
    if (a.wanted[i] && found[next++].valid()) gradients[i] = inlined[given++];
  return gradients;
}

// Differentiates the decomposition of a node instead.
Values through_decomposition(Builder& b, const VjpArgs& a) {
  const int32_t begin = b.graph().size();
  const Values outputs = b.expand(a.node, a.in);
  Values wrt;
  for (size_t i = 0; i < a.in.size();
       ++i) {  // an operand that appears twice collects its gradient once
    const bool first = std::find(a.in.begin(), a.in.begin() + static_cast<int64_t>(i), a.in[i]) ==
                       a.in.begin() + static_cast<int64_t>(i);
    wrt.push_back(a.wanted[i] && first ? a.in[i] : kNone);
  }
  return reverse_range(b, {begin, b.graph().size()}, outputs, a.cotangents, wrt);
}

Values apply_vjp(Builder& b, const VjpArgs& a, FunctionRef<std::string()> path) {
  const OpDef& op = *a.node.op;
  if (op.vjp) {
    Values g = op.vjp(b, a);
    if (!g.empty() || a.in.empty()) return g;
    if (op.decompose) return through_decomposition(b, a);
  }
  if (op.derivative) return vjp_elementwise(b, a);
  if (op.jvp)
    if (Values g = transpose_of_jvp(b, a); !g.empty()) return g;
  if (op.decompose) return through_decomposition(b, a);
  no_rule("grad", a.node, path());
}

// One walk from the last node to the first, with the cotangents met so far.
class ReverseWalk {
 public:
  ReverseWalk(Builder& b, Range range, Operands outputs, Operands wrt)
      : b_(b),
        range_(range),
        outputs_(outputs),
        active_(active_values(b.graph(), wrt, range.begin, range.end)),
        origin_(b, "grad") {}

  void seed(Value v, Value cotangent) {
    if (v.valid() && cotangent.valid()) accumulate(v, cotangent);
  }

  void run() {
    for (int32_t i = range_.end; i-- > range_.begin;) visit(i);
  }

  // All that was met of it so far, as one value.
  Value cotangent(Value v) {
    if (const auto more = more_.find(v); more != more_.end()) {
      Value& all = cotangents_.at(v);
      const More& m = more->second;
      all = m.wide.valid() ? cast_to(b_, m.wide, b_.type(v).dtype) : add_maybe(b_, all, m.second);
      more_.erase(more);
    }
    return find(cotangents_, v);
  }

 private:
  void visit(int32_t i) {
    const size_t results = b_.graph().node(i).out.size();
    bool reached = false;
    for (size_t k = 0; k < results; ++k)
      reached |= cotangents_.contains({i, static_cast<int32_t>(k)});
    if (!reached || b_.graph().node(i).in.empty()) return;
    std::vector<bool> wanted;
    for (Value v : b_.graph().node(i).in)
      wanted.push_back(active_.contains(v) && carries(*b_.graph().node(i).op, b_.type(v).dtype));
    if (blocks(b_.graph().node(i)) || std::find(wanted.begin(), wanted.end(), true) == wanted.end())
      return;
    const Node n = b_.graph().node(i);  // a copy: rules append to the graph
    if (n.op->with_residuals) save_residuals(b_, i);
    origin_.of(n);
    Values out, cotangents;
    for (size_t k = 0; k < b_.graph().node(i).out.size(); ++k)
      out.push_back({i, static_cast<int32_t>(k)});
    for (size_t k = 0; k < n.out.size(); ++k) cotangents.push_back(cotangent(out[k]));
    const Values found = apply_vjp(b_, VjpArgs{n, n.in, out, cotangents, wanted, &kBodies},
                                   [&] { return path_back(b_.graph(), outputs_, i); });
    check(found.size() == n.in.size(), "{}: the reverse rule gave {} cotangents for {} operands",
          n.op->name, found.size(), n.in.size());
    for (size_t k = 0; k < found.size(); ++k) {
      if (!wanted[k] || !found[k].valid()) continue;
      accumulate(n.in[k], settle(b_, found[k], derivative_type(b_.type(n.in[k])), *n.op,
                                 "the cotangent of operand", k));
    }
  }

  void accumulate(Value v, Value cotangent) {
    if (!active_.contains(v)) return;
    auto [it, fresh] = cotangents_.emplace(v, cotangent);
    if (fresh) return;
    if (!is_narrow(b_.type(v).dtype)) {
      it->second = add_maybe(b_, it->second, cotangent);
      return;
    }
    More& more = more_[v];
    const auto wide = [&](Value x) { return cast_to(b_, x, wide_of(b_.type(v).dtype)); };
    if (!more.second.valid()) {
      more.second = cotangent;
      return;
    }
    if (!more.wide.valid()) more.wide = add_maybe(b_, wide(it->second), wide(more.second));
    more.wide = add_maybe(b_, more.wide, wide(cotangent));
  }

  // What comes after the first cotangent of an f16 or bf16: a second one, and from a third on their sum in f32, for a sum
  // of many in 16 bits would stop to grow.
  struct More {
    Value second = kNone, wide = kNone;
  };

  Builder& b_;
  Range range_;
  Operands outputs_;
  ValueSet active_;
  ValueMap cotangents_;
  std::unordered_map<Value, More, ValueHash> more_;
  OriginScope origin_;
};

Values reverse_range(Builder& b, Range range, Operands outputs, Operands cotangents, Operands wrt) {
  check(outputs.size() == cotangents.size(), "reverse: {} outputs, {} cotangents", outputs.size(),
        cotangents.size());
  Values found;
  ReverseWalk walk(b, range, outputs, wrt);
  for (size_t i = 0; i < outputs.size(); ++i) walk.seed(outputs[i], cotangents[i]);
  walk.run();
  for (Value v : wrt) found.push_back(v.valid() ? walk.cotangent(v) : kNone);
  return found;
}

// Why nothing arrives at `leaf`: no path at all, or the op that ends it.
std::string why_no_gradient(const Graph& g, Operands outputs, Value leaf) {
  const Range range = range_between(g, {&leaf, 1}, outputs);
  const std::vector<bool> needed = needed_nodes(g, outputs, range.begin, range.end);
  const ValueSet active = active_values(g, {&leaf, 1}, range.begin, range.end);
  std::string blocked;
  for (int32_t i = range.begin; i < range.end; ++i) {
    const Node& n = g.node(i);
    if (!needed[static_cast<size_t>(i - range.begin)]) continue;
    if (std::none_of(n.in.begin(), n.in.end(), [&](Value v) { return active.contains(v); }))
      continue;
    if (blocks(n))
      return fmt::format("the path ends at %{} {}: {} ({})", i, n.op->name,
                         n.op->not_differentiable, path_back(g, outputs, i));
    if (std::none_of(n.out.begin(), n.out.end(),
                     [&](const Type& t) { return carries(*n.op, t.dtype); }))
      blocked = fmt::format("the path ends at %{} {}: its result is {} ({})", i, n.op->name,
                            n.out[0].dtype, path_back(g, outputs, i));
  }
  return blocked.empty() ? "no output depends on it through differentiable operands" : blocked;
}

void fill_missing(Builder& b, Values& found, Operands outputs, Operands wrt,
                  const GradOptions& options) {
  OriginScope origin(b, "grad");
  for (size_t i = 0; i < wrt.size(); ++i) {
    if (found[i].valid()) continue;
    if (!options.zero_missing)
      fail(ErrorKind::user, "no-gradient", "grad: no gradient reaches {}: {}",
           describe(b.graph(), wrt[i]), why_no_gradient(b.graph(), outputs, wrt[i]));
    found[i] = zeros(b, b.type(wrt[i]));
  }
}

// The graph with new outputs, without what they do not need; every leaf stays.
Graph finish(Builder& b, const Graph& forward, const Values& gradients, bool keep_values) {
  if (keep_values)
    for (Value v : forward.outputs) b.output(v);
  for (Value v : gradients) b.output(v);
  return drop_dead(b.finish(), true);
}

Value loss_of(const Graph& g, const GradOptions& options) {
  user_check(options.output >= 0 && static_cast<size_t>(options.output) < g.outputs.size(),
             "output-index", "grad: graph \"{}\" has {} outputs, the loss shall be output {}",
             g.name, g.outputs.size(), options.output);
  return g.outputs[static_cast<size_t>(options.output)];
}

Graph gradient_graph(const Graph& g, const std::vector<std::string>& names,
                     const GradOptions& options, bool keep_values) {
  const Values wrt = find_leaves(g, names, "grad");
  const Value loss = loss_of(g, options);
  Builder b = builder_of(g, "_grad");
  return finish(b, g, gradients(b, loss, wrt, options), keep_values);
}

}  // namespace

Values reverse(Builder& b, Operands outputs, Operands cotangents, Operands wrt) {
  return reverse_range(b, range_between(b.graph(), wrt, outputs), outputs, cotangents, wrt);
}

Values gradients(Builder& b, Value loss, Operands wrt, GradOptions options) {
  const Type type = b.type(loss);
  user_check(kFloats.has(type.dtype) && type.rank() == 0, "loss-type",
             "grad: the loss {} is {}; it must be a real scalar", describe(b.graph(), loss), type);
  check_differentiable(b.graph(), wrt, "grad");
  Value seed;
  {
    OriginScope origin(b, "grad");
    seed = b.constant(type.dtype, 1);
  }
  Values found = reverse(b, {&loss, 1}, {&seed, 1}, wrt);
  fill_missing(b, found, {&loss, 1}, wrt, options);
  return found;
}

Graph value_and_grad(const Graph& g, const std::vector<std::string>& wrt, GradOptions options) {
  return within_memory([&] { return gradient_graph(g, wrt, options, true); });
}

Graph grad(const Graph& g, const std::vector<std::string>& wrt, GradOptions options) {
  return within_memory([&] { return gradient_graph(g, wrt, options, false); });
}

namespace {

Graph vjp_graph(const Graph& g, const std::vector<std::string>& names, GradOptions options) {
  const Values wrt = find_leaves(g, names, "vjp");
  check_differentiable(g, wrt, "vjp");
  Builder b = builder_of(g, "_grad");
  Values cotangents;
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    const Type& type = g.type(g.outputs[i]);
    const std::string name = g.outputs.size() == 1 ? "d_output" : fmt::format("d_{}", i);
    cotangents.push_back(is_differentiable(type.dtype) ? b.input(free_name(b, name), type) : kNone);
  }
  Values found = reverse(b, g.outputs, cotangents, wrt);
  fill_missing(b, found, g.outputs, wrt, options);
  return finish(b, g, found, true);
}

}  // namespace

Graph vjp(const Graph& g, const std::vector<std::string>& names, GradOptions options) {
  return within_memory([&] { return vjp_graph(g, names, options); });
}

}  // namespace rlx
