#include "rlx/quantise/bake.h"

#include <algorithm>
#include <map>

#include "rlx/ops/core.h"
#include "rlx/quantise/run_values.h"

namespace rlx {

namespace {

// Per node: whether it is the same in every run, and the first parameter that it is made of.
struct Constancy {
  std::vector<bool> is;
  std::vector<std::string> name;
};

Constancy constancy(const Graph& g, const NamedTensors& stored) {
  Constancy c{std::vector<bool>(g.nodes.size()), std::vector<std::string>(g.nodes.size())};
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    const auto k = static_cast<size_t>(i);
    if (n.op == &op::param) {
      const std::string& name = n.get<LeafAttrs>().name;
      c.is[k] = !has_symbols(n) && !stored.contains(name) &&
                std::none_of(g.updates.begin(), g.updates.end(),
                             [&](const Update& u) { return u.param == name; });
      c.name[k] = name;
      continue;
    }
    c.is[k] = n.op != &op::input && n.op->kind != Kind::random && !has_symbols(n);
    for (Value v : n.in) {
      c.is[k] = c.is[k] && c.is[static_cast<size_t>(v.node)];
      if (c.name[k].empty()) c.name[k] = c.name[static_cast<size_t>(v.node)];
    }
  }
  return c;
}

// Codes before they are moved.
Value unmoved(const Graph& g, Value v) {
  while (g.node(v).op == &op::reshape || g.node(v).op == &op::transpose) v = g.node(v).in[0];
  return v;
}

// Codes that are needed lying in several ways are kept once, as they are before they are moved.
Values kept_once(const Graph& g, const Values& codes) {
  std::map<Value, int> ways;
  for (Value v : codes) ++ways[unmoved(g, v)];
  Values out;
  for (Value v : codes) {
    const Value from = unmoved(g, v);
    const bool is_computed = g.node(from).op->kind != Kind::leaf;
    const Value kept = ways[from] > 1 && is_computed ? from : v;
    if (std::find(out.begin(), out.end(), kept) == out.end()) out.push_back(kept);
  }
  return out;
}

}  // namespace

void bake_codes(Graph& g, const NamedTensors& params, NamedTensors& baked, const Device& device) {
  const Constancy c = constancy(g, baked);
  const auto is_constant = [&](int32_t i) { return c.is[static_cast<size_t>(i)]; };
  Values codes;
  for (int32_t i = 0; i < g.size(); ++i) {
    // Readers that are constant themselves are dequantize ops: codes stop there.
    const Node& n = g.node(i);
    for (Value v : n.in) {
      const Node& from = g.node(v);
      const DType d = g.type(v).dtype;
      const bool is_code = (d == DType::I8 || d == DType::U8) && from.op->kind != Kind::leaf &&
                           !c.name[static_cast<size_t>(v.node)].empty();
      const DType to = n.out[0].dtype;
      if (is_code && is_constant(v.node) && (!is_constant(i) || is_float(to)) &&
          std::find(codes.begin(), codes.end(), v) == codes.end())
        codes.push_back(v);
    }
  }
  if (codes.empty()) return;
  codes = kept_once(g, codes);
  const std::vector<Tensor> values = ValueRunner(g, codes, params, device)({});
  std::map<Value, std::string> names;
  for (size_t k = 0; k < codes.size(); ++k) {
    const std::string wanted = c.name[static_cast<size_t>(codes[k].node)] + ".int8";
    std::string name = wanted;
    for (int n = 1; g.find_leaf(name).valid() || baked.contains(name); ++n)
      name = fmt::format("{}_{}", wanted, n);
    names[codes[k]] = name;
    baked.emplace(name, values[k]);
  }
  g = rebuild(g, [&](Builder& b, int32_t i, Operands in) -> Values {
    if (const auto it = names.find({i, 0}); it != names.end())
      return {b.param(it->second, baked.at(it->second).type())};
    return b.clone(g.node(i), in);
  });
}

}  // namespace rlx
