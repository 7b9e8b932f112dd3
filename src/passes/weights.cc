#include "rlx/passes/weights.h"

#include <algorithm>
#include <unordered_set>

#include "rlx/ops/core.h"
#include "rlx/ops/region.h"

namespace rlx {

namespace {

// More weights than these are no small expression.
constexpr size_t kMostWeights = 16, kMostNodes = 64;

bool is_view(const OpDef* op) {
  return op == &op::reshape || op == &op::transpose || op == &op::slice || op == &op::broadcast ||
         op == &op::reverse;
}

bool may_be_of_weights(const Node& n) {
  return n.op->kind == Kind::elementwise || is_view(n.op) || n.op == &op::concat ||
         n.op == &op::region || is_region_reduction(n) || is_generated_leaf(n);
}

std::unordered_set<std::string_view> written_params(std::span<const Update> updates) {
  std::unordered_set<std::string_view> out;
  for (const Update& u : updates) out.insert(u.param);
  return out;
}

int64_t bytes_of(const Types& types) {
  int64_t sum = 0;
  for (const Type& t : types) sum += t.bytes();
  return sum;
}

// Per node: the leaves of which it is made alone, or none.
class WeightsOf {
 public:
  explicit WeightsOf(const Graph& g)
      : g_(g), leaves_(g.nodes.size()), is_(g.nodes.size(), false), computes_(is_) {
    const auto written = written_params(g.updates);
    for (int32_t i = 0; i < g.size(); ++i) {
      const Node& n = g.node(i);
      if (n.op == &op::param || n.op == &op::constant) {
        is_[at(i)] = !has_symbols(n) &&
                     (n.op == &op::constant || !written.contains(n.get<LeafAttrs>().name));
        if (n.op == &op::param || n.type().rank() > 0) leaves_[at(i)] = {i};
      } else if (may_be_of_weights(n) && !has_symbols(n)) {
        is_[at(i)] = join(i, n);
      }
    }
  }
  bool is(int32_t i) const { return is_[at(i)]; }
  // It computes something of a weight, or is a view of what does.
  bool computes(int32_t i) const { return computes_[at(i)]; }

 private:
  static size_t at(int32_t i) { return static_cast<size_t>(i); }

  bool join(int32_t i, const Node& n) {
    std::vector<int32_t> all;
    for (Value v : n.in) {
      if (!is_[at(v.node)]) return false;
      const auto& of = leaves_[at(v.node)];
      std::vector<int32_t> both;
      std::set_union(all.begin(), all.end(), of.begin(), of.end(), std::back_inserter(both));
      all = std::move(both);
    }
    if (all.size() > kMostWeights) return false;
    int64_t bytes = 0;
    for (int32_t leaf : all) bytes += bytes_of(g_.node(leaf).out);
    if (!all.empty() && bytes_of(n.out) > bytes) return false;
    computes_[at(i)] = !all.empty() && (!is_view(n.op) || computes_[at(n.in[0].node)]);
    leaves_[at(i)] = std::move(all);
    return true;
  }

  const Graph& g_;
  std::vector<std::vector<int32_t>> leaves_;
  std::vector<bool> is_, computes_;
};

}  // namespace

std::vector<bool> weights_alone(const Graph& g) {
  const WeightsOf weights(g);
  std::vector<bool> out(g.nodes.size(), false), wanted(g.nodes.size(), false);
  for (int32_t i = g.size(); i-- > 0;) {
    const auto k = static_cast<size_t>(i);
    out[k] = wanted[k] && weights.computes(i);
    if (weights.is(i) && !wanted[k]) continue;  // read by outputs alone, or by nobody
    for (Value v : g.node(i).in) wanted[static_cast<size_t>(v.node)] = true;
  }
  return out;
}

bool is_of_weights(const Graph& g, Value v, std::span<const Update> updates) {
  return is_of_weights(g, v, updates, [](int32_t) { return false; });
}

bool is_of_weights(const Graph& g, Value v, std::span<const Update> updates,
                   FunctionRef<bool(int32_t input)> comes_in) {
  const auto written = [&](const std::string& name) {
    return std::any_of(updates.begin(), updates.end(),
                       [&](const Update& u) { return u.param == name; });
  };
  Values open{v};
  for (size_t seen = 0; !open.empty(); ++seen) {
    const int32_t i = open.back().node;
    const Node& n = g.node(i);
    open.pop_back();
    if (seen > kMostNodes) return false;
    if (n.op == &op::constant || is_generated_leaf(n)) continue;
    if (n.op == &op::input && comes_in(i)) continue;
    if (n.op == &op::param && !written(n.get<LeafAttrs>().name)) continue;
    if (n.op->kind == Kind::leaf || !may_be_of_weights(n)) return false;
    open.insert(open.end(), n.in.begin(), n.in.end());
  }
  return true;
}

}  // namespace rlx
