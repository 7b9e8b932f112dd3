#include "rlx/transform/taylor.h"

#include <algorithm>

#include "rlx/ir/expression.h"
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/rules.h"
#include "rlx/transform/walk.h"

namespace rlx {

namespace {

double choose(int n, int k) { return k == 0 ? 1 : choose(n - 1, k - 1) * n / k; }

// Derivatives of values by the time, of any order: as far as possible from those of the operands (Leibniz' rule), so
// that nothing is made twice.
class TaylorWalk {
 public:
  explicit TaylorWalk(Builder& b) : b_(b), origin_(b, "jet") { share(0); }

  // v moves: these are its derivatives, from the first on.
  void seed(Value v, const Values& slopes) {
    for (size_t k = 0; k < slopes.size(); ++k) {
      known_[v].push_back(slopes[k]);
      alias_[slopes[k]] = {v, static_cast<int>(k) + 1};
    }
  }

  // The order-th derivative; kNone where v does not move.
  Value derivative(Value v, int order) {
    if (order == 0) return v;
    if (const auto a = alias_.find(v); a != alias_.end())
      return derivative(a->second.of, a->second.order + order);
    if (const auto k = known_.find(v); k != known_.end())
      return static_cast<size_t>(order) <= k->second.size()
                 ? k->second[static_cast<size_t>(order) - 1]
                 : kNone;
    if (b_.node(v).in.empty() || blocks(b_.node(v)) || !carries(*b_.node(v).op, b_.type(v).dtype))
      return kNone;
    while (static_cast<int>(terms_[v.node].size()) < order) {
      const int next = static_cast<int>(terms_[v.node].size()) + 1;
      Values found = term(v.node, next);
      for (size_t k = 0; k < found.size(); ++k) {
        const Value result{v.node, static_cast<int32_t>(k)};
        if (found[k].valid() && found[k].node >= fixed_ && !known_.contains(found[k]) &&
            !indirect_.contains(v.node))
          alias_.emplace(found[k], Alias{result, next});
      }
      terms_[v.node].push_back(std::move(found));
    }
    const Values& found = terms_[v.node][static_cast<size_t>(order) - 1];
    return found.empty() ? kNone : found[static_cast<size_t>(v.index)];
  }

  // Nodes below have their derivatives, and none of them is one.
  void fix() { fixed_ = b_.graph().size(); }

 private:
  struct Alias {
    Value of;
    int order = 0;
  };

  // The order-th derivatives of a node's results, none when no operand moves.
  Values term(int32_t i, int order) {
    const Node n = b_.graph().node(i);  // a copy: what follows appends to the graph
    Values moving;  // operands of which a derivative up to this order is not zero
    for (Value v : n.in) {
      bool moves = false;
      for (int k = 1; k <= order && !moves && carries(*n.op, b_.type(v).dtype); ++k)
        moves = derivative(v, k).valid();
      moving.push_back(moves ? v : kNone);
    }
    if (std::none_of(moving.begin(), moving.end(), [](Value v) { return v.valid(); })) return {};
    origin_.of(n);
    const bool of_codes = std::any_of(moving.begin(), moving.end(), [&](Value v) {
      return v.valid() && !is_differentiable(b_.type(v).dtype);
    });
    Values found = n.op->linear && !of_codes       ? through_itself(n, order)
                   : is_bilinear(n, moving)        ? by_leibniz(n, order)
                   : n.op->derivative && !of_codes ? by_chain_rule(i, n, moving, order)
                   : n.op->decompose && !n.op->jvp ? of_definition(i, n, order)
                                                   : step_by_step(i, n, order);
    for (size_t k = 0; k < found.size(); ++k)
      if (!carries(*n.op, n.out[k].dtype)) found[k] = kNone;
    return found;
  }

  Values through_itself(const Node& n, int order) {
    Values in;
    bool any = false;
    for (Value v : n.in) {
      const Value slope = derivative(v, order);
      any |= slope.valid();
      in.push_back(slope.valid() ? slope : zeros(b_, b_.type(v)));
    }
    if (!any) return Values(n.out.size(), kNone);
    return emit([&] { return b_.emit(*n.op, n.attrs, in); }, n);
  }

  static bool is_bilinear(const Node& n, const Values& moving) {
    return n.op->jvp == jvp_bilinear && n.out.size() == 1 &&
           std::none_of(moving.begin() + 2, moving.end(), [](Value v) { return v.valid(); });
  }
  Values by_leibniz(const Node& n, int order) {
    Value sum = kNone;
    for (int k = 0; k <= order; ++k) {
      const Value x = derivative(n.in[0], k), y = derivative(n.in[1], order - k);
      if (!x.valid() || !y.valid()) continue;
      Values in = n.in;
      in[0] = x, in[1] = y;
      const Value product = emit([&] { return b_.emit(*n.op, n.attrs, in); }, n)[0];
      sum = added(sum, times(product, choose(order, k)));
    }
    return single(sum);
  }

  // y' = sum of slope_i(x) x_i', and so on.
  Values by_chain_rule(int32_t i, const Node& n, const Values& moving, int order) {
    const Value result{i, 0};
    Values& slopes = slopes_[i];
    if (slopes.empty()) slopes = Values(n.in.size(), kNone);
    Value sum = kNone;
    for (size_t k = 0; k < n.in.size(); ++k) {
      if (!moving[k].valid() || !is_differentiable(b_.type(n.in[k]).dtype)) continue;
      if (!slopes_[i][k].valid()) {
        const Values slope = emit(
            [&] {
              const Values none(n.in.size(), kNone);
              const JvpArgs args{n, n.in, {&result, 1}, none};
              const Value one = full(b_, n.out[0], 1);
              return single(n.op->derivative(b_, args, static_cast<int>(k), one));
            },
            n);
        slopes_[i][k] = slope[0];
      }
      for (int j = 0; j < order; ++j) {
        const Value slope = slopes_[i][k].valid() ? derivative(slopes_[i][k], j) : kNone;
        const Value x = derivative(n.in[k], order - j);
        if (!slope.valid() || !x.valid()) continue;
        const Value product = emit([&] { return single(op::mul(b_, slope, x)); }, n)[0];
        sum = added(sum, times(product, choose(order - 1, j)));
      }
    }
    return single(sum);
  }

  Values of_definition(int32_t i, const Node& n, int order) {
    if (!definitions_.contains(i)) {
      indirect_.insert(i);
      const int32_t begin = b_.graph().size();
      Values values = b_.expand(n, n.in);
      share(begin);
      for (Value& v : values) v = shared(v);
      definitions_[i] = std::move(values);
    }
    const Values values = definitions_[i];
    Values found;
    for (Value v : values) found.push_back(derivative(v, order));
    return found;
  }

  // The first derivative by the node's own rule, the others from its nodes.
  Values step_by_step(int32_t i, const Node& n, int order) {
    Values found;
    if (order == 1) {
      indirect_.insert(i);
      Values in;
      for (Value v : n.in) in.push_back(derivative(v, 1));
      return emit([&] { return tangents_of_node(b_, i, in); }, n);
    }
    const Values first = terms_[i][0];
    for (Value v : first) found.push_back(v.valid() ? derivative(v, order - 1) : kNone);
    return found;
  }

  Value times(Value x, double factor) {
    if (factor == 1) return x;
    return emit([&] { return single(op::mul(b_, x, b_.constant_like(x, factor))); }, b_.node(x))[0];
  }
  Value added(Value x, Value y) {
    if (!x.valid()) return y;
    return emit([&] { return single(add_maybe(b_, x, y)); }, b_.node(x))[0];
  }

  // The values that f appends, those that were there already instead of new ones; of the types of derivatives of n's results.
  template <class F>
  Values emit(F&& f, const Node& like) {
    const int32_t begin = b_.graph().size();
    const OpDef& op = *like.op;  // `like` may move when the graph grows
    const Types types = like.out;
    Values found = f();
    for (size_t k = 0; k < found.size(); ++k)
      if (found[k].valid() && k < types.size())
        found[k] =
            settle(b_, found[k], derivative_type(types[k]), op, "the derivative of result", k);
    share(begin);
    for (Value& v : found)
      if (v.valid()) v = shared(v);
    return found;
  }

  // Nodes from `begin` on that are there already: what reads them reads the first instead.
  void share(int32_t begin) {
    for (int32_t i = begin; i < b_.graph().size(); ++i) {
      Node& n = b_.mutable_graph().node(i);
      for (Value& v : n.in) v = shared(v);
      if (!is_expression(n)) continue;
      std::vector<int32_t>& equal = by_key_[expression_key(n)];
      int32_t first = -1;
      for (int32_t j : equal)
        if (same_expression(b_.graph().node(j), n)) first = j;
      if (first < 0) {
        equal.push_back(i);
        continue;
      }
      for (int32_t k = 0; k < static_cast<int32_t>(n.out.size()); ++k) first_[{i, k}] = {first, k};
    }
  }
  Value shared(Value v) const {
    const Value first = find(first_, v);
    return first.valid() ? first : v;
  }

  Builder& b_;
  std::unordered_map<Value, Values, ValueHash> known_;        // derivatives of what is moved
  std::unordered_map<Value, Alias, ValueHash> alias_;         // of what value it is a derivative
  std::unordered_map<int32_t, std::vector<Values>> terms_;    // of a node's results, by order
  std::unordered_map<int32_t, Values> slopes_, definitions_;  // of elementwise nodes; of composites
  std::unordered_set<int32_t> indirect_;  // nodes whose derivatives are those of other values
  ValueMap first_;                        // of values that were there already
  std::unordered_map<uint64_t, std::vector<int32_t>> by_key_;  // nodes by their expression
  int32_t fixed_ = 0;
  OriginScope origin_;
};

Graph jet_graph(const Graph& g, const std::vector<std::string>& names, int order) {
  user_check(order >= 1, "order-range", "jet: the order must be 1 or more, not {}", order);
  const Values wrt = find_leaves(g, names, "jet");
  check_differentiable(g, wrt, "jet");
  Builder b = builder_of(g, "_jet");
  std::vector<Values> slopes(wrt.size());
  for (int k = 1; k <= order; ++k)
    for (size_t i = 0; i < wrt.size(); ++i)
      slopes[i].push_back(
          b.input(free_name(b, fmt::format("d{}_{}", k, names[i])), g.type(wrt[i])));
  TaylorWalk walk(b);
  walk.fix();
  for (size_t i = 0; i < wrt.size(); ++i) walk.seed(wrt[i], slopes[i]);
  const std::vector<bool> needed = needed_nodes(g, g.outputs, 0, g.size());
  for (int32_t i = 0; i < g.size(); ++i)  // in order, so that nothing is asked for from far above
    if (needed[static_cast<size_t>(i)])
      for (int k = 1; k <= order; ++k) walk.derivative({i, 0}, k);
  for (Value v : g.outputs) b.output(v);
  for (int k = 1; k <= order; ++k)
    for (Value v : g.outputs) {
      if (!is_differentiable(g.type(v).dtype)) continue;
      const Value found = walk.derivative(v, k);
      b.output(found.valid() ? found : zeros(b, g.type(v)));
    }
  return drop_dead(b.finish(), true);
}

}  // namespace

Graph jet(const Graph& g, const std::vector<std::string>& wrt, int order) {
  return within_memory([&] { return jet_graph(g, wrt, order); });
}

}  // namespace rlx
